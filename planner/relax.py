"""When nothing fits: which limits conflict, and how far each would have to move by itself."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.answer import GIB, days_and_dollars
from planner.choose import conflict
from planner.economics import DAY
from planner.evaluate import evaluate
from planner.instance import Instance, Limits, Term
from planner.keybook import with_vpp
from planner.search import Effort, Mask, Plan, Table, best, goal_of
from planner.search.best import limits_of
from planner.search.goal import in_families
from planner.search.rows import memory_limits
from planner.solution import Conflict, Relaxation
from planner.space.columns import LayerKeys
from planner.space.layouts import expand
from planner.space.values import recompute_families, recompute_modes

Array = NDArray[Any]
PROBED = 4096
"""Pipelines whose even split is priced to see how much memory they need."""


def fastest(instance: Instance, limits: Limits, mask: Mask | None = None) -> Plan | None:
    """The plan with the shortest run within limits."""
    return optimum(instance, limits, "time", mask)


def cheapest(instance: Instance, limits: Limits, mask: Mask | None = None) -> Plan | None:
    """The plan that costs least within limits."""
    return optimum(instance, limits, "cost", mask)


def optimum(instance: Instance, limits: Limits, objective: Term, mask: Mask | None = None) -> Plan | None:
    """The best plan of a single objective within limits, in a table of its own."""
    families = every_family(instance) if mask else recompute_families(recompute_modes(instance))
    return best(Table.of(instance, goal_of(instance, limits, objective), families), mask, Effort())


def every_family(instance: Instance) -> tuple[int, ...]:
    """The recompute families that cover the allowed modes, and those that cover a part of them."""
    modes = recompute_modes(instance)
    parts = [recompute_families(modes), *(recompute_families(frozenset({mode})) for mode in sorted(modes))]
    return tuple(sorted({family for part in parts for family in part}))


def only_pool(instance: Instance, index: int) -> Instance:
    """The instance with one of its pools."""
    return replace(instance, pools=(instance.pools[index],))


def why_none(table: Table, mask: Mask) -> tuple[str, str]:
    """Why no plan of a mask is within the limits: the limit, and how near the nearest comes to it."""
    instance, limits = table.instance, table.goal.limits
    free = replace(limits, deadline=None, budget=None)
    if limits.deadline is not None:
        plan = fastest(instance, replace(limits, deadline=None), mask)
        if plan is not None:
            days, cost = days_and_dollars(instance, plan)
            return (
                "deadline",
                f"the fastest takes {days:.1f} days of {limits.deadline / DAY:.1f} (and costs ${cost:,.0f})",
            )
    if limits.budget is not None:
        plan = cheapest(instance, replace(limits, budget=None), mask)
        if plan is not None:
            _, cost = days_and_dollars(instance, plan)
            return "budget", f"the cheapest costs ${cost:,.0f} of ${limits.budget:,.0f}"
    if limits.deadline is not None and limits.budget is not None:
        plan = fastest(instance, free, mask)
        if plan is not None:
            days, cost = days_and_dollars(instance, plan)
            return "deadline and budget", f"the fastest takes {days:.1f} days and costs ${cost:,.0f}"
    return memory_words(Table.of(instance, goal_of(instance, free), every_family(instance)), mask)


def memory_words(table: Table, mask: Mask) -> tuple[str, str]:
    """How much memory the leanest even split needs against what there is, or that nothing is valid."""
    instance = table.instance
    table.list_pipelines(np.flatnonzero(chosen(mask, table.book.keys)))
    rows = table.pipelines.rows
    index = np.flatnonzero(chosen(mask, rows))
    # Small micro-batches need least.
    order = np.argsort(rows.micro_batch[index], kind="stable")
    table.open(index[order][:PROBED], np.inf)
    groups = table.groups.rows
    groups = groups.take(np.flatnonzero(chosen(mask, groups)))
    candidates = expand(instance, groups.take(slice(PROBED)))
    if not len(groups) or not chosen(mask, candidates).any():
        return "search", "the batch, the layers and the pools leave no other value"
    plain = with_vpp(replace(groups, m_high=groups.m_low), np.ones(len(groups), dtype=np.int64))
    figures = evaluate(table.book, plain)
    need, room = (
        np.minimum(figures.plain_memory, figures.recomputed_memory),
        memory_limits(instance, plain.pool),
    )
    leanest = int(np.argmin(need / room))
    return (
        "memory",
        f"the leanest even split needs {need[leanest] / GIB:.1f} GiB of {room[leanest] / GIB:.1f} on each GPU",
    )


def chosen(mask: Mask, rows: LayerKeys) -> Array:
    """The rows of a mask: (rows,) bool."""
    return np.ones(len(rows), dtype=bool) & mask(rows)


def infeasible(instance: Instance) -> Conflict:
    """The minimal set of limits in conflict, and for each limit how far it would have to move alone."""
    limits = instance.limits
    moves: list[Relaxation] = []
    if limits.deadline is not None:
        plan = fastest(instance, replace(limits, deadline=None))
        if plan is not None:
            days = days_and_dollars(instance, plan)[0]
            moves.append(_move("deadline", days_words(limits.deadline / DAY), days_words(days)))
    if limits.budget is not None:
        plan = cheapest(instance, replace(limits, budget=None))
        if plan is not None:
            cost = days_and_dollars(instance, plan)[1]
            moves.append(_move("budget", dollar_words(limits.budget), dollar_words(cost)))
    moves += more_nodes(instance) + less_headroom(instance)
    return Conflict(limits=conflicting(instance), relaxations=tuple(moves))


def days_words(days: float) -> str:
    """Days rounded up, so that what is said is enough: 66.4 days, 0.3403 days."""
    return f"{rounded_up(days, 1 if days >= 10 else 4):g} days"


def dollar_words(cost: float) -> str:
    """Dollars rounded up: $2,130,400, $232.05."""
    return f"${rounded_up(cost, 0 if cost >= 10_000 else 2):,.{0 if cost >= 10_000 else 2}f}"


def rounded_up(value: float, digits: int) -> float:
    """The least decimal of so many digits that is not below the value."""
    return math.ceil(value * 10**digits * (1 - 1e-12)) / 10**digits


def _move(limit: str, old: str, new: str) -> Relaxation:
    return Relaxation(
        limit=limit, **{"from": old}, to=new, text=f"{limit} from {old} to {new} makes a plan possible"
    )


def conflicting(instance: Instance) -> tuple[str, ...]:
    """A smallest set of limits that cannot hold together: a core of the bounds by CP-SAT, or by trial."""
    limits = instance.limits
    named = [name for name in ("deadline", "budget") if getattr(limits, name) is not None]
    core = core_of_bounds(instance)
    if core:
        return core
    kept = list(named)
    if not possible(instance, replace(limits, deadline=None, budget=None)):
        return ("memory",)
    for name in named:
        rest = [other for other in kept if other != name]
        if not possible(instance, replace(limits, **{n: None for n in named if n not in rest})):
            kept = rest
    return tuple(kept)


def possible(instance: Instance, limits: Limits) -> bool:
    """Whether any plan is within limits."""
    return fastest(replace(instance, limits=limits), limits) is not None


def core_of_bounds(instance: Instance) -> tuple[str, ...]:
    """Limits that already the bounds of all pipelines exclude, named by CP-SAT's assumptions."""
    limits = instance.limits
    if limits.deadline is None and limits.budget is None:
        return ()
    free = replace(limits, deadline=None, budget=None)
    table = Table.of(instance, goal_of(instance, free), recompute_families(recompute_modes(instance)))
    if not len(table.book.keys):
        return ()
    least = table.least_of_keys()
    front = pareto(least.seconds, least.dollars)
    columns = {
        "seconds": np.floor(least.seconds[front]).astype(np.int64),
        "dollars": np.floor(least.dollars[front]).astype(np.int64),
    }
    return conflict(columns, limits_of(limits))


