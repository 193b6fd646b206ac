"""The best plan on one pool, and with a time limit an early one to fall back on.

What layers cost in every recompute family may take seconds to price. The plainest families take a tenth of
that and hold plans that are near the best: with a time limit they are searched first, in half of the time at
most. What they find is the plan if nothing better comes in time, and spares the search of all families what
is worse. As recompute only adds to the time of layers, they also say what any plan takes at least.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner import economics
from planner.instance import Instance
from planner.relaxed import every_family
from planner.search import Effort, Plan, Table, best, goal_of
from planner.search.goal import OutOfTime, in_families
from planner.space.recompute import ALL, HIDDEN, HIDDEN_NONE, NONE, SOME, recompute_families
from planner.variants import objective_value

PLAINEST = (SOME, ALL, NONE, HIDDEN_NONE)
"""Families without a choice of modules."""
SHARE = 0.5
"""Of the time, for the plainest families at most."""


@dataclass(frozen=True, slots=True)
class Found:
    """The best plan that was found, with the table that its row belongs to."""

    table: Table
    plan: Plan | None
    whole: Table | None
    """The table of all families; None where the time was out before they were priced."""


def found_in_time(instance: Instance, effort: Effort) -> Found:
    """The best plan on one pool; out of time, the best that was found, with its gap in `effort`.

    Raises OutOfTime where there is none, and not even the costs of layers are known.
    """
    early = None if effort.until is None else early_plan(instance, effort)
    try:
        table = Table.of(instance, goal_of(instance), every_family(instance), effort.check)
    except OutOfTime:
        if early is None or early.plan is None:
            raise
        floor = float(early.table.least_of_keys().value.min())
        effort.gap = economics.gap(objective_value(instance, early.plan), floor)
        return Found(early.table, early.plan, None)
    reach = np.inf if early is None or early.plan is None else objective_value(instance, early.plan)
    plan = best(table, in_families(recompute_families(instance)), effort, reach)
    if plan is None and early is not None and effort.out_of_time:
        return Found(early.table, early.plan, table)
    return Found(table, plan, table)


def early_plan(instance: Instance, effort: Effort) -> Found | None:
    """The best plan of the plainest recompute families, or the best that a share of the time finds."""
    families = recompute_families(instance)
    plainest = tuple(family for family in families if family in PLAINEST)
    if plainest == families:
        return None
    part = effort.share(SHARE)
    try:
        table = Table.of(instance, goal_of(instance), plainest_of(families), part.check)
    except OutOfTime:
        return None
    return Found(table, best(table, in_families(plainest), part), None)


def plainest_of(families: tuple[int, ...]) -> tuple[int, ...]:
    """The plainest of some families, with those of which any of them takes the time at least."""
    hidden = {HIDDEN_NONE} if max(families, default=NONE) >= HIDDEN else set[int]()
    least = hidden | {SOME if SOME in families else NONE}
    return tuple(sorted(least | {family for family in families if family in PLAINEST}))
