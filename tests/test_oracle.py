"""The planner's optimum equals brute force over candidates and stage assignments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from oracle import Answer, objective, scalar_step, small_problem, with_limits, within
from random_problems import leading, overlapping, problem, rounds, with_memory
from searched import SAME, seconds_and_dollars, solved

from planner.instance import Instance
from planner.search import Plan
from planner.stages.memory import BYTES

BLOCKS, BLOCK = 12, 20


def disagreements(
    instance: Instance, answers: list[Answer], safe: list[Answer], plan: Plan | None
) -> list[str]:
    """In what the planner's plan is not the brute-force optimum.

    `safe` are the answers with a little less memory: the planner may miss a plan that fills a GPU to
    within what it rounds.
    """
    if plan is None:
        return [f"planner none, brute force {min(safe, key=order(instance))}"] if safe else []
    if not answers:
        return [f"planner {plan}, brute force none"]
    seconds, dollars = seconds_and_dollars(instance, plan)
    mine, wrong = objective(instance, seconds, dollars), broken_limits(instance, plan, seconds, dollars)
    for possible in (answers, safe):
        ordered = sorted(possible, key=order(instance))
        if not ordered:
            continue
        theirs = objective(instance, ordered[0].seconds, ordered[0].dollars)
        if not np.isclose(mine[0], theirs[0], rtol=SAME, atol=0.0):
            lines = [f"objective {mine[0]!r}, brute force {theirs[0]!r}: {ordered[0]}, {plan}"]
        elif not tied_fairly(instance, ordered, mine, seconds):
            lines = [f"takes {seconds!r} s, brute force {ordered[0].seconds!r} s at the same objective"]
        else:
            return wrong
    return wrong + lines


def broken_limits(instance: Instance, plan: Plan, seconds: float, dollars: float) -> list[str]:
    limits, room = (
        instance.limits,
        instance.pools[int(plan.row.pool[0])].memory_limit(instance.limits.memory_headroom),
    )
    used = {
        "deadline": (seconds, limits.deadline),
        "budget": (dollars, limits.budget),
        "memory": (plan.memory, room),
    }
    return [
        f"{name}: {value} of {limit}"
        for name, (value, limit) in used.items()
        if limit is not None and value > limit * (1 + 1e-12)
    ]


def order(instance: Instance) -> Callable[[Answer], tuple[float, ...]]:
    return lambda of: (*objective(instance, of.seconds, of.dollars), of.seconds)


def tied_fairly(instance: Instance, ordered: list[Answer], mine: tuple[float, ...], seconds: float) -> bool:
    """Of candidates with the same objective the planner took the quickest.

    Where some are only nearly the same, within what a solver's gap can tell apart, either may be taken.
    """
    value = objective(instance, ordered[0].seconds, ordered[0].dollars)[0]
    near = [of for of in ordered if objective(instance, of.seconds, of.dollars)[0] <= value * (1 + SAME)]
    exact = [of for of in near if objective(instance, of.seconds, of.dollars)[0] <= value * (1 + 1e-10)]
    if len(exact) < len(near):
        return seconds <= max(of.seconds for of in near) * (1 + SAME)
    return bool(np.isclose(seconds, min(of.seconds for of in exact), rtol=SAME, atol=0.0))


def room_rounded(instance: Instance) -> Instance:
    """GPUs with less memory by what `planner.stages.memory` may round up: units of bytes, a few for each layer."""
    rounded = 4 * BYTES * instance.architecture.layers / (1 - instance.limits.memory_headroom)
    pools = tuple(
        replace(pool, gpu=with_memory(pool.gpu, pool.gpu.memory.driver - rounded)) for pool in instance.pools
    )
    return replace(instance, pools=pools)


def compare(seed: int, most: int = 700, make: Callable[[Random], Instance] = problem) -> list[str]:
    random = Random(seed)
    oracle = small_problem(random, most, make)
    instance = with_limits(random, oracle)
    answers = within(instance, oracle.answers(instance))
    for answer in random.sample(answers, min(3, len(answers))):
        assert scalar_step(instance, answer) == pytest.approx((answer.step, answer.memory), rel=1e-9)
    safe = within(instance, oracle.answers(room_rounded(instance)))
    return [f"seed {seed}: {wrong}" for wrong in disagreements(instance, answers, safe, solved(instance))]


@pytest.mark.parametrize("block", range(BLOCKS))
def test_the_optimum_is_that_of_brute_force(block: int) -> None:
    wrong = [line for seed in range(block * BLOCK, (block + 1) * BLOCK) for line in compare(seed)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(40))
def test_the_optimum_is_that_of_brute_force_on_many_more(block: int) -> None:
    seeds = range(10_000 + block * BLOCK, 10_000 + (block + 1) * BLOCK)
    wrong = [line for seed in seeds for line in compare(seed, most=2000)]
    assert not wrong, "\n".join(wrong)


KINDS = {
    "leading dense layers": (leading, 6, 20_000, 20),
    "hidden expert traffic": (overlapping, 6, 40_000, 20),
    "gradients sharded by rounds": (rounds, 4, 60_000, 10),
}
"""Problems of a kind: how they are made, blocks of ten, and where many more begin, in so many blocks."""
FEW = [(name, block) for name, (_, blocks, _, _) in KINDS.items() for block in range(blocks)]
MANY = [(name, block) for name, (_, _, _, blocks) in KINDS.items() for block in range(blocks)]


@pytest.mark.parametrize(("kind", "block"), FEW)
def test_the_optimum_of_problems_of_a_kind_is_that_of_brute_force(kind: str, block: int) -> None:
    make = KINDS[kind][0]
    wrong = [line for seed in range(block * 10, block * 10 + 10) for line in compare(seed, make=make)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "block"), MANY)
def test_the_optimum_of_many_more_of_a_kind_is_that_of_brute_force(kind: str, block: int) -> None:
    make, _, first, _ = KINDS[kind]
    seeds = range(first + block * BLOCK, first + (block + 1) * BLOCK)
    wrong = [line for seed in seeds for line in compare(seed, most=2000, make=make)]
    assert not wrong, "\n".join(wrong)