def pareto(first: Array, second: Array) -> Array:
    """Indices of points that no other point beats in both."""
    order = np.lexsort((second, first))
    best_second = np.minimum.accumulate(second[order])
    keep = np.concatenate([[True], second[order][1:] < best_second[:-1]])
    return order[keep]


def more_nodes(instance: Instance) -> list[Relaxation]:
    """For each pool the fewest nodes beyond its own with which a plan exists."""
    moves = []
    for index, pool in enumerate(instance.pools):
        low, high = pool.max_nodes, pool.max_nodes
        alone = only_pool(instance, index)
        for _ in range(4):
            high *= 2
            if _with_nodes(alone, high):
                moves.append(_nodes_move(alone, low, high))
                break
            low = high
    return moves


def _nodes_move(alone: Instance, low: int, high: int) -> Relaxation:
    pool = alone.pools[0]
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _with_nodes(alone, middle) else (middle, high)
    return _move("nodes", f"{pool.max_nodes} nodes of {pool.gpu.name}", f"{high} nodes")


def _with_nodes(alone: Instance, nodes: int) -> bool:
    pool = replace(alone.pools[0], max_nodes=nodes)
    return fastest(replace(alone, pools=(pool,)), alone.limits) is not None


def less_headroom(instance: Instance) -> list[Relaxation]:
    """The largest memory headroom with which a plan exists, if giving some up helps."""
    limits = instance.limits
    if limits.memory_headroom <= 0 or not possible(instance, replace(limits, memory_headroom=0.0)):
        return []
    low, high = 0.0, limits.memory_headroom
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (
            (middle, high) if possible(instance, replace(limits, memory_headroom=middle)) else (low, middle)
        )
    return [_move("memory_headroom", f"{limits.memory_headroom:.3f}", f"{low:.3f}")]
