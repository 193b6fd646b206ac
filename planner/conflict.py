"""When nothing fits: which limits conflict, and how far each would have to move by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.units import DAY
from planner.answer import surely
from planner.choose import conflict
from planner.frameworks.table import ANY
from planner.instance import Instance, Limits
from planner.limit_words import limit_words, nodes_words
from planner.looser import looser, value_of_single
from planner.other_frameworks import FRAMEWORK, others, removes_keys, with_framework, without_memory_limit
from planner.relaxed import (
    OTHERS,
    Optimum,
    cheapest,
    fastest,
    limited,
    optimum,
    other_words,
    possible,
    without,
)
from planner.search import Goal, Table, goal_of
from planner.search.choice import limits_on_columns
from planner.solution import Conflict, Relaxation
from planner.space.recompute import recompute_families
from planner.variants import only, pool_name

Array = NDArray[Any]
Tables = Callable[[Instance, Goal, tuple[int, ...]], Table]
"""How a table is made: `Table.of`, or one that shares what others have found."""


def infeasible(instance: Instance) -> Conflict:
    """The minimal set of limits in conflict, and for each limit how far it would have to move alone."""
    if instance.mixing is not None:
        from planner.mixed.conflict import infeasible_of_both

        return infeasible_of_both(instance)
    moves = [*moved_limits(instance), *more_nodes(instance), *less_headroom(instance)]
    moves += [*less_sure(instance), *looser(instance, fastest, value_of_single)]
    limits = conflicting(instance)
    if FRAMEWORK in limits:
        moves += another_framework(instance)
    return Conflict(limits=limits, relaxations=tuple(moves))


def conflicting(
    instance: Instance, find: Optimum = optimum, tables: Tables = Table.of, given: bool = False
) -> tuple[str, ...]:
    """A smallest set of limits that cannot hold together: a core of the bounds by CP-SAT, or by trial.

    With `given` the framework is no limit but a fact, as long as it leaves any plan.
    """
    # Bounds are those of what requirements on decisions or a framework leave: no core of all limits then.
    own = instance.narrowing.required or removes_keys(instance)
    core = () if own else core_of_bounds(instance, tables)
    if core:
        return core
    named = limited(instance, instance.limits)
    free = without(instance, named)
    any_framework = instance.framework == ANY
    if (any_framework or (given and named)) and possible(free, free.limits, find):
        return smallest(named, without_any(instance, find))
    if any_framework:
        return (obstacle(lambda change: possible(change(free), free.limits, find)),)
    free = without(instance, [FRAMEWORK])
    if possible(free, free.limits, find):
        return with_the_framework(instance, find)
    return conflicting(free, find, tables)


def obstacle(helps: Callable[[Callable[[Instance], Instance]], bool]) -> str:
    """What leaves no plan without any limit: memory, stops that no run outlasts, or that nothing is valid."""
    if helps(without_memory_limit):
        return "memory"
    return "reliability" if helps(without_stops) else "search"


def without_stops(instance: Instance) -> Instance:
    """The instance on GPUs that never stop."""
    pools = tuple(
        replace(pool, site=pool.site and replace(pool.site, reliability=None)) for pool in instance.pools
    )
    return replace(instance, pools=pools)


def with_the_framework(instance: Instance, find: Optimum) -> tuple[str, ...]:
    """A smallest set of limits that cannot hold together where there is a plan with any framework."""
    kept = smallest(limited(instance, instance.limits), without_any(instance, find))
    roomy = without_memory_limit(instance)
    if not kept and possible(roomy, roomy.limits, find):
        return ("memory", FRAMEWORK)
    return (*kept, FRAMEWORK)


def smallest(named: list[str], helps: Callable[[list[str]], bool]) -> tuple[str, ...]:
    """What is left of limits when each is dropped without which there is no plan either.

    `helps`: whether there is a plan without some of them.
    """
    kept = list(named)
    for name in named:
        rest = [other for other in kept if other != name]
        if not helps([each for each in named if each not in rest]):
            kept = rest
    return tuple(kept)


def without_any(instance: Instance, find: Optimum) -> Callable[[list[str]], bool]:
    """Whether an instance has a plan without some of its limits."""

    def helps(names: list[str]) -> bool:
        free = without(instance, names)
        return possible(free, free.limits, find)

    return helps


def core_of_bounds(instance: Instance, tables: Tables = Table.of) -> tuple[str, ...]:
    """Limits that already the bounds of all pipelines exclude, named by CP-SAT's assumptions."""
    limits = instance.limits
    if limits.deadline is None and limits.budget is None:
        return ()
    free = replace(limits, deadline=None, budget=None)
    table = tables(instance, goal_of(instance, free), recompute_families(instance))
    if not len(table.book.keys):
        return ()
    least = table.least_of_keys()
    ends = np.isfinite(least.seconds) & np.isfinite(least.dollars)
    if not ends.any():
        return ()
    seconds, dollars = least.seconds[ends], least.dollars[ends]
    front = pareto(seconds, dollars)
    columns = {
        "seconds": np.floor(seconds[front]).astype(np.int64),
        "dollars": np.floor(dollars[front]).astype(np.int64),
    }
    return conflict(columns, limits_on_columns(replace(limits, energy=None, carbon=None)))


