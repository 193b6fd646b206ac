"""The validator accepts what the planner returns and names what was tampered with; what is said of infeasible problems holds."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from tampering import tampered

from planner.problem import Problem, parse_problem
from planner.solution import Relaxation, Solution
from planner.solve import solve
from planner.validate import violations

SMALL: dict[str, Any] = {
    "name": "small",
    "model": {
        "name": "small", "layers": 9, "hidden": 2048, "ffn": 8192, "heads": 16, "kv_heads": 8, "head_dim": 128, "vocab": 32000
    },
    "training": {"tokens": "20B", "seq_len": 4096, "global_batch": {"min": "16 sequences", "max": "32 sequences"}},
    "hardware": [
        {"gpu": "H800", "nodes": {"max": 4}, "price": "2.00 USD/gpu-hour"},
        {"gpu": "H20", "nodes": {"max": 4}, "price": "0.80 USD/gpu-hour"},
    ],
    "objective": "cost",
    "search": {"tp": [1, 2, 4], "cp": [1], "pp": [1, 2, 3, 4], "vpp": [1, 2], "micro_batch": [1, 2]},
}  # fmt: skip


def problem(**settings: Any) -> Problem:
    changes = [(key.replace("__", "."), value) for key, value in settings.items()]
    return parse_problem(SMALL, changes)


PROBLEMS = {
    "plain": {},
    "pipeline": {"search__pp": [4], "search__vpp": 1},
    "interleaved": {"search__pp": [2], "search__vpp": 2},
    "recomputed": {
        "search__recompute": ["full"],
        "search__pp": [3],
        "search__vpp": 1,
        "search__framework": "any",
    },
    "limited": {"limits__budget": "3k USD", "limits__deadline": "30 days", "objective": "time"},
}


@cache
def solution(name: str) -> tuple[Problem, Solution]:
    asked = problem(**PROBLEMS[name])
    return asked, solve(asked)


@pytest.mark.parametrize("name", PROBLEMS)
def test_solved_plans_hold(name: str) -> None:
    asked, found = solution(name)
    assert found.status == "optimal"
    plans = [*found.plans, *(other.plan for other in found.runner_ups if other.plan)]
    assert plans
    for plan in plans:
        assert violations(asked, plan) == []


LIES: list[tuple[str, dict[str, Any], str]] = [
    ("pipeline", {"decisions.tp": 16}, "tp"),
    ("pipeline", {"decisions.tp": lambda n: n * 2}, "tp"),
    ("pipeline", {"decisions.cp": 3}, "cp"),
    ("pipeline", {"decisions.ep": 2}, "ep"),
    ("pipeline", {"decisions.dp": lambda n: n + 1}, "dp"),
    ("pipeline", {"decisions.pp": 3}, "pp"),
    ("pipeline", {"decisions.zero": 3}, "ZeRO"),
    ("pipeline", {"decisions.num_gpus": lambda n: n + 8}, "GPUs"),
    ("pipeline", {"decisions.nodes": lambda n: n + 1}, "nodes"),
    ("pipeline", {"decisions.global_batch": lambda n: n + 1}, "batch"),
    ("pipeline", {"decisions.num_microbatches": lambda n: n + 1}, "batch"),
    ("pipeline", {"decisions.micro_batch": lambda n: n * 2}, "batch"),
    ("pipeline", {"decisions.stages.0.layers": lambda n: n + 1}, "layers"),
    ("pipeline", {"decisions.stages.0.recomputed_layers": 9}, "recomputes"),
    ("pipeline", {"decisions.gpu": "B200"}, "B200"),
    ("pipeline", {"estimate.step_time_s": lambda s: s * 0.99}, "step time"),
    ("pipeline", {"estimate.days": lambda d: d * 0.99}, "days"),
    ("pipeline", {"estimate.dollars": lambda d: d * 0.99}, "dollars"),
    ("pipeline", {"estimate.memory_gib.total": lambda m: m * 0.99}, "memory"),
    ("pipeline", {"estimate.mfu": lambda m: m * 1.01}, "mfu"),
    ("pipeline", {"estimate.breakdown_s.gemm": lambda s: s * 0.9}, "breakdown"),
    ("recomputed", {"decisions.stages.0.recomputed_layers": lambda n: n - 1}, "step time"),
    ("recomputed", {"decisions.recompute": "none"}, "recompute"),
    ("interleaved", {"decisions.num_microbatches": lambda n: n + 1}, "multiples of pp"),
    ("interleaved", {"decisions.stages.0.chunks": lambda c: [c[0] + 1, *c[1:]]}, "chunks"),
    ("interleaved", {"decisions.vpp": 1}, "vpp"),
]


@pytest.mark.parametrize(("name", "changes", "named"), LIES, ids=lambda value: str(value).split(":")[0][:40])
def test_a_plan_that_was_tampered_with_is_refused(name: str, changes: dict[str, Any], named: str) -> None:
    asked, found = solution(name)
    wrong = violations(asked, tampered(found.plans[0], changes))
    assert any(named in line for line in wrong), wrong


def test_a_plan_that_recomputes_is_not_called_one_that_does_not() -> None:
    """The mode is what a launch file is written from."""
    asked, found = solution("recomputed")
    free = asked.model_copy(update={"search": asked.search.model_copy(update={"recompute": None})})
    assert violations(free, tampered(found.plans[0], {"decisions.recompute": "none"}))


def test_a_plan_of_another_problem_is_refused_by_the_limit_it_breaks() -> None:
    _, found = solution("plain")
    plan = found.plans[0]
    days, dollars = plan.estimate.days, plan.estimate.dollars
    for key, value, named in (
        ("limits__deadline", f"{days * 0.9} days", "deadline"),
        ("limits__budget", f"{dollars * 0.9} USD", "budget"),
        ("limits__memory_headroom", 0.99, "memory"),
        ("search__tp", [8], "tp"),
        ("training__global_batch", "17 sequences", "batch"),
    ):
        wrong = violations(problem(**{key: value}), plan)
        assert any(named in line for line in wrong), (key, wrong)


# ---------------------------------------------------------------------------------------------------
# Infeasible problems


def relaxations(asked: Problem) -> dict[str, Relaxation]:
    found = solve(asked)
    assert found.status == "infeasible"
    assert found.conflict
    assert found.conflict.limits
    return {move.limit: move for move in found.conflict.relaxations}


def number(text: Any) -> float:
    """The figure of `66.4 days`, `$1,234` or `0.031`."""
    return float(str(text).replace("$", "").replace(",", "").split()[0])


def feasible(asked: Problem) -> bool:
    return solve(asked).status == "optimal"


@cache
def conflicting() -> dict[str, str]:
    """Nearly the least money of all plans within nearly the least time of all plans."""
    cheapest = solve(problem(objective="cost")).plans[0].estimate.dollars
    fastest = solve(problem(objective="time")).plans[0].estimate.days
    return {"limits__budget": f"{cheapest * 1.02} USD", "limits__deadline": f"{fastest * 1.02} days"}


def test_a_deadline_moved_as_said_is_met_and_a_shorter_one_is_not() -> None:
    tight = conflicting()
    days = number(relaxations(problem(**tight))["deadline"].to)
    assert feasible(problem(**tight | {"limits__deadline": f"{days} days"}))
    assert not feasible(problem(**tight | {"limits__deadline": f"{days * 0.98 - 0.01} days"}))


def test_a_budget_moved_as_said_is_enough_and_a_smaller_one_is_not() -> None:
    tight = conflicting()
    dollars = number(relaxations(problem(**tight))["budget"].to)
    assert feasible(problem(**tight | {"limits__budget": f"{dollars} USD"}))
    assert not feasible(problem(**tight | {"limits__budget": f"{dollars * 0.995 - 1} USD"}))


def test_nodes_added_as_said_are_enough_and_one_fewer_is_not() -> None:
    one = {
        "hardware": [SMALL["hardware"][0] | {"nodes": {"max": 1}}],
        "training__global_batch": "64 sequences",
    }
    days = solve(problem(**one, objective="time")).plans[0].estimate.days
    tight = one | {"limits__deadline": f"{days / 2.5} days"}
    nodes = int(number(relaxations(problem(**tight))["nodes"].to))
    assert nodes > 1

    def with_nodes(count: int) -> Problem:
        return problem(**tight | {"hardware": [SMALL["hardware"][0] | {"nodes": {"max": count}}]})

    assert feasible(with_nodes(nodes))
    assert not feasible(with_nodes(nodes - 1))


def test_each_limit_in_conflict_is_needed_for_it() -> None:
    tight = conflicting()
    found = solve(problem(**tight))
    assert found.conflict
    named = found.conflict.limits
    assert named
    assert set(named) == {"budget", "deadline"}
    for limit in named:
        left = {
            key: value for key, value in tight.items() if key.split("__")[1] in named and limit not in key
        }
        assert feasible(problem(**left)), f"{limit} is superfluous"
