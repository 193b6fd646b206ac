"""The best plan among those on one pool each, and what it takes: `choosing`, where plans are of this kind."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from costmodel.units import DAY
from planner.account import Account, effect_of
from planner.answer import days_and_dollars
from planner.instance import Instance
from planner.limit_move import Change, value_unit
from planner.search import Effort, Plan, Table, goal_of
from planner.shortfall import why_none
from planner.space.recompute import recompute_families
from planner.variants import (
    best_plan,
    best_using,
    decided_otherwise,
    holds,
    objective_value,
    on_gpus,
    only,
    repriced,
)


@dataclass(frozen=True, slots=True)
class OnOnePool:
    """Plans on one pool."""

    until: float | None = None
    """Searches raise OutOfTime where they would go on beyond this (of time.monotonic)."""
    stays: str = "stays the best"
    wins: str = "wins"

    def best(self, instance: Instance, known: Plan | None = None) -> Plan | None:
        """The best plan."""
        return best_plan(instance, self._reach(instance, known), self.until)

    def using(self, instance: Instance, index: int, known: Plan | None = None) -> Plan | None:
        """The best plan on a pool."""
        return best_using(instance, index, self._reach(instance, known), self.until)

    def _reach(self, instance: Instance, known: Plan | None) -> float:
        return np.inf if known is None else objective_value(instance, known)

    def why_none(self, instance: Instance, index: int) -> str:
        """Why a pool has no plan: the limit, and how near the nearest comes."""
        alone = only(instance, index)
        table = Table.of(alone, goal_of(alone), recompute_families(alone), Effort(until=self.until).check)
        return why_none(table, lambda rows: True, until=self.until)[1]

    def here(self, instance: Instance, plan: Plan) -> Plan | None:
        """The plan with other links or memory."""
        found = repriced(instance, plan)
        return found if holds(instance, found) else None

    def value(self, instance: Instance, plan: Plan) -> float:
        """The first sort key."""
        return objective_value(instance, plan)

    def days(self, instance: Instance, plan: Plan) -> float:
        """How long the run takes."""
        return days_and_dollars(instance, plan)[0]

    def pools(self, plan: Plan) -> tuple[int, ...]:
        """Its only one."""
        return (plan.of("pool"),)

    def called(self, instance: Instance, plan: Plan) -> str:
        """Its GPU type."""
        return instance.pools[plan.of("pool")].gpu.name

    def machines(self, instance: Instance, plan: Plan) -> str:
        """512 GPUs."""
        return f"{plan.of('num_gpus')} GPUs"

    def change(self, instance: Instance, plan: Plan, there: Instance, other: Plan) -> Change:
        """From one plan to the other."""
        scale = DAY if value_unit(instance) == "days" else 1.0
        return Change(
            before=objective_value(instance, plan) / scale,
            after=objective_value(there, other) / scale,
            effect=effect_of(Account.within(instance, plan), Account.within(there, other)),
            decisions=decided_otherwise(instance, plan, there, other),
            machines=self.machines(there, other),
        )

    def on_same_gpus(self, instance: Instance, plan: Plan, there: Instance, other: Plan) -> float | None:
        """Days of the best plan on exactly as many GPUs of the type."""
        gpu, number = self.called(instance, plan), plan.of("num_gpus")
        if number == other.of("num_gpus") and self.called(there, other) == gpu:
            return self.days(there, other)
        exact = [pool for pool in on_gpus(there, number) if pool.gpu.name == gpu]
        if not exact:
            return None
        narrow = replace(there, pools=tuple(pool for pool in exact if pool.entry == exact[0].entry))
        found = best_plan(narrow, until=self.until)
        return None if found is None else self.days(narrow, found)


ONE_POOL = OnOnePool()
