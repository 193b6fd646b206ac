"""When nothing fits: which limits conflict, and how far each would have to move by itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.answer import GIB, days_and_dollars
from planner.choose import conflict
from planner.economics import DAY, run_dollars, run_seconds
from planner.evaluate import gpu_seconds_per_token
from planner.instance import Instance, Limits
from planner.search import Effort, Goal, Mask, Plan, Table, best, limits_of
from planner.solution import Conflict, Relaxation
from planner.space import Groups, expand, groups, layer_keys

Array = NDArray[Any]
WIDEN = 1.7
"""A guess that finds no plan is widened by this factor."""
GUESSES = 4
PROBED = 4096
"""Groups that are written down to see whether any of their candidates decides otherwise."""


def every_mode(instance: Instance) -> frozenset[str]:
    """Recompute modes that the problem allows."""
    allowed = instance.narrowing.allowed.get("recompute", ("none", "selective", "full"))
    return frozenset(str(mode) for mode in allowed)


def goal_of(instance: Instance, limits: Limits | None = None, objective: str | None = None) -> Goal:
    """The instance's goal, or with other limits or another single objective."""
    terms = instance.objective if objective is None else ((objective, 1.0),)
    return Goal(
        terms,  # type: ignore[arg-type]
        instance.lexicographic if objective is None else True,
        instance.limits if limits is None else limits,
        every_mode(instance),
    )


def fastest(
    instance: Instance, limits: Limits, mask: Mask | None = None, modes: frozenset[str] | None = None
) -> Plan | None:
    """The plan with the shortest run within the limits but for the deadline."""
    least = least_run(instance)
    if not np.isfinite(least) or (limits.budget is not None and least_cost(instance) > limits.budget):
        return None
    start = max(1.1 * least, limits.deadline or 0.0)
    asked = (replace(limits, deadline=guess) for guess in guesses(start))
    return first_plan(_best(instance, limit, "time", mask, modes) for limit in asked)


def cheapest(
    instance: Instance, limits: Limits, mask: Mask | None = None, modes: frozenset[str] | None = None
) -> Plan | None:
    """The plan that costs least within the limits but for the budget."""
    least = least_cost(instance)
    if not np.isfinite(least) or (limits.deadline is not None and least_run(instance) > limits.deadline):
        return None
    start = max(1.1 * least, limits.budget or 0.0)
    asked = (replace(limits, budget=guess) for guess in guesses(start))
    return first_plan(_best(instance, limit, "cost", mask, modes) for limit in asked)


def guesses(start: float) -> Iterator[float | None]:
    """Ever wider guesses, then none: what is found within a guess is the best of all."""
    yield from (start * WIDEN**step for step in range(GUESSES))
    yield None


def first_plan(plans: Iterable[Plan | None]) -> Plan | None:
    """The first plan there is."""
    return next((plan for plan in plans if plan is not None), None)


def _best(
    instance: Instance, limits: Limits, objective: str, mask: Mask | None, modes: frozenset[str] | None
) -> Plan | None:
    goal = goal_of(instance, limits, objective)
    goal = goal if modes is None else replace(goal, modes=modes)
    return best(Table.of(instance, limits), goal, mask, Effort())


def least_run(instance: Instance) -> float:
    """Seconds that no run of any pool can beat: layers alone on all GPUs of a pool."""
    times = [
        instance.tokens
        * gpu_seconds_per_token(instance, keys).min()
        / (pool.max_nodes * pool.fabric.gpus_per_node)
        for pool in instance.pools
        if len(keys := layer_keys(instance, pool))
    ]
    return min(times, default=np.inf)


def least_cost(instance: Instance) -> float:
    """Dollars that no run can beat: the cheapest GPU-seconds of layers alone."""
    costs = [
        instance.tokens * gpu_seconds_per_token(instance, keys).min() / 3600 * pool.price
        for pool in instance.pools
        if len(keys := layer_keys(instance, pool))
    ]
    return min(costs, default=np.inf)


def only_pool(instance: Instance, index: int) -> Instance:
    """The instance with one of its pools."""
    return replace(instance, pools=(instance.pools[index],))


