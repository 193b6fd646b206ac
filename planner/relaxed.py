"""The problem without some of its limits: its best plans, and what they take of such a limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from planner.frameworks.table import ANY
from planner.instance import Instance, Limits, Term
from planner.limit_words import limit_words
from planner.other_frameworks import FRAMEWORK, with_framework
from planner.outlook import Outlook
from planner.required import requirements_of, without_requirements
from planner.requirements import texts
from planner.running import Running
from planner.search import Effort, Goal, Mask, Plan, Table, best, goal_of
from planner.search.physics import counts_of, physics_of
from planner.space.recompute import recompute_families, recompute_modes

TERMS: dict[str, Term] = {"deadline": "time", "budget": "cost", "energy": "energy", "carbon": "carbon"}
"""Limits on a run that are fields of `Limits`, and the term of the objective that each is on."""
OTHERS = ("energy", "carbon", "storage")
Optimum = Callable[[Instance, Limits, Term, "Mask | None"], "Plan | None"]
"""How the best plan of a single objective is found: `optimum`, by some time, or one that remembers."""


Tables = Callable[[Instance, Goal, tuple[int, ...]], Table]
"""How a table is made: `Table.of`, by some time, or one that shares what others have found."""


def tables_until(until: float | None) -> Tables:
    """`Table.of` that raises OutOfTime where it would go on beyond some time (of time.monotonic)."""
    return partial(Table.of, check=Effort(until=until).check)


def optimum(
    instance: Instance,
    limits: Limits,
    objective: Term,
    mask: Mask | None = None,
    until: float | None = None,
) -> Plan | None:
    """The best plan of a single objective within limits, in a table of its own.

    Raises OutOfTime where that is not proved by `until` (of time.monotonic).
    """
    families, effort = every_family(instance) if mask else recompute_families(instance), Effort(until=until)
    table = Table.of(instance, goal_of(instance, limits, objective), families, effort.check)
    plan = best(table, mask, effort)
    effort.conclude(plan)
    return plan


@dataclass(slots=True)
class LastTable:
    """The last table: searches that differ in limits on the run share what layers cost and what has room."""

    until: float | None = None
    table: Table | None = None

    def of(self, instance: Instance, goal: Goal, effort: Effort) -> Table:
        """A goal's table, of the usual recompute families."""
        old = self.table
        if old is not None and same_space(old.instance, instance):
            self.table = old.again(goal, instance)
        else:
            self.table = Table.of(instance, goal, recompute_families(instance), effort.check)
        return self.table

    def optimum(
        self, instance: Instance, limits: Limits, objective: Term, mask: Mask | None = None
    ) -> Plan | None:
        """`optimum`, which makes a table of its own; without a mask in one that others have begun."""
        if mask is not None:
            return optimum(instance, limits, objective, mask, self.until)
        # As there the instance keeps its own limits: they say that runs are metered.
        effort = Effort(until=self.until)
        plan = best(self.of(instance, goal_of(instance, limits, objective), effort), effort=effort)
        effort.conclude(plan)
        return plan


def same_space(one: Instance, other: Instance) -> bool:
    """Whether two instances differ in limits on the run alone."""
    return counts_of(one) == counts_of(other) and physics_of(one) == physics_of(other)


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


def possible(instance: Instance, limits: Limits, find: Optimum = optimum) -> bool:
    """Whether any plan is within limits."""
    return fastest(replace(instance, limits=limits), limits, find=find) is not None


def every_family(instance: Instance) -> tuple[int, ...]:
    """The recompute families that cover the allowed modes, and those that cover a part of them."""
    modes = recompute_modes(instance)
    alone = (recompute_families(instance, frozenset({mode})) for mode in sorted(modes))
    parts = [recompute_families(instance), *alone]
    return tuple(sorted({family for part in parts for family in part}))


def limited(instance: Instance, limits: Limits) -> list[str]:
    """Names of the limits that are set, memory and nodes aside."""
    named: list[str] = [name for name in TERMS if getattr(limits, name) is not None]
    named += texts(requirements_of(instance))
    return named + ["storage"] * bool(np.isfinite(Running.of(instance).room).any())


def without(instance: Instance, names: Sequence[str]) -> Instance:
    """The instance without some of its limits."""
    if FRAMEWORK in names:
        instance = with_framework(instance, ANY)
    limits = replace(instance.limits, **{name: None for name in names if name in TERMS})
    pools = instance.pools
    if "storage" in names:
        pools = tuple(replace(pool, site=pool.site and pool.site.with_room(np.inf)) for pool in pools)
    return without_requirements(replace(instance, limits=limits, pools=pools), names)


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


def other_words(
    instance: Instance, limits: Limits, name: str, mask: Mask | None = None, find: Optimum = optimum
) -> tuple[str, str] | None:
    """A limit on energy, carbon or storage, and what a plan without it takes; None if there is none."""
    free = without(replace(instance, limits=limits), [name])
    if name == "storage":
        return room_words(instance, free, mask, find)
    # The instance's own limits ask for energy; without this one they may not.
    plan = find(instance, free.limits, TERMS[name], mask)
    if plan is None:
        return None
    ahead = Outlook.of(instance, plan)
    assert ahead.pool.site is not None
    of = ahead.energy(ahead.pool.site)
    return limit_words(name, getattr(limits, name), float(of.kwh if name == "energy" else of.tonnes))


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
    return limit_words("storage", room, kept_by(free, plan))


def kept_by(instance: Instance, plan: Plan) -> float:
    """Bytes that a plan's run keeps."""
    ahead = Outlook.of(instance, plan)
    return 0.0 if ahead.pool.site is None else float(ahead.demand(ahead.pool.site).capacity)
