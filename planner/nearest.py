"""When nothing fits: the plan that breaks deadline and budget by the least share, and by how much."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial

from costmodel.units import DAY
from planner.answer import reported, surely
from planner.instance import Instance, Limits, Term
from planner.search import Effort, Table, best, goal_of
from planner.search.goal import OutOfTime
from planner.solution import Nearest
from planner.solution import Plan as Told
from planner.space.recompute import recompute_families

HALVINGS = 12
"""Of the bracket around the least share: to 1/4096 of it."""
Within = Callable[[Limits, Term], "Near | None"]
"""Finds the best plan of one objective within limits."""
FARTHEST = 64.0
"""Limits this many times as loose are not near."""


@dataclass(frozen=True, slots=True)
class Near:
    """A plan with what deadline and budget have to allow for."""

    days: float
    dollars: float
    told: Callable[[], Told]
    """The plan as the solution file has it."""

    def share(self, limits: Limits) -> float:
        """By which share it is beyond deadline or budget, whichever it breaks more."""
        deadline = (limits.deadline or float("inf")) / DAY
        return max(self.days / deadline, self.dollars / (limits.budget or float("inf"))) - 1


def nearest_miss(instance: Instance, until: float | None = None) -> Nearest | None:
    """The plan for which deadline and budget have to give the least, by the same share; None if none fits.

    The share is the smallest t with a plan within (1 + t) times each limit: every t is a search of its own.
    Out of time (`until`, of time.monotonic) it is the nearest found so far, and called so; None if none was.
    """
    limits = instance.limits
    if limits.deadline is None and limits.budget is None:
        return None
    if instance.mixing is not None:
        from planner.mixed.conflict import near_of_both

        within = near_of_both(instance, until)
    else:
        within = near_of_single(instance, until)
    near, proved = nearest(limits, within)
    if near is None:
        return None
    over = {
        "days": max(0.0, near.days - (limits.deadline or float("inf")) / DAY),
        "dollars": max(0.0, near.dollars - (limits.budget or float("inf"))),
    }
    return Nearest(plan=near.told(), over=over, text=words(over, proved))


def nearest(limits: Limits, within: Within) -> tuple[Near | None, bool]:
    """The plan within the least share of limits, by bisection; `within` finds one within looser limits.

    And whether it is known to be that: not if the time was out first.
    """
    low, high, near, proved = 0.0, FARTHEST, None, False
    try:
        near = within(looser(limits, FARTHEST), aim(limits))
        high = high if near is None else min(high, near.share(limits))
        for _ in range(0 if near is None else HALVINGS):
            middle = (low + high) / 2
            found = within(looser(limits, middle), aim(limits))
            if found is None:
                low = middle
            else:
                near, high = found, min(middle, max(found.share(limits), low))
        proved = True
    except OutOfTime:
        pass
    return near, proved


def aim(limits: Limits) -> Term:
    """What the plan within looser limits is the best in."""
    return "time" if limits.deadline is not None else "cost"


def looser(limits: Limits, share: float) -> Limits:
    """Deadline and budget looser by a share."""
    return replace(
        limits,
        deadline=None if limits.deadline is None else limits.deadline * (1 + share),
        budget=None if limits.budget is None else limits.budget * (1 + share),
    )


def near_of_single(instance: Instance, until: float | None = None) -> Within:
    """How plans on one pool are found within limits."""
    free, effort = replace(instance.limits, deadline=None, budget=None), Effort(until=until)

    @cache
    def table() -> Table:
        return Table.of(instance, goal_of(instance, free), recompute_families(instance), effort.check)

    def within(limits: Limits, objective: Term) -> Near | None:
        plan = best(table().again(goal_of(instance, limits, objective)), effort=effort)
        effort.conclude()
        return None if plan is None else Near(*surely(instance, plan), partial(reported, instance, plan))

    return within


def words(over: dict[str, float], proved: bool = True) -> str:
    """How far the nearest plan, or the nearest that was found, is beyond the limits."""
    parts = []
    if over["days"] > 0:
        parts.append(f"{over['days']:.1f} days too long" if over["days"] >= 1 else hours_words(over["days"]))
    if over["dollars"] > 0:
        parts.append(f"${over['dollars']:,.0f} too dear")
    which = "The nearest plan" if proved else "The nearest plan that was found in time"
    return f"{which} is {' and '.join(parts)}."


def hours_words(days: float) -> str:
    """Of less than a day: 0.92 hours too long."""
    return f"{days * 24:.2g} hours too long"
