"""The plan nearest to limits that cannot hold together: against brute force, and in words."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from math import inf
from random import Random
from typing import Any

import numpy as np
import pytest
from lasting import lasting
from oracle import Answer, Oracle, with_limits
from test_realworld import small
from test_requirements import figures, holds, random_requirement, requiring

from planner.instance import Instance
from planner.nearest import AS_GOOD, PRECISION, nearest_miss
from planner.requirements import Requirement
from planner.search import Table, best, goal_of
from planner.space.recompute import recompute_families

NEAR = 3 * PRECISION
RUN = ("deadline", "budget", "energy", "carbon")


@dataclass(frozen=True, slots=True)
class Miss:
    """One plan of brute force, with the share by which it breaks each limit on a number."""

    figures: dict[str, Any]
    shares: dict[str, float]

    def worst(self, names: list[str]) -> float:
        return max((self.shares[name] for name in names), default=0.0)


def every_plan(oracle: Oracle) -> list[Answer]:
    """Of each candidate the assignments that no other beats in both time and memory, whatever fits."""
    found = []
    for layout, of in zip(oracle.layouts, oracle.priced, strict=True):
        least = inf
        for index in np.lexsort((of.memory, of.step)):
            if np.isfinite(of.step[index]) and of.memory[index] < least:
                least = float(of.memory[index])
                run = lasting(oracle.instance, layout, float(of.step[index]))
                took = run.seconds, run.dollars, run.kwh, run.tonnes
                found.append(Answer(layout, (), (), float(of.step[index]), least, *took))
    return found


def beyond(limit: float, used: float, at_most: bool = True) -> float:
    return max(0.0, used / limit - 1 if at_most else limit / used - 1)


def miss(instance: Instance, of: Answer, required: list[Requirement]) -> Miss:
    """How far a plan is beyond each limit of an instance."""
    limits, pool = instance.limits, instance.pools[of.layout.pool]
    shares = {"memory": beyond(pool.memory_limit(limits.memory_headroom), of.memory)}
    for name, used in zip(RUN, (of.seconds, of.dollars, of.kwh, of.tonnes), strict=True):
        if (limit := getattr(limits, name)) is not None:
            shares[name] = beyond(limit, used)
    run = lasting(instance, of.layout, of.step)
    if np.isfinite(run.room):
        shares["storage"] = beyond(run.room, run.kept)
    found = figures(instance, of)
    for each in required:
        if each.operator[0] in "<>" and least(each) > 0:
            shares[each.text] = beyond(least(each), found[each.name], each.operator[0] == "<")
    return Miss(found, shares)


def least(of: Requirement) -> float:
    """The tightest value that keeps to it."""
    whole = isinstance(of.value, int)
    return of.value + {"<": -whole, ">": whole}.get(of.operator, 0)


def too_tight(seed: int) -> tuple[Oracle, Instance, list[Requirement]] | None:
    """A problem that no plan meets, or None: limits of all kinds around what plans take."""
    random = Random(seed)
    oracle = small(random)
    instance = with_limits(random, oracle)
    answers = oracle.answers(instance) or oracle.answers(oracle.instance)
    some = random.choice(answers)
    took = dict(zip(RUN, (some.seconds, some.dollars, some.kwh, some.tonnes), strict=True))
    limits = {
        name: used * random.uniform(0.4, 1.1)
        for name, used in took.items()
        if random.random() < 0.6 and used > 0
    }
    instance = replace(instance, limits=replace(instance.limits, **limits))
    if random.random() < 0.3:
        room = lasting(instance, some.layout, some.step).kept * random.uniform(0.5, 1.1)
        pools = tuple(replace(pool, site=pool.site and pool.site.with_room(room)) for pool in instance.pools)
        instance = replace(instance, pools=pools)
    required = [random_requirement(random, instance, answers) for _ in range(random.choice((0, 1, 1, 2)))]
    if sum(of.operator[0] not in "<>" or least(of) <= 0 for of in required) > 1:
        return None
    by_name = {of.name: of for of in required}
    required = [tightened(random, of) for of in by_name.values()]
    instance = requiring(instance, required)
    plan = best(Table.of(instance, goal_of(instance), recompute_families(instance)))
    return None if plan is not None else (oracle, instance, required)


def tightened(random: Random, of: Requirement) -> Requirement:
    """A requirement on a prediction that fewer plans meet."""
    if of.decision is not None:
        return of
    share = random.uniform(1.0, 1.5)
    return replace(of, values=(of.value / share if of.operator[0] == "<" else of.value * share,))


def unmet(seed: int) -> list[str]:
    """What the nearest miss of a random problem has wrong."""
    found = too_tight(seed)
    if found is None:
        return []
    oracle, instance, required = found
    near = nearest_miss(instance)
    every = [miss(instance, of, required) for of in every_plan(oracle)]
    fixed = [of for of in required if of.operator[0] not in "<>" or least(of) <= 0]
    keeping = [of for of in every if all(holds(each, of.figures[each.name]) for each in fixed)]
    assert near is not None
    if bool(near.let_go) != (not keeping):
        return [
            f"{seed}: lets go {near.let_go}, and {len(keeping)} plans keep to everything without a number"
        ]
    left, order = keeping or every, [name for name in every[0].shares if name != "memory"]
    fitting = [of for of in left if not of.shares["memory"]]
    if "memory" not in near.share:
        if not fitting:
            return [f"{seed}: memory is kept to, and no plan does"]
        left = fitting
    mine = Miss({}, dict.fromkeys(every[0].shares, 0.0) | near.share)
    if "memory" in near.share:
        leanest = min(of.shares["memory"] for of in left)
        if mine.shares["memory"] > leanest * (1 + NEAR) + 1e-5 or fitting:
            return [f"{seed}: memory is broken by {mine.shares['memory']}, {leanest} would do"]
        left = [of for of in left if of.shares["memory"] <= mine.shares["memory"] + 1e-7]
    return [f"{seed}: {line}" for line in worse(mine, left, order)]


def worse(mine: Miss, left: list[Miss], names: list[str]) -> list[str]:
    """Where another plan breaks what is broken most by less, or of those that break it as little the next one."""
    if not names:
        return []
    nearest = min(left, key=lambda of: of.worst(names))
    share, theirs = mine.worst(names), nearest.worst(names)
    if not theirs * (1 - 1e-6) - 1e-5 <= share <= theirs * (1 + AS_GOOD) * (1 + NEAR) + 1e-5:
        return [f"the worst of {names} is {share}, and {theirs} would do"]
    worst = max(names, key=lambda name: nearest.shares[name])
    rest = [name for name in names if name != worst]
    as_good = [of for of in left if of.shares[worst] <= theirs * (1 + AS_GOOD) + 1e-7]
    wrong = worse(mine, as_good, rest)
    beside = [of.shares[worst] for of in left if no_more(of, mine, rest)]
    if beside and mine.shares[worst] > min(beside) * (1 + NEAR) + 1e-5:
        wrong.append(f"{worst} by {mine.shares[worst]}, and {min(beside)} would do beside the others")
    return wrong


def no_more(of: Miss, mine: Miss, names: list[str]) -> bool:
    """Whether a plan breaks some limits by no more."""
    return all(of.shares[name] <= mine.shares[name] + 1e-7 for name in names)


@pytest.mark.parametrize("block", range(3))
def test_the_nearest_miss_is_that_of_brute_force(block: int) -> None:
    wrong = list(chain.from_iterable(map(unmet, range(block * 12, block * 12 + 12))))
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(8))
def test_the_nearest_miss_is_that_of_brute_force_on_many_more(block: int) -> None:
    seeds = range(1000 + block * 40, 1000 + block * 40 + 40)
    wrong = list(chain.from_iterable(map(unmet, seeds)))
    assert not wrong, "\n".join(wrong)
