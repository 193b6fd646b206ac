"""Plans of either kind, on one pool or on two, within limits that are loosened or let go (`planner.near`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic

from planner.instance import Instance, Term
from planner.loosening import loosened
from planner.mixed.either import OnEither
from planner.mixed.reasons import told
from planner.near import Change, Near, Stopped, near_plan
from planner.variants import aimed


@dataclass(frozen=True, slots=True)
class OnBothKinds:
    """Finds plans of either kind."""

    instance: Instance
    until: float | None = None

    def __call__(self, free: Change, shares: Mapping[str, float], term: Term | None) -> Near | None:
        if self.until is not None and monotonic() > self.until:
            raise Stopped
        there = free(self.instance)
        changed = loosened(there, shares)
        best = OnEither(changed, {}).best(changed if term is None else aimed(changed, term))
        if best is None:
            return None
        plan = told(there, best)
        return near_plan(there, plan, (plan.estimate.days, plan.estimate.dollars), term)
