"""When nothing fits: which limits conflict, and how far each would have to move by itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.answer import GIB, surely
from planner.choose import conflict
from planner.economics import DAY
from planner.evaluate import evaluate
from planner.frameworks.table import ANY
from planner.instance import Instance, Limits, Term
from planner.keybook import with_vpp
from planner.looser import looser
from planner.other_frameworks import FRAMEWORK, others, removes_keys, with_framework, without_memory_limit
from planner.outlook import TB, Outlook
from planner.required import requirements_of, without_requirements
from planner.requirements import texts
from planner.running import Running
from planner.search import Effort, Goal, Mask, Plan, Table, best, goal_of
from planner.search.best import limits_of
from planner.search.rows import memory_limits
from planner.solution import Conflict, Relaxation
from planner.space.columns import LayerKeys
from planner.space.layouts import expand
from planner.space.values import recompute_families, recompute_modes
from planner.variants import only

Array = NDArray[Any]
LIMITS = ("deadline", "budget", "energy", "carbon")
"""Limits on a run that are fields of `Limits`."""
OTHERS = ("energy", "carbon", "storage")
PROBED = 4096
"""Pipelines whose even split is priced to see how much memory they need."""


Tables = Callable[[Instance, Goal, tuple[int, ...]], Table]
"""How a table is made: `Table.of`, or one that shares what others have found."""
Optimum = Callable[[Instance, Limits, Term, "Mask | None"], "Plan | None"]
"""How the best plan of a single objective is found: `optimum`, or one that remembers."""


def optimum(instance: Instance, limits: Limits, objective: Term, mask: Mask | None = None) -> Plan | None:
    """The best plan of a single objective within limits, in a table of its own."""
    families = every_family(instance) if mask else recompute_families(instance)
    return best(Table.of(instance, goal_of(instance, limits, objective), families), mask, Effort())


def fastest(
    instance: Instance, limits: Limits, mask: Mask | None = None, find: Optimum = optimum
) -> Plan | None:
    """The plan with the shortest run within limits."""
    return find(instance, limits, "time", mask)


def cheapest(
    instance: Instance, limits: Limits, mask: Mask | None = None, find: Optimum = optimum
) -> Plan | None:
    """The plan that costs least within limits."""
    return find(instance, limits, "cost", mask)


def every_family(instance: Instance) -> tuple[int, ...]:
    """The recompute families that cover the allowed modes, and those that cover a part of them."""
    modes = recompute_modes(instance)
    alone = (recompute_families(instance, frozenset({mode})) for mode in sorted(modes))
    parts = [recompute_families(instance), *alone]
    return tuple(sorted({family for part in parts for family in part}))


def only_pool(instance: Instance, index: int) -> Instance:
    """The instance with one of its pools, in one precision."""
    return replace(instance, pools=(instance.pools[index],))


def why_none(table: Table, mask: Mask) -> tuple[str, str]:
    """Why no plan of a mask is within the limits: the limit, and how near the nearest comes to it."""
    instance, limits = table.instance, table.goal.limits

    def find(_: Instance, limits: Limits, objective: Term, mask: Mask | None) -> Plan | None:
        return best(table.again(goal_of(instance, limits, objective)), mask, Effort())

    if limits.deadline is not None:
        plan = fastest(instance, replace(limits, deadline=None), mask, find)
        if plan is not None:
            days, cost = surely(instance, plan)
            return (
                "deadline",
                f"the fastest takes {days:.1f} days of {limits.deadline / DAY:.1f} (and costs ${cost:,.0f})",
            )
    if limits.budget is not None:
        plan = cheapest(instance, replace(limits, budget=None), mask, find)
        if plan is not None:
            _, cost = surely(instance, plan)
            return "budget", f"the cheapest costs ${cost:,.0f} of ${limits.budget:,.0f}"
    named = limited(instance, limits)
    for text in texts(requirements_of(instance)):
        free = without(replace(instance, limits=limits), [text])
        if (plan := fastest(free, free.limits, mask)) is not None:
            days, cost = surely(free, plan)
            return text, f"without {text} the fastest takes {days:.1f} days and costs ${cost:,.0f}"
    for name in OTHERS:
        if name in named and (words := other_words(instance, limits, name, mask)):
            return name, f"the least is {words[1]} of {words[0]}"
    free = without(replace(instance, limits=limits), named)
    if len(named) > 1:
        run_only = set(named) <= {"deadline", "budget"}
        plan = fastest(free, free.limits, mask, find if run_only else optimum)
        if plan is not None:
            days, cost = surely(free, plan)
            return " and ".join(named), f"the fastest takes {days:.1f} days and costs ${cost:,.0f}"
    return memory_words(Table.of(free, goal_of(free), every_family(free)), mask)


def limited(instance: Instance, limits: Limits) -> list[str]:
    """Names of the limits that are set, memory and nodes aside."""
    named = [name for name in LIMITS if getattr(limits, name) is not None]
    named += texts(requirements_of(instance))
    return named + ["storage"] * bool(np.isfinite(Running.of(instance).room).any())


def without(instance: Instance, names: Sequence[str]) -> Instance:
    """The instance without some of its limits."""
    if FRAMEWORK in names:
        instance = with_framework(instance, ANY)
    limits = replace(instance.limits, **{name: None for name in names if name in LIMITS})
    pools = instance.pools
    if "storage" in names:
        pools = tuple(replace(pool, site=pool.site and pool.site.with_room(np.inf)) for pool in pools)
    return without_requirements(replace(instance, limits=limits, pools=pools), names)


def other_words(
    instance: Instance, limits: Limits, name: str, mask: Mask | None = None, find: Optimum = optimum
) -> tuple[str, str] | None:
    """A limit on energy, carbon or storage, and what a plan without it takes; None if there is none."""
    free = without(replace(instance, limits=limits), [name])
    if name == "storage":
        return room_words(instance, free, mask, find)
    term: Term = "energy" if name == "energy" else "carbon"
    # The instance's own limits ask for energy; without this one they may not.
    plan = find(instance, free.limits, term, mask)
    if plan is None:
        return None
    ahead = Outlook.of(instance, plan)
    assert ahead.pool.site is not None
    of = ahead.energy(ahead.pool.site)
    if term == "energy":
        most, used = (limits.energy or 0.0) / 1e3, float(of.kwh) / 1e3
        return f"{most:,.4g} MWh", f"{enough(used)} MWh"
    return f"{limits.carbon:,.4g} t", f"{enough(float(of.tonnes))} t"


def room_words(
    instance: Instance, free: Instance, mask: Mask | None, find: Optimum = optimum
) -> tuple[str, str] | None:
    """The storage there is, and what the quickest or the cheapest plan without that limit keeps."""
    each = [ask(free, free.limits, mask, find) for ask in (fastest, cheapest)]
    found = [plan for plan in each if plan is not None]
    if not found:
        return None
    plan = min(found, key=lambda each: kept_by(free, each))
    pool = instance.pools[plan.of("pool")]
    assert pool.site is not None
    nodes = int(plan.row.num_gpus[0]) / pool.fabric.gpus_per_node
    room = float(np.asarray(pool.site.storage.resolved(nodes).capacity))
    return f"{room / TB:,.4g} TB", f"{enough(kept_by(free, plan) / TB)} TB"


def kept_by(instance: Instance, plan: Plan) -> float:
    """Bytes that a plan's run keeps."""
    ahead = Outlook.of(instance, plan)
    return 0.0 if ahead.pool.site is None else float(ahead.demand(ahead.pool.site).capacity)


