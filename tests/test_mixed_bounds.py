"""No plan on two pools takes less than the bound that its nodes and its layer key are dismissed by."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from mixed_oracle import MixedAnswer, small_mixed_problem, with_mixed_limits

from planner.instance import Instance
from planner.keybook import KeyBook
from planner.mixed import best_of_pairs
from planner.mixed.arrangement import Arrangement, arrangements, mixed_families
from planner.mixed.cells import Cells, least_seconds
from planner.mixed.shortest import Shortest
from planner.requirements import requirement
from planner.search.goal import Effort


def arranged(instance: Instance, every: list[Arrangement], of: MixedAnswer) -> Arrangement:
    assert instance.mixing is not None
    pair = of.layout.form, of.layout.pools
    return next(each for each in every if (each.form, each.pools) == pair)


def least(of: Arrangement, shortest: Shortest, answer: MixedAnswer) -> float:
    """The bound of the answer's GPUs and of its key, whatever that recomputes."""
    keys, layout = of.keys, answer.layout
    same = np.ones(len(keys), dtype=bool)
    for name in ("tp", "cp", "ep", "etp", "micro_batch"):
        same &= getattr(keys, name) == getattr(layout, name)
    return float(least_seconds(of, shortest, np.array(layout.num_gpus)[:, None])[0, same].min())


def all_cells(of: Arrangement, shortest: Shortest) -> Cells:
    """Of every number of nodes of the first pool."""
    pool = of.both[0]
    return Cells.of(of, shortest, np.arange(pool.min_nodes, pool.max_nodes + 1), Effort().check)


def too_high(seed: int) -> tuple[list[str], float]:
    """Answers that beat their bound, and the most that a bound is of what its answer takes."""
    random = Random(seed)
    oracle = small_mixed_problem(random, 600, 60_000)
    instance = with_mixed_limits(random, oracle)
    book = KeyBook.of(instance, mixed_families(instance), apart=True)
    assert instance.mixing is not None
    every = arrangements(instance, book, instance.mixing.forms)
    shortest = {(each.form, each.pools): Shortest.of(each, Effort()) for each in every}
    cells = {key: all_cells(of, shortest[key]) for of in every for key in [(of.form, of.pools)]}
    wrong, closest = [], 0.0
    for answer in oracle.answers(instance):
        of = arranged(instance, every, answer)
        # For as many sequences as the largest batch has.
        step = answer.step * instance.max_batch / answer.layout.batch
        key = of.form, of.pools
        bound, own = least(of, shortest[key], answer), cells[key]
        at = (own.running.num_gpus == np.array(answer.layout.num_gpus)[:, None]).all(axis=0)
        if bound > step or own.bound[at][0] > bound * (1 + 1e-12):
            wrong.append(f"seed {seed}: {step} s, bounds {own.bound[at]} and {bound}: {answer}")
        closest = max(closest, bound / step)
    return wrong, closest


@pytest.mark.parametrize("block", range(4))
def test_no_plan_takes_less_than_the_bound_of_its_nodes_and_key(block: int) -> None:
    found = [too_high(seed) for seed in range(70_000 + 6 * block, 70_006 + 6 * block)]
    assert not [line for wrong, _ in found for line in wrong]
    assert max(closest for _, closest in found) > 0.4


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_no_plan_of_many_more_takes_less_than_the_bound_of_its_nodes_and_key(block: int) -> None:
    found = [too_high(seed) for seed in range(71_000 + 12 * block, 71_012 + 12 * block)]
    assert not [line for wrong, _ in found for line in wrong]


def test_nodes_that_leave_no_pair_leave_no_cells() -> None:
    """`nodes <= 1`: two pools take a node each at least."""
    instance = small_mixed_problem(Random(70_000), 600, 60_000).instance
    one = replace(instance, narrowing=replace(instance.narrowing, required=(requirement("nodes <= 1"),)))
    search = best_of_pairs(one)
    assert (search.cells, search.best, search.complete) == (0, None, True)
