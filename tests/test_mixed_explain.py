"""`planner explain` and `--why` where plans may use two pools: against brute force over both kinds of plans."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import numpy as np
import pytest
from mixed_oracle import Keep, MixedOracle, small_mixed_problem, with_mixed_limits
from oracle import Oracle, objective, within
from test_mixed_reasons import MOST, MOST_ASSIGNMENTS, asked_problem
from typer.testing import CliRunner

from planner.cli.app import app
from planner.instance import Instance
from planner.marginal import moves
from planner.mixed.known import Searches
from planner.mixed.why import best_so, no_plan_so
from planner.problem import load_problem
from planner.resolve import instance_of
from planner.solution import Plan
from planner.variants import aimed, with_limits

EXAMPLE = "problems/70b_two_pools.yaml"
NAMES = ("tp", "pp", "dp", "micro_batch", "zero", "num_gpus", "num_microbatches")


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["explain", EXAMPLE, "--quiet", *arguments])


def value(instance: Instance, of: Plan | None) -> float | None:
    return None if of is None else objective(instance, of.estimate.days * 86400.0, of.estimate.dollars)[0]


def best_keys(
    instance: Instance, oracle: MixedOracle, alone: Oracle, mixed: Keep | None, single: Keep | None
) -> tuple[float, ...] | None:
    """The best values of the objective of all plans that are let through; None where there is none."""
    found: list[Any] = [] if mixed is None else list(oracle.answers(instance, mixed))
    found += [] if single is None else alone.answers(instance, single)
    return min((objective(instance, of.seconds, of.dollars) for of in within(instance, found)), default=None)


def least(
    instance: Instance, oracle: MixedOracle, alone: Oracle, mixed: Keep | None, single: Keep | None
) -> float | None:
    """The first of them."""
    keys = best_keys(instance, oracle, alone, mixed, single)
    return None if keys is None else keys[0]


def equal(found: float | None, wanted: float | None) -> bool:
    return found == wanted if found is None or wanted is None else found == pytest.approx(wanted, rel=2e-6)


def read(name: str, layout: Any) -> Any:
    """A decision of a layout, mixed or not."""
    own = {
        "num_gpus": lambda: int(np.sum(layout.num_gpus)),
        "dp": lambda: getattr(layout, "replicas", layout.dp),
        "num_microbatches": lambda: int(np.max(layout.num_microbatches)),
    }
    return own[name]() if name in own else getattr(layout, name)


def small(seed: int) -> tuple[Instance, MixedOracle, Oracle] | None:
    random = Random(seed)
    oracle = small_mixed_problem(random, make=asked_problem)
    alone = Oracle.of(oracle.instance, MOST, MOST_ASSIGNMENTS)
    return None if alone is None else (with_mixed_limits(random, oracle), oracle, alone)


def questions_hold(seed: int) -> int:
    """Asks for values of one decision each, and for each form; how many questions."""
    found = small(seed)
    if found is None:
        return 0
    (instance, oracle, alone), random, asked = found, Random(seed), 0
    layouts = [*oracle.layouts, *alone.layouts]
    for name in NAMES:
        wanted = read(name, random.choice(layouts))

        def keep(of: Any, layers: Any, again: Any, name: str = name, wanted: int = wanted) -> Any:
            numbers = np.atleast_1d(of.num_microbatches) if name == "num_microbatches" else [read(name, of)]
            return np.full(len(layers), all(number == wanted for number in numbers))

        answer = best_so(instance, {name: wanted})
        assert equal(value(instance, answer), least(instance, oracle, alone, keep, keep)), (
            seed,
            name,
            wanted,
        )
        asked += 1
    assert instance.mixing is not None
    for form in ("none", *instance.mixing.forms):

        def keep_form(of: Any, layers: Any, again: Any, form: str = form) -> Any:
            return np.full(len(layers), of.form == form)

        answer = best_so(instance, {"mixed": form})
        every = (lambda of, layers, again: np.ones(len(layers), dtype=bool)) if form == "none" else None
        wanted = least(instance, oracle, alone, None if every else keep_form, every)
        assert equal(value(instance, answer), wanted), (seed, form)
        asked += 1
    return asked


def moved_limits_hold(seed: int) -> int:
    """Moves deadline, budget and memory; how many moves."""
    found = small(seed)
    if found is None:
        return 0
    instance, oracle, alone = found
    every: Keep = lambda of, layers, again: np.ones(len(layers), dtype=bool)  # noqa: E731
    tried = [of for of in moves(instance) if of.limit in ("deadline", "budget", "memory_headroom")]
    for move in tried:
        wanted = least(move.instance, oracle, alone, every, every)
        assert equal(value(instance, Searches.of(move.instance).told(move.instance)), wanted), (
            seed,
            move.what,
        )
    return len(tried)


@pytest.mark.slow
def test_answers_and_moved_limits_equal_brute_force() -> None:
    assert sum(questions_hold(seed) for seed in (0, 3, 4, 7)) > 30
    assert sum(moved_limits_hold(seed) for seed in (0, 3, 4, 7)) > 10


@pytest.mark.slow
@pytest.mark.parametrize("block", range(4))
def test_answers_and_moved_limits_equal_brute_force_on_many_more(block: int) -> None:
    seeds = range(3000 + 25 * block, 3000 + 25 * (block + 1))
    assert sum(questions_hold(seed) for seed in seeds) > 100
    assert sum(moved_limits_hold(seed) for seed in seeds) > 40


def test_a_plan_on_two_pools_is_explained() -> None:
    done = run("--part", "why", "--part", "sure", "--format", "json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["plan"]["decisions"]["mixed"] == "stages"
    decided = {reason["decision"] for reason in found["reasons"]}
    assert decided >= {"gpu", "mixed", "first_ranks", "tp", "pp", "dp", "nodes of H20", "layers of H20"}
    for reason in found["reasons"]:
        # The objective is cost: whatever decides otherwise costs more, or there is no such plan.
        assert reason["because"] == "deadline" or reason["effect"]["dollars"] > 0
    assert found["sureness"]["evidence"] == "weak"


def test_where_no_plan_decides_otherwise_the_nearest_is_told() -> None:
    instance = instance_of(load_problem(EXAMPLE))
    free = aimed(with_limits(instance, deadline=None), "time")
    reasons = {
        of["decision"]: of for of in json.loads(run("--part", "why", "--format", "json").stdout)["reasons"]
    }
    for decision, question in (("mixed", {"mixed": "replicas"}), ("gpu", {"mixed": "none"})):
        nearest = best_so(free, question)
        assert nearest is not None
        said = f"the fastest takes {nearest.estimate.days:.1f} days of 70.0 (and costs ${nearest.estimate.dollars:,.0f})"
        assert reasons[decision]["because"] == "deadline"
        assert reasons[decision]["text"].endswith(
            f"no plan that decides otherwise is within the limits; {said}."
        )
        assert nearest.estimate.days > 70


@pytest.mark.parametrize(
    ("limits", "question", "limit", "words"),
    [
        ({"budget": "200k USD"}, {"tp": 4}, "budget", "the cheapest costs"),
        ({"require": ["mfu >= 0.9"]}, {"tp": 1}, "mfu >= 0.9", "without mfu >= 0.9 the fastest takes"),
        (
            {"deadline": "30 days", "budget": "100k USD"},
            {"tp": 4},
            "deadline and budget",
            "the fastest takes",
        ),
        ({"carbon": "10 t"}, {"tp": 4}, "carbon", "the least is"),
        ({}, {"mixed": "stages", "pp": 1}, "search", "leave no such layout"),
        ({}, {"mixed": "replicas", "pp": 1, "tp": 1}, "memory", "none fits into the memory"),
    ],
)
def test_the_limit_that_leaves_no_plan_of_either_kind_is_named(
    limits: dict[str, Any], question: dict[str, Any], limit: str, words: str
) -> None:
    loose = {"deadline": "400 days", "budget": "5M USD"}
    problem = load_problem(EXAMPLE, [("limits", loose | limits)])
    because, said = no_plan_so(instance_of(problem), question)
    assert because == limit
    assert words in said


def test_a_question_is_answered_by_the_best_plan_that_decides_so() -> None:
    reasons = json.loads(run("--part", "why", "--format", "json").stdout)["reasons"]
    (tp,) = (reason for reason in reasons if reason["decision"] == "tp")
    found = json.loads(run("--why", f"tp={tp['alternative']}", "--format", "json").stdout)
    assert found["effect"] == pytest.approx(tp["effect"])
    assert found["plan"]["decisions"]["mixed"] is not None
    chosen = run("--why", "mixed=stages")
    assert "already" in chosen.output
    assert "No plan with GPU type H20: the fastest takes" in run("--why", "gpu=H20").output
    assert "the leanest even split needs" in run("--why", "gpus=8").output
    wrong = run("--why", "mixed=both")
    assert wrong.exit_code == 2
    assert "none, stages, replicas" in wrong.stderr
