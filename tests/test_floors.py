"""How far a plan may be from the best when the time is out: never less than how far it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from random import Random

import numpy as np
import pytest
from mixed_problems import mixed_problem, on_a_site
from random_problems import launched, overlapping, precise, problem
from searched import blank

from planner import economics
from planner.in_time import plainest_of
from planner.instance import Instance, Term
from planner.mixed import BestOfPairs, best_of_pairs, cells
from planner.mixed import search as searching
from planner.mixed.cells import Part
from planner.mixed.floor import floors_of_pairs
from planner.problem import parse_problem
from planner.relaxed import every_family
from planner.resolve import instance_of
from planner.search import Effort, Table, best, goal, goal_of
from planner.space.recompute import recompute_families

TERMS: tuple[Term, ...] = ("cost", "time", "energy", "carbon")
CUTS = (0, 1, 2, 3, 5, 8, 12, 20, 40, 80)
"""Looks at the clock before the time is out."""
ROUNDING = 1e-9


def asking_for(term: Term, instance: Instance) -> Instance:
    return replace(instance, objective=((term, 1.0),), lexicographic=True)


def least_of(instance: Instance) -> float:
    """The first sort key of the best plan on two pools, inf if there is none."""
    search = best_of_pairs(instance)
    assert search.complete
    return np.inf if search.achieved is None else float(search.achieved[0][0])


def cut(instance: Instance, looks: int) -> BestOfPairs:
    """The search for a plan on two pools that ends at a look at the clock; few of its cells are kept."""
    clock = count()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(goal, "monotonic", lambda: next(clock))
        patch.setattr(cells, "PART", 2)
        patch.setattr(searching, "KEPT", 1)
        return best_of_pairs(instance, Effort(until=looks - 0.5))


@pytest.mark.parametrize("make", [mixed_problem, on_a_site])
@pytest.mark.parametrize("seed", range(6))
def test_no_plan_on_two_pools_is_below_the_least_of_what_was_not_looked_at(
    make: Callable[[Random], Instance], seed: int
) -> None:
    random = Random(91_000 + seed)
    instance = make(random)
    if make is on_a_site:
        instance = asking_for(random.choice(TERMS), instance)
    optimum = least_of(instance)
    for looks in CUTS:
        found = cut(instance, looks)
        assert found.complete or found.effort.out_of_time
        known = np.inf if found.achieved is None else float(found.achieved[0][0])
        # What was looked at holds nothing better than what was found.
        assert found.complete or min(found.least, known) <= optimum * (1 + ROUNDING)
        if found.achieved is not None:
            assert (1 - found.gap(found.achieved)) * known <= optimum * (1 + ROUNDING)


@pytest.mark.parametrize("term", TERMS)
@pytest.mark.parametrize("seed", range(5))
def test_no_plan_on_two_pools_takes_less_than_layers_without_recompute(term: Term, seed: int) -> None:
    instance = asking_for(term, on_a_site(Random(92_000 + seed)))
    assert instance.mixing is not None
    floors = floors_of_pairs(instance, instance.mixing.forms)
    least = min((float(goal_of(instance).key_bound(of)) for of in floors), default=np.inf)
    assert least <= least_of(instance)


@pytest.mark.parametrize("make", [problem, precise, overlapping, launched])
@pytest.mark.parametrize("seed", range(12))
def test_no_recompute_family_takes_less_than_the_plainest_ones(
    make: Callable[[Random], Instance], seed: int
) -> None:
    instance = make(Random(93_000 + seed))
    families = recompute_families(instance)
    plain, every = (
        Table.of(instance, goal_of(instance), of).least_of_keys().value.min(initial=np.inf)
        for of in (plainest_of(families), every_family(instance))
    )
    assert plain <= every * (1 + ROUNDING)


def test_what_was_not_looked_at_is_bounded_within_tens_of_percent_from_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """405B on 2,048 + 2,048 nodes: not even the first cells are bounded."""
    data = {
        "model": "llama-3.1-405b",
        "training": {"tokens": "15T", "seq_len": 8192, "global_batch": {"min": "4M tokens", "max": "64M tokens"}},
        "hardware": [{"gpu": gpu, "nodes": {"max": 2048}} for gpu in ("H800", "H20")],
        "mixing": {"network": "25 GB/s"},
        "limits": {"deadline": "90 days"},
    }  # fmt: skip
    instance = instance_of(parse_problem(data))
    alone = best(blank(instance))
    assert alone is not None
    value = goal_of(instance).keys(economics.Economy.of(instance, alone.row), np.array([alone.step]))

    def late(*_: object) -> None:
        raise goal.OutOfTime

    monkeypatch.setattr(Part, "recall", late)
    search = best_of_pairs(instance)
    assert search.cells == 3 * 2048 * 2048
    assert 0 < search.gap(value) < 0.4
