"""The planner's optimum equals brute force over candidates and stage assignments."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from oracle import Answer, Oracle, objective, scalar_step, within
from random_problems import problem, with_room

from planner import economics
from planner.instance import Instance
from planner.relax import goal_of
from planner.search import Plan, Table, best

SAME = 1e-6
MOST_CANDIDATES = 700
MOST_ASSIGNMENTS = 40_000
BLOCKS, BLOCK = 12, 20


def small_problem(random: Random, most: int = MOST_CANDIDATES) -> Oracle:
    """A random problem that brute force gets through, with every assignment priced."""
    while True:
        oracle = Oracle.of(problem(random), most, MOST_ASSIGNMENTS)
        if oracle is not None and oracle.layouts:
            return oracle


def with_limits(random: Random, oracle: Oracle) -> Instance:
    """Memory that binds, and days and dollars that some, most or no plans meet."""
    low, high = oracle.memory_range()
    instance = oracle.instance
    share = random.choice((-0.02, 0.02, 0.1, 0.3, 0.6, 1.1))
    room = (low + share * (high - low)) / (1 - instance.limits.memory_headroom)
    instance = with_room(instance, room * 1.000123)
    seconds = sorted(answer.seconds for answer in oracle.answers(instance)) or [1.0]
    dollars = sorted(answer.dollars for answer in oracle.answers(instance)) or [1.0]
    limits = instance.limits
    if random.random() < 0.5:
        limits = replace(limits, deadline=quantile(random, seconds))
    if random.random() < 0.5:
        limits = replace(limits, budget=quantile(random, dollars))
    return replace(instance, limits=limits)


def quantile(random: Random, values: list[float]) -> float:
    """A little more than one of the values, a small one more often; now and then less than all."""
    if random.random() < 0.1:
        return values[0] * 0.97
    return values[int(len(values) * random.random() ** 3)] * 1.00037


def planned(instance: Instance) -> Plan | None:
    return best(Table.of(instance, instance.limits), goal_of(instance))


def seconds_and_dollars(instance: Instance, plan: Plan) -> tuple[float, float]:
    seconds = economics.run_seconds(instance, plan.row, np.array([plan.step]))
    return float(seconds[0]), float(economics.run_dollars(instance, plan.row, seconds)[0])


def disagreements(instance: Instance, answers: list[Answer], plan: Plan | None) -> list[str]:
    """In what the planner's plan is not the brute-force optimum."""
    if plan is None or not answers:
        agree = plan is None and not answers
        return [] if agree else [f"planner {'none' if plan is None else 'found'}, brute force {len(answers)}"]
    ordered = sorted(answers, key=lambda of: (*objective(instance, of.seconds, of.dollars), of.seconds))
    seconds, dollars = seconds_and_dollars(instance, plan)
    mine, theirs = objective(instance, seconds, dollars), objective(instance, ordered[0].seconds, ordered[0].dollars)
    wrong = []
    if not np.isclose(mine[0], theirs[0], rtol=SAME, atol=0.0):
        wrong.append(f"objective {mine[0]!r}, brute force {theirs[0]!r}: {ordered[0]}, {plan}")
    elif not tied_fairly(instance, ordered, mine, seconds):
        wrong.append(f"takes {seconds!r} s, brute force {ordered[0].seconds!r} s at the same objective")
    limits = instance.limits
    if limits.deadline is not None and seconds > limits.deadline * (1 + SAME):
        wrong.append(f"misses the deadline: {seconds} > {limits.deadline}")
    if limits.budget is not None and dollars > limits.budget * (1 + SAME):
        wrong.append(f"misses the budget: {dollars} > {limits.budget}")
    room = instance.pools[int(plan.row.pool[0])].memory_limit(limits.memory_headroom)
    if plan.memory > room * (1 + SAME):
        wrong.append(f"needs {plan.memory} bytes of {room}")
    return wrong


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


def compare(seed: int, most: int = MOST_CANDIDATES) -> list[str]:
    random = Random(seed)
    oracle = small_problem(random, most)
    instance = with_limits(random, oracle)
    answers = within(instance, oracle.answers(instance))
    for answer in random.sample(answers, min(3, len(answers))):
        assert scalar_step(instance, answer) == pytest.approx((answer.step, answer.memory), rel=1e-9)
    return [f"seed {seed}: {wrong}" for wrong in disagreements(instance, answers, planned(instance))]


@pytest.mark.parametrize("block", range(BLOCKS))
def test_the_optimum_is_that_of_brute_force(block: int) -> None:
    wrong = [line for seed in range(block * BLOCK, (block + 1) * BLOCK) for line in compare(seed)]
    assert not wrong, "\n".join(wrong)
