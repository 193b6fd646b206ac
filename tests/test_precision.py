"""A pool without the precision of the run is left out of it, and is said to lack it."""

from __future__ import annotations

from typing import Any

import pytest

from planner.frontier import frontier
from planner.problem import Problem, parse_problem
from planner.solve import solve
from planner.validate import violations

ALONE = {"gpu": "H800", "nodes": {"max": 2}, "price": "2 USD/gpu-hour"}
OTHER = {"gpu": "H20", "nodes": {"max": 2}, "price": "0.8 USD/gpu-hour"}
WITHOUT = {"gpu": "A100-80", "nodes": {"max": 8}, "price": "0.1 USD/gpu-hour"}


def job(*pools: dict[str, Any], precision: str = "fp8", **more: Any) -> Problem:
    training = {"tokens": "100B", "seq_len": 4096, "global_batch": "128 sequences", "precision": precision}
    search = {"tp": [1, 2], "cp": 1, "micro_batch": [1, 2], "framework": "any"}
    data = {"model": "llama-2-7b", "training": training, "search": search, "hardware": list(pools)}
    return parse_problem(data | more)


@pytest.mark.parametrize("pools", [(ALONE, WITHOUT), (WITHOUT, ALONE)])
def test_a_cheap_pool_without_fp8_is_left_out(pools: tuple[dict[str, Any], ...]) -> None:
    problem = job(*pools)
    solution, alone = solve(problem), solve(job(ALONE))
    (plan,) = solution.plans
    assert not violations(problem, plan)
    assert plan.decisions == alone.plans[0].decisions
    (other,) = solution.runner_ups
    assert other.text == "No plan within the limits: A100-80 has no FP8."
    assert any(of.because == "precision" for of in plan.reasons if of.decision == "gpu")
    # In BF16 the same pool wins.
    assert solve(job(*pools, precision="bf16")).plans[0].decisions.gpu == "A100-80"


def test_a_frontier_in_fp8_has_no_plan_on_a_pool_without_it() -> None:
    found = frontier(job(ALONE, WITHOUT))
    assert {point.decisions.gpu for point in found.points} == {"H800"}


def test_two_pools_are_mixed_beside_a_third_without_the_precision() -> None:
    mixing: dict[str, Any] = {"mixing": {"network": "25 GB/s"}, "objective": "time"}
    problem = job(WITHOUT, ALONE, OTHER, **mixing)
    solution = solve(problem)
    assert solution.plans[0].decisions.mixed is not None
    assert {part.gpu for part in solution.plans[0].decisions.parts} == {"H800", "H20"}
    assert not violations(problem, solution.plans[0])


def test_what_would_do_instead_is_not_looked_for_on_a_pool_without_the_precision() -> None:
    solution = solve(job(ALONE, WITHOUT, limits={"deadline": "1 day"}))
    assert solution.conflict is not None
    assert solution.conflict.limits == ("deadline",)
    assert not any("A100" in move.text for move in solution.conflict.relaxations)
