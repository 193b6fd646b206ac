"""The best plan on two pools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner import economics
from planner.economics import Economy
from planner.instance import Instance
from planner.mixed.plan import MixedPlan
from planner.mixed.search import MixedSearch
from planner.mixing import Form
from planner.search.best import most_of
from planner.search.goal import Effort, goal_of

Array = NDArray[Any]


@dataclass(slots=True)
class BestOfPairs(MixedSearch):
    """Looks for the best plan."""

    best: MixedPlan | None = None
    achieved: tuple[Array, ...] | None = None
    """Its sort keys."""

    def keys(self, economy: Economy, step: Array) -> tuple[Array, ...]:
        """Those of the goal."""
        return self.goal.keys(economy, step)

    def may_win(self, economy: Economy, step: Array) -> Array:
        """Whether rows do not come after the best plan."""
        if self.achieved is None:
            return np.ones(len(step), dtype=bool)
        return economics.no_worse(self.keys(economy, step), self.achieved)

    def longest(self, economy: Economy) -> float:
        """A step beyond which a limit is broken, or the best plan is better."""
        most, first = most_of(self.goal.limits), self.goal.objective[0][0]
        flat = first == "cost" and any(pool.committed for pool in self.instance.pools)
        if self.goal.lexicographic and not flat and self.achieved is not None:
            most[first] = min(most[first], float(self.achieved[0][0]))
        return float(economy.later(economy.longest(*most.values()), 1e-9)[0])

    def keep(self, plan: MixedPlan, economy: Economy) -> None:
        """The plan is the best one now."""
        self.best, self.achieved = plan, self.keys(economy, np.array([plan.step]))

    @property
    def gap(self) -> float:
        """How far the best plan may be from the best there is; 1 if none was found in time."""
        if self.complete or self.achieved is None:
            return 0.0 if self.complete else 1.0
        return economics.gap(float(self.achieved[0][0]), self.least)


def best_of_pairs(
    instance: Instance, effort: Effort | None = None, forms: tuple[Form, ...] | None = None
) -> BestOfPairs:
    """The search for the best plan on two pools; out of time, it holds the best that was found."""
    search = BestOfPairs(instance, goal_of(instance), effort or Effort())
    search.run(forms)
    return search
