"""Plans on two pools that belong on the frontier of days and dollars."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.economics import Economy
from planner.instance import Instance
from planner.limits import most_of
from planner.mixed.decided import Decided
from planner.mixed.floor import Totals
from planner.mixed.plan import MixedPlan
from planner.mixed.search import MixedSearch
from planner.search.goal import Effort, goal_of

Array = NDArray[Any]


@dataclass(slots=True)
class FrontOfPairs(MixedSearch):
    """Looks for every plan that no other beats in both days and dollars, nor any of some known ones."""

    known: tuple[tuple[float, float], ...] = ()
    """(seconds, dollars) of plans on single pools."""
    plans: list[MixedPlan] = field(default_factory=list[MixedPlan])

    def _achieved(self) -> tuple[Array, Array]:
        """Seconds in order, and the least dollars of plans that take so many or fewer."""
        points = np.array([*self.known, *((of.seconds, of.dollars) for of in self.plans)]).reshape(-1, 2)
        points = points[np.lexsort((points[:, 1], points[:, 0]))]
        return points[:, 0], np.minimum.accumulate(points[:, 1])

    def value(self, totals: Totals) -> Array:
        """Days times dollars."""
        return totals["time"] * totals["cost"]

    def keys(self, economy: Economy, step: Array) -> tuple[Array, ...]:
        """Days times dollars: what lies near the corner dominates most."""
        seconds = economy.seconds(step)
        return (self.value({"time": seconds, "cost": economy.total("cost", seconds)}),)

    def may_win(self, economy: Economy, step: Array, of: Decided) -> Array:
        """Whether no plan is as quick and as cheap."""
        time, least = self._achieved()
        seconds = economy.seconds(step)
        place = np.searchsorted(time, seconds * (1 + 1e-9), side="right")
        least = np.concatenate([[np.inf], least])[place]
        return least > economy.total("cost", seconds) * (1 + 1e-9)

    def longest(self, economy: Economy, of: Decided) -> Array:
        """A step beyond which a limit is broken, or some plan is as quick and as cheap."""
        most = economy.longest(*most_of(self.goal.limits).values())
        for seconds, dollars in zip(*self._achieved(), strict=True):
            either = np.maximum(economy.longest(seconds, np.inf), economy.longest(np.inf, dollars))
            most = np.minimum(most, either)
        return economy.later(most, 1e-9)

    def keep(self, plan: MixedPlan, economy: Economy, of: Decided) -> None:
        """The plan is on the frontier now, and those that it dominates are not."""
        self.plans = [of for of in self.plans if of.seconds < plan.seconds or of.dollars < plan.dollars] + [
            plan
        ]


def front_of_pairs(
    instance: Instance, known: tuple[tuple[float, float], ...], effort: Effort | None = None
) -> FrontOfPairs:
    """The search for all plans on two pools that neither each other nor the known plans dominate."""
    search = FrontOfPairs(instance, goal_of(instance), effort or Effort(), known=known)
    search.run()
    return search
