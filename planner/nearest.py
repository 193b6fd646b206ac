"""When nothing fits: the plan that breaks deadline and budget by the least share, and by how much."""

from __future__ import annotations

from dataclasses import replace

from costmodel.units import DAY
from planner.answer import reported, surely
from planner.instance import Instance, Limits
from planner.search import Effort, Plan, Table, best, goal_of
from planner.solution import Nearest
from planner.space.recompute import recompute_families

HALVINGS = 12
"""Of the bracket around the least share: to 1/4096 of it."""
FARTHEST = 64.0
"""Limits this many times as loose are not near."""


def nearest_miss(instance: Instance) -> Nearest | None:
    """The plan for which deadline and budget have to give the least, by the same share; None if none fits.

    The share is the smallest t with a plan within (1 + t) times each limit: every t is a search of its own.
    """
    limits = instance.limits
    if limits.deadline is None and limits.budget is None:
        return None
    free = replace(limits, deadline=None, budget=None)
    table = Table.of(instance, goal_of(instance, free), recompute_families(instance))
    low, high, plan = 0.0, FARTHEST, _within(table, limits, FARTHEST)
    if plan is None:
        return None
    high = min(high, share_of(instance, plan))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        found = _within(table, limits, middle)
        if found is None:
            low = middle
        else:
            plan, high = found, min(middle, max(share_of(instance, found), low))
    days, cost = surely(instance, plan)
    over = {
        "days": max(0.0, days - (limits.deadline or float("inf")) / DAY),
        "dollars": max(0.0, cost - (limits.budget or float("inf"))),
    }
    return Nearest(plan=reported(instance, plan), over=over, text=words(over))


def _within(table: Table, limits: Limits, share: float) -> Plan | None:
    """A plan within limits that are so much looser."""
    looser = replace(
        limits,
        deadline=None if limits.deadline is None else limits.deadline * (1 + share),
        budget=None if limits.budget is None else limits.budget * (1 + share),
    )
    objective = "time" if limits.deadline is not None else "cost"
    return best(table.again(goal_of(table.instance, looser, objective)), effort=Effort())


def share_of(instance: Instance, plan: Plan) -> float:
    """By which share a plan is beyond deadline or budget, whichever it breaks more."""
    days, cost = surely(instance, plan)
    deadline = (instance.limits.deadline or float("inf")) / DAY
    return max(days / deadline, cost / (instance.limits.budget or float("inf"))) - 1


def words(over: dict[str, float]) -> str:
    """How far the nearest plan is beyond the limits."""
    parts = []
    if over["days"] > 0:
        parts.append(f"{over['days']:.1f} days too long")
    if over["dollars"] > 0:
        parts.append(f"${over['dollars']:,.0f} too dear")
    return "The nearest plan is " + " and ".join(parts) + "."