def why_none(table: Table, goal: Goal, mask: Mask) -> tuple[str, str]:
    """Why no plan of a mask is within the limits: the limit, and how near the nearest comes to it."""
    instance, limits = table.instance, goal.limits
    allowed = pools_of(instance, mask)
    narrowed, shifted = allowed if allowed is not None else (instance, mask)
    if allowed is None and not any_valid(instance, mask):
        return "search", "the batch, the layers and the pools leave no other value"
    if limits.deadline is not None:
        plan = fastest(narrowed, limits, shifted, goal.modes)
        if plan is not None:
            days, cost = days_and_dollars(narrowed, plan)
            return (
                "deadline",
                f"the fastest takes {days:.1f} days of {limits.deadline / DAY:.1f} (and costs ${cost:,.0f})",
            )
    if limits.budget is not None:
        plan = cheapest(narrowed, limits, shifted, goal.modes)
        if plan is not None:
            _, cost = days_and_dollars(narrowed, plan)
            return "budget", f"the cheapest costs ${cost:,.0f} of ${limits.budget:,.0f}"
    if limits.deadline is not None and limits.budget is not None:
        plan = fastest(narrowed, replace(limits, budget=None), shifted, goal.modes)
        if plan is not None:
            days, cost = days_and_dollars(narrowed, plan)
            return "deadline and budget", f"the fastest takes {days:.1f} days and costs ${cost:,.0f}"
    return "memory", memory_words(table, goal, mask)


def any_valid(instance: Instance, mask: Mask) -> bool:
    """Whether any candidate of a mask is valid, whatever the limits."""
    for pool in instance.pools:
        keys = layer_keys(instance, pool)
        rows = groups(instance, keys, np.ones(len(keys), dtype=np.int64))
        if mask(rows).any() and mask(expand(instance, rows.take(np.flatnonzero(mask(rows))[:PROBED]))).any():
            return True
    return False


def pools_of(instance: Instance, mask: Mask) -> tuple[Instance, Mask | None] | None:
    """If a mask only selects pools: the instance with these pools, and no mask."""
    probe = Groups(*(np.arange(len(instance.pools)),), *(np.ones(len(instance.pools), dtype=np.int64),) * 10)
    kept = np.flatnonzero(mask(probe))
    if 0 < len(kept) < len(instance.pools):
        return replace(instance, pools=tuple(instance.pools[i] for i in kept)), None
    return None


def memory_words(table: Table, goal: Goal, mask: Callable[[Groups], Array] | None) -> str:
    """How much memory the leanest plain plan needs against what there is."""
    rows, of = table.rows, table.estimates
    index = np.arange(len(rows)) if mask is None else np.flatnonzero(mask(rows))
    if not len(index):
        return "none is valid"
    need = np.minimum(of.plain_memory[index], of.recomputed_memory[index])
    limit = np.array([p.memory_limit(goal.limits.memory_headroom) for p in table.instance.pools])[
        rows.pool[index]
    ]
    leanest = int(np.argmin(need / limit))
    return f"the leanest needs {need[leanest] / GIB:.1f} GiB of {limit[leanest] / GIB:.1f} on each GPU"


def infeasible(instance: Instance) -> Conflict:
    """The minimal set of limits in conflict, and for each limit how far it would have to move alone."""
    limits = instance.limits
    moves: list[Relaxation] = []
    if limits.deadline is not None and (plan := fastest(instance, limits)) is not None:
        days = days_and_dollars(instance, plan)[0]
        moves.append(_move("deadline", days_words(limits.deadline / DAY), days_words(days)))
    if limits.budget is not None and (plan := cheapest(instance, limits)) is not None:
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
    if limits.deadline is None:
        return fastest(instance, limits) is not None
    return _best(instance, limits, "time", None, None) is not None


def core_of_bounds(instance: Instance) -> tuple[str, ...]:
    """Limits that already the bounds of all groups exclude, named by CP-SAT's assumptions."""
    limits = instance.limits
    if limits.deadline is None and limits.budget is None:
        return ()
    table = Table.of(instance, Limits(memory_headroom=limits.memory_headroom))
    if not len(table.groups):
        return ()
    seconds = run_seconds(instance, table.groups, table.group_bound)
    cost = run_dollars(instance, table.groups, seconds)
    front = pareto(seconds, cost)
    columns = {
        "seconds": np.floor(seconds[front]).astype(np.int64),
        "dollars": np.floor(cost[front]).astype(np.int64),
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
    return _best(replace(alone, pools=(pool,)), alone.limits, "time", None, None) is not None


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