def memory_words(table: Table, mask: Mask) -> tuple[str, str]:
    """How much memory the leanest even split needs against what there is, or that nothing is valid."""
    instance, table = table.instance, table.blank()
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
    least, there = need[leanest] / GIB, room[leanest] / GIB
    return "memory", f"the leanest even split needs {least:.1f} GiB of {there:.1f} on each GPU"


def chosen(mask: Mask, rows: LayerKeys) -> Array:
    """The rows of a mask: (rows,) bool."""
    return np.ones(len(rows), dtype=bool) & mask(rows)


def infeasible(instance: Instance) -> Conflict:
    """The minimal set of limits in conflict, and for each limit how far it would have to move alone."""
    moves = [*moved_limits(instance), *more_nodes(instance), *less_headroom(instance)]
    moves += [*less_sure(instance), *looser(instance, fastest)]
    limits = conflicting(instance)
    if FRAMEWORK in limits:
        moves += another_framework(instance)
    return Conflict(limits=limits, relaxations=tuple(moves))


def moved_limits(instance: Instance, find: Optimum = optimum) -> list[Relaxation]:
    """How far each limit on the run itself would have to move alone."""
    limits = instance.limits
    moves: list[Relaxation] = []
    if limits.deadline is not None:
        plan = fastest(instance, replace(limits, deadline=None), find=find)
        if plan is not None:
            days = surely(instance, plan)[0]
            moves.append(relaxation("deadline", days_words(limits.deadline / DAY), days_words(days)))
    if limits.budget is not None:
        plan = cheapest(instance, replace(limits, budget=None), find=find)
        if plan is not None:
            cost = surely(instance, plan)[1]
            moves.append(relaxation("budget", dollar_words(limits.budget), dollar_words(cost)))
    for name in limited(instance, limits):
        if name in OTHERS and (words := other_words(instance, limits, name, find=find)) is not None:
            moves.append(relaxation(name, *words))
    return moves


