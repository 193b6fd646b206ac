"""The planner's optimum equals brute force over candidates and stage assignments."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from oracle import Answer, objective, scalar_step, small_problem, with_limits, within

from planner import economics
from planner.instance import Instance
from planner.relax import goal_of
from planner.search import Plan, Table, best

SAME = 1e-6
BLOCKS, BLOCK = 12, 20


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


def compare(seed: int, most: int = 700) -> list[str]:
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
