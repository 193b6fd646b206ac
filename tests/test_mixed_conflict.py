"""When neither one pool nor two have a plan: what is said of it, against brute force over both kinds."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from random import Random
from typing import Any

import pytest
from mixed_oracle import MixedOracle, small_mixed_problem
from oracle import Oracle, within
from test_mixed_reasons import MOST, MOST_ASSIGNMENTS, asked_problem

from costmodel.units import DAY
from planner.conflict import infeasible
from planner.instance import Instance, Limits
from planner.limit_words import limit_words
from planner.mixed.either import OnEither
from planner.nearest import AS_GOOD, PRECISION, nearest_miss

SEEDS = (0, 3, 4, 7)


def answers(instance: Instance, oracle: MixedOracle, alone: Oracle) -> list[Any]:
    """Every plan of either kind within the limits."""
    every: list[Any] = [*oracle.answers(instance), *alone.answers(instance, keep_all)]
    return within(instance, every)


def keep_all(of: Any, layers: Any, again: Any) -> Any:
    return [True] * len(layers)


def too_tight(random: Random, seed: int) -> tuple[Instance, MixedOracle, Oracle] | None:
    """A problem whose limits no plan meets: one of them alone, or only both together."""
    oracle = small_mixed_problem(Random(seed), make=asked_problem)
    alone = Oracle.of(oracle.instance, MOST, MOST_ASSIGNMENTS)
    if alone is None:
        return None
    instance = oracle.instance
    every = answers(replace(instance, limits=free(instance.limits)), oracle, alone)
    if not every:
        return None
    quick, cheap = min(of.seconds for of in every), min(of.dollars for of in every)
    deadline, budget = {
        "deadline": (quick * random.uniform(0.3, 0.95), cheap * 3),
        "budget": (quick * 3, cheap * random.uniform(0.3, 0.95)),
        "both": (quick * 1.000001, cheap * 1.000001),
    }[random.choice(("deadline", "budget", "both"))]
    return (
        replace(instance, limits=replace(instance.limits, deadline=deadline, budget=budget)),
        oracle,
        alone,
    )


def free(limits: Limits) -> Limits:
    return replace(limits, deadline=None, budget=None, energy=None, carbon=None)


def conflict_holds(seed: int) -> bool:
    """Compares what is said of one problem with brute force; whether there was anything to compare."""
    found = too_tight(Random(seed), seed)
    if found is None:
        return False
    instance, oracle, alone = found
    if answers(instance, oracle, alone):
        return False
    limits = instance.limits
    without = {
        name: answers(replace(instance, limits=replace(limits, **{name: None})), oracle, alone)
        for name in ("deadline", "budget")
    }
    conflict = infeasible(instance)
    # A limit is in conflict by itself where there is no plan without the other one.
    needed = {name for name, other in (("deadline", "budget"), ("budget", "deadline")) if not without[other]}
    if needed:
        assert len(conflict.limits) == 1, seed
        assert conflict.limits[0] in needed, seed
    else:
        assert set(conflict.limits) == {"deadline", "budget"}, seed
    moved = {move.limit: move.to for move in conflict.relaxations}
    for name, least in (("deadline", "seconds"), ("budget", "dollars")):
        best = min((getattr(of, least) for of in without[name]), default=None)
        said = None if best is None else limit_words(name, 1.0, best)[1]
        assert moved.get(name) == said, (seed, name)
    nearest_holds(instance, oracle, alone)
    return True


def nearest_holds(instance: Instance, oracle: MixedOracle, alone: Oracle) -> None:
    """No plan is beyond the limits by a smaller share than the nearest one."""
    limits = instance.limits
    assert limits.deadline is not None
    assert limits.budget is not None
    every = answers(replace(instance, limits=free(limits)), oracle, alone)
    share = min(max(of.seconds / limits.deadline, of.dollars / limits.budget) for of in every)
    near = nearest_miss(instance)
    assert near is not None
    of = near.plan.estimate
    mine = max(of.days * DAY / limits.deadline, of.dollars / limits.budget)
    # A worst limit that is broken by a twentieth more may spare the other one.
    assert share * (1 - 1e-6) <= mine <= 1 + (share - 1) * (1 + AS_GOOD) * (1 + 3 * PRECISION)
    over = {"deadline": of.days - limits.deadline / DAY, "budget": of.dollars - limits.budget}
    assert near.over == pytest.approx({name: most for name, most in over.items() if most > 0}, rel=1e-3)


def test_no_question_of_one_answer_searches_twice_for_the_same_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    found = too_tight(Random(3), 3)
    assert found is not None
    searched: list[Instance] = []
    own = OnEither.best

    def best(of: OnEither, instance: Instance, known: Any = None) -> Any:
        searched.append(instance)
        return own(of, instance, known)

    monkeypatch.setattr(OnEither, "best", best)
    instance = found[0]
    said = infeasible(instance)
    questions = len(searched)
    near = nearest_miss(instance)
    assert near is not None
    assert len(searched) > questions > 0
    assert all(one != other for one, other in combinations(searched, 2))
    # Nor is anything that is known asked again, whatever comes of it.
    assert (infeasible(instance), nearest_miss(instance)) == (said, near)
    assert all(one != other for one, other in combinations(searched, 2))


def test_conflicts_equal_brute_force_over_both_kinds() -> None:
    assert sum(conflict_holds(seed) for seed in SEEDS) > 2


@pytest.mark.slow
@pytest.mark.parametrize("block", range(2))
def test_conflicts_equal_brute_force_on_many_more(block: int) -> None:
    assert sum(conflict_holds(seed) for seed in range(5000 + 15 * block, 5000 + 15 * (block + 1))) > 5