def days_words(days: float) -> str:
    """Days rounded up, so that what is said is enough: 66.4 days, 0.3403 days."""
    return f"{rounded_up(days, 1 if days >= 10 else 4):g} days"


def dollar_words(cost: float) -> str:
    """Dollars rounded up: $2,130,400, $232.05."""
    return f"${rounded_up(cost, 0 if cost >= 10_000 else 2):,.{0 if cost >= 10_000 else 2}f}"


def enough(value: float) -> str:
    """Rounded up to four digits: 1,235, 0.3142."""
    digits = 3 - math.floor(math.log10(value))
    return f"{rounded_up(value, digits):,.{max(digits, 0)}f}"


def rounded_up(value: float, digits: int) -> float:
    """The least decimal of so many digits that is not below the value."""
    return math.ceil(value * 10**digits * (1 - 1e-12)) / 10**digits


def relaxation(limit: str, old: str, new: str) -> Relaxation:
    """One limit moved, in the words of a solution."""
    return Relaxation(
        limit=limit, **{"from": old}, to=new, text=f"{limit} from {old} to {new} makes a plan possible"
    )


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
    if given and named and possible(free, free.limits, find):
        return smallest(instance, named, find)
    if instance.framework != ANY:
        free = without(instance, [FRAMEWORK])
        if possible(free, free.limits, find):
            return with_the_framework(instance, find)
        return conflicting(free, find, tables)
    if not possible(free, free.limits, find):
        return (obstacle(lambda change: possible(change(free), free.limits, find)),)
    return smallest(instance, named, find)


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
    kept = smallest(instance, limited(instance, instance.limits), find)
    roomy = without_memory_limit(instance)
    if not kept and possible(roomy, roomy.limits, find):
        return ("memory", FRAMEWORK)
    return (*kept, FRAMEWORK)


def smallest(instance: Instance, named: list[str], find: Optimum) -> tuple[str, ...]:
    """What is left of limits when each is dropped without which there is no plan either."""
    kept = list(named)
    for name in named:
        rest = [other for other in kept if other != name]
        free = without(instance, [each for each in named if each not in rest])
        if not possible(free, free.limits, find):
            kept = rest
    return tuple(kept)


def possible(instance: Instance, limits: Limits, find: Optimum = optimum) -> bool:
    """Whether any plan is within limits."""
    return fastest(replace(instance, limits=limits), limits, find=find) is not None


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
    return conflict(columns, limits_of(replace(limits, energy=None, carbon=None)))


def pareto(first: Array, second: Array) -> Array:
    """Indices of points that no other point beats in both."""
    order = np.lexsort((second, first))
    best_second = np.minimum.accumulate(second[order])
    keep = np.concatenate([[True], second[order][1:] < best_second[:-1]])
    return order[keep]


def more_nodes(instance: Instance) -> list[Relaxation]:
    """For each pool the fewest nodes beyond its own with which a plan exists."""
    moves = []
    for index in instance.described:
        low = high = instance.pools[index].max_nodes
        alone = only(instance, index)
        for _ in range(4):
            high *= 2
            if _with_nodes(alone, high):
                moves.append(_nodes_move(alone, low, high))
                break
            low = high
    return moves


def _nodes_move(alone: Instance, low: int, high: int) -> Relaxation:
    pool = alone.pools[0]

    def all_of(nodes: int) -> int:
        return nodes + (0 if pool.site is None else pool.site.spare_nodes(nodes))

    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _with_nodes(alone, middle) else (middle, high)
    there = pool.nodes or pool.max_nodes
    return relaxation("nodes", f"{there} nodes of {pool.gpu.name}", f"{max(all_of(high), there + 1)} nodes")


def _with_nodes(alone: Instance, nodes: int) -> bool:
    return fastest(only(alone, 0, max_nodes=nodes), alone.limits) is not None


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
    return [relaxation("memory_headroom", f"{limits.memory_headroom:.3f}", f"{low:.3f}")]


def another_framework(instance: Instance) -> list[Relaxation]:
    """The first other framework with which a plan exists."""
    for name in others(instance):
        other = with_framework(instance, name)
        if possible(other, other.limits):
            return [relaxation(FRAMEWORK, instance.framework, name)]
    return []


def less_sure(instance: Instance) -> list[Relaxation]:
    """The highest confidence with which a plan exists, if being less sure helps."""
    limits = instance.limits
    if limits.chance is None or not possible(instance, replace(limits, confidence=None)):
        return []
    low, high = 0.5, limits.chance
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (
            (middle, high) if possible(instance, replace(limits, confidence=middle)) else (low, middle)
        )
    return [relaxation("confidence", f"{limits.chance:.1%}", f"{low:.1%}")]
