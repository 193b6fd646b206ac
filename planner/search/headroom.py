"""Time and money against memory headroom: the search again and again, with ever less memory to use.

How much of a GPU a plan uses depends on where its layers lie, so that one candidate is many points: its
quickest assignment within each limit on memory. Headroom is told apart in steps of so many percentage points
of what a GPU lets processes use (`limits.memory_headroom`); what lies between counts as the lower one.

    F(u) = what no other plan beats in time and money among plans that use at most u % of each GPU
    frontier = what no other beats in time, money and u, of F(u0), F(u1), ...; the next u is one step less
               than the most that a plan of F(u) uses

A plan of the frontier is in F of its own u, and where all of F(u) use less than u the limits between change
nothing, so none is missed (epsilon-constraint method, Haimes et al. 1971). Bounds that hold with more memory
hold with less, and a plan that is the quickest of its candidate stays so as long as it fits: each search
starts from what the one before it has proved.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.instance import Instance
from planner.search.bounded import LOOSE, TIGHT
from planner.search.front import Front, Point, figures, search, undominated
from planner.search.goal import Effort, goal_of
from planner.search.rows import Plan, fits
from planner.search.table import Table
from planner.space.recompute import SELECTIVE, recompute_families

STEP = 5
"""Percentage points in which headroom is told apart, unless asked otherwise."""


def frontier_with_headroom(
    instance: Instance, effort: Effort | None = None, step: int = STEP
) -> tuple[list[Plan], Table]:
    """Plans that no other beats in time, money and headroom, quickest first, and the table of the search.

    Raises OutOfTime before there is a table.
    """
    effort = effort if effort is not None else Effort()
    goal, families = goal_of(instance, None, "time"), recompute_families(instance)
    table = Table.of(instance, goal, families, effort.check)
    found: dict[Point, Plan] = {}
    while True:
        target = Front(table, [])
        search(table, target, effort)
        plans = target.plans()
        found |= {(*figures(instance, plan), float(used(instance, plan, step))): plan for plan in plans}
        if effort.out_of_time or not plans:
            return [found[point] for point in undominated(list(found))], table
        most = max(used(instance, plan, step) for plan in plans) - step
        table = with_less_memory(table, most / 100)
        effort.progress(f"{len(found)} plans found, now those that use at most {most} % of a GPU's memory")


def used(instance: Instance, plan: Plan, step: int = STEP) -> int:
    """Percent of what its GPU lets processes use that a plan's fullest rank uses, rounded up to whole steps.

    Counted down from all of it, so that what is left is whole steps as well.
    """
    share = plan.memory / instance.pools[plan.of("pool")].gpu.memory.driver
    return 100 - step * int(np.floor(100 * (1 - share * (1 - 1e-12)) / step))


def with_less_memory(table: Table, share: float) -> Table:
    """The table of a search in which plans use at most such a share of a GPU's memory, less than before.

    Keeps every bound, and the plans that still fit. What else was exact is a bound from now on, to be
    tightened within the memory that is left.
    """
    limits = replace(table.instance.limits, memory_headroom=1 - share)
    instance = replace(table.instance, limits=limits)
    plans = {index: plan for index, plan in table.plans.items() if fits(instance, plan)}
    rows, exact = table.rows, np.zeros(len(table.rows), dtype=bool)
    exact[list(plans)] = True
    # Where recompute is uniform, the bound that knows it makes the one that does not needless.
    first = LOOSE if instance.per_stage_recompute else np.where(rows.rows.family >= SELECTIVE, LOOSE, TIGHT)
    return replace(
        table,
        book=replace(table.book, instance=instance),
        goal=replace(table.goal, limits=limits),
        groups=replace(table.groups, level=np.where(table.groups.expanded, table.groups.level, LOOSE)),
        rows=replace(
            rows,
            exact=exact,
            plain=np.where(exact, rows.plain, np.nan),
            level=np.where(exact, rows.level, np.minimum(rows.level, first)),
        ),
        plans=plans,
    )
