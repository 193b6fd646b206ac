"""When nothing fits: which limits conflict, and how far each would have to move by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.asking import Asking
from planner.choose import conflict
from planner.finding import Finding, P
from planner.frameworks.table import ANY
from planner.instance import Instance
from planner.looser import looser, value_of_single
from planner.narrowed import fewer_keys, keys_in_conflict, keys_of, other_values
from planner.node_reach import no_number_of_nodes
from planner.other_frameworks import FRAMEWORK, removes_keys, without_memory_limit
from planner.relaxed import (
    LastTable,
    Optimum,
    Tables,
    limited,
    optimum,
    possible,
    smallest,
    tables_until,
    without,
)
from planner.search import Table, goal_of
from planner.search.choice import limits_on_columns
from planner.solution import Conflict, Relaxation
from planner.space.recompute import recompute_families
from planner.ways_out import (
    another_framework,
    another_framework_and_limit,
    less_headroom,
    less_sure,
    more_nodes,
    moved_limits,
    of_one_pool,
)

Array = NDArray[Any]


WHICH = "which limits conflict"
HOW_FAR = "how far limits would have to move"
"""Questions, as they are told of where the time was out before they were answered."""


def infeasible(instance: Instance, asking: Asking | None = None) -> Conflict:
    """The minimal set of limits in conflict, and for each limit how far it would have to move alone.

    Of both as much as is known in time; the set is empty where it is not known to be minimal.
    """
    asking = asking or Asking()
    if instance.mixing is not None:
        from planner.mixed.conflict import infeasible_of_both

        return infeasible_of_both(instance, asking)
    find, tables = LastTable(asking.until).optimum, tables_until(asking.until)
    limits = asking.ask(WHICH, lambda: conflicting(instance, find, tables)) or ()
    return told(instance, limits, ways_out(instance, limits, find, tables), asking)


def told(instance: Instance, limits: tuple[str, ...], ways: Iterable[Relaxation], asking: Asking) -> Conflict:
    """What is known in time of limits in conflict."""
    moves = tuple(asking.every(HOW_FAR, ways))
    stuck = no_number_of_nodes(instance, limits, moves) if asking.answered(HOW_FAR) else {}
    return Conflict(limits=limits, relaxations=moves, stuck=stuck)


def ways_out(
    instance: Instance, limits: Sequence[str], find: Optimum, tables: Tables
) -> Iterator[Relaxation]:
    """How far limits would have to move, each alone; `limits` are those that conflict."""
    of = of_one_pool(find)
    # More nodes last: it takes the longest to know how many.
    alone = (
        moved_limits(instance, find, limits),
        looser(instance, of.fastest, value_of_single, limits),
        less_headroom(instance, of.possible),
        less_sure(instance, find),
        more_nodes(instance, find, tables),
    )
    return with_search(instance, limits, chain(*alone), of)


def with_search(
    instance: Instance, limits: Sequence[str], alone: Iterable[Relaxation], of: Finding[P]
) -> Iterator[Relaxation]:
    """How far limits would have to move alone, and what of `search` would, where it is among `limits`.

    Where nothing is enough alone: which keys have to go together, or what moves beside the framework.
    """
    keys, enough = [key for key in keys_of(instance) if key in limits], False
    framework = another_framework(instance, of) if FRAMEWORK in limits else ()
    for move in chain(alone, framework, other_values(instance, keys, of)):
        enough = True
        yield move
    if not enough:
        yield from fewer_keys(instance, of) if keys else another_framework_and_limit(instance, of)


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
        if keys := keys_in_conflict(free, tables):
            return keys
        return (obstacle(lambda change: possible(change(free), free.limits, find)),)
    free = without(instance, [FRAMEWORK])
    if possible(free, free.limits, find):
        return with_the_framework(instance, find, tables)
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


def with_the_framework(instance: Instance, find: Optimum, tables: Tables) -> tuple[str, ...]:
    """A smallest set of limits that cannot hold together where there is a plan with any framework."""
    kept = smallest(limited(instance, instance.limits), without_any(instance, find))
    roomy = without_memory_limit(instance)
    if not kept and possible(roomy, roomy.limits, find):
        return ("memory", FRAMEWORK)
    if not kept:
        kept = keys_in_conflict(without(instance, limited(instance, instance.limits)), tables)
    return (*kept, FRAMEWORK)


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
