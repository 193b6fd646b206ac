"""Plans of either kind, on one pool or on two, within limits that are loosened or let go (`planner.near`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from costmodel.units import GIB
from planner.instance import Term
from planner.loosening import loosened
from planner.mixed.known import Searches
from planner.mixed.plan import MixedPlan
from planner.mixed.questions import Either
from planner.mixed.reasons import told
from planner.near import Change, Near, fullest, near_plan
from planner.solution import Plan
from planner.variants import aimed


@dataclass(frozen=True, slots=True)
class OnBothKinds:
    """Finds plans of either kind."""

    searches: Searches

    def __call__(self, free: Change, shares: Mapping[str, float], term: Term | None) -> Near | None:
        there = free(self.searches.instance)
        changed = loosened(there, shares)
        best = self.searches.best(changed if term is None else aimed(changed, term))
        if best is None:
            return None
        plan = told(there, best)
        memory = fullest(there, used_of(best, plan))
        return near_plan(plan, memory, (plan.estimate.days, plan.estimate.dollars), term)


def used_of(best: Either, plan: Plan) -> list[tuple[int, float]]:
    """The pools of a plan, each with the bytes of its fullest GPU."""
    if isinstance(best, MixedPlan):
        sizes = [GIB * part.memory_gib for part in plan.decisions.parts]
        return list(zip(best.pools, sizes, strict=True))
    return [(best.of("pool"), best.memory)]