def pareto(first: Array, second: Array) -> Array:
    """Indices of points that no other point beats in both."""
    order = np.lexsort((second, first))
    best_second = np.minimum.accumulate(second[order])
    keep = np.concatenate([[True], second[order][1:] < best_second[:-1]])
    return order[keep]


def moved_limits(instance: Instance, find: Optimum = optimum) -> list[Relaxation]:
    """How far each limit on the run itself would have to move alone."""
    limits = instance.limits
    moves: list[Relaxation] = []
    if limits.deadline is not None:
        plan = fastest(instance, replace(limits, deadline=None), find=find)
        if plan is not None:
            seconds = surely(instance, plan)[0] * DAY
            moves.append(relaxation("deadline", *limit_words("deadline", limits.deadline, seconds)))
    if limits.budget is not None:
        plan = cheapest(instance, replace(limits, budget=None), find=find)
        if plan is not None:
            cost = surely(instance, plan)[1]
            moves.append(relaxation("budget", *limit_words("budget", limits.budget, cost)))
    for name in limited(instance, limits):
        if name in OTHERS and (words := other_words(instance, limits, name, find=find)) is not None:
            moves.append(relaxation(name, *words))
    return moves


def more_nodes(instance: Instance) -> list[Relaxation]:
    """For each pool the fewest nodes beyond its own with which a plan on it exists."""

    def enough(index: int, nodes: int) -> bool:
        alone = only(instance, index, max_nodes=nodes)
        return fastest(alone, alone.limits) is not None

    return moved_nodes(instance, enough)


def moved_nodes(instance: Instance, enough: Callable[[int, int], bool]) -> list[Relaxation]:
    """For each pool the fewest nodes beyond its own that are enough, up to 16 times as many."""
    moves = []
    for index in instance.described:
        pool = instance.pools[index]
        fewest = fewest_beyond(pool.max_nodes, partial(enough, index))
        if fewest is None:
            continue
        whole = fewest + (0 if pool.site is None else pool.site.spare_nodes(fewest))
        there = pool.nodes or pool.max_nodes
        old = f"{nodes_words(there)} of {pool_name(instance, index)}"
        new = nodes_words(max(whole, there + 1))
        moves.append(relaxation("nodes", old, new))
    return moves


def fewest_beyond(low: int, enough: Callable[[int], bool]) -> int | None:
    """The fewest beyond `low` that are enough: doubled up to four times, then by bisection."""
    high = low
    for _ in range(4):
        low, high = high, 2 * high
        if enough(high):
            break
    else:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def less_headroom(
    instance: Instance, possible: Callable[[Instance, Limits], bool] = possible
) -> list[Relaxation]:
    """The largest memory headroom with which a plan exists, if giving some up helps."""
    limits = instance.limits
    if limits.memory_headroom <= 0 or not possible(instance, replace(limits, memory_headroom=0.0)):
        return []
    most = highest(
        0.0,
        limits.memory_headroom,
        lambda value: possible(instance, replace(limits, memory_headroom=value)),
    )
    return [relaxation("memory_headroom", f"{limits.memory_headroom:.3f}", f"{most:.3f}")]


def less_sure(instance: Instance) -> list[Relaxation]:
    """The highest confidence with which a plan exists, if being less sure helps."""
    limits = instance.limits
    if limits.chance is None or not possible(instance, replace(limits, confidence=None)):
        return []
    most = highest(0.5, limits.chance, lambda value: possible(instance, replace(limits, confidence=value)))
    return [relaxation("confidence", f"{limits.chance:.1%}", f"{most:.1%}")]


def highest(low: float, high: float, holds: Callable[[float], bool]) -> float:
    """The highest value that holds, to a thousandth, by bisection: `low` does, `high` does not."""
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def another_framework(instance: Instance) -> list[Relaxation]:
    """The first other framework with which a plan exists."""
    for name in others(instance):
        other = with_framework(instance, name)
        if possible(other, other.limits):
            return [relaxation(FRAMEWORK, instance.framework, name)]
    return []


def relaxation(limit: str, old: str, new: str) -> Relaxation:
    """One limit moved, in the words of a solution."""
    return Relaxation(
        limit=limit, **{"from": old}, to=new, text=f"{limit} from {old} to {new} makes a plan possible"
    )
