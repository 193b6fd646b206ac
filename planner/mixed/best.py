"""The best plan on two pools, or the best one for each of several questions at once.

Questions share goal and problem and differ in what they let through (a mask). Asked together they share
every bound and every stage assignment that is solved, as those of plans on one pool (`search.best`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner import economics
from planner.economics import Economy
from planner.instance import Instance, Term
from planner.limits import most_of
from planner.mixed.arrangement import mixed_families
from planner.mixed.decided import Decided, MixedMask
from planner.mixed.floor import Totals
from planner.mixed.plan import MixedPlan
from planner.mixed.search import Memo, MixedSearch
from planner.mixed.stages import StageRule
from planner.mixing import Form
from planner.search.goal import Effort, goal_of

Array = NDArray[Any]
Keys = tuple[Array, ...]


@dataclass(slots=True)
class Asked:
    """The best plan of what a mask lets through, as far as it is known."""

    mask: MixedMask | None = None
    achieved: Keys | None = None
    """Its sort keys; before there is a plan, those that it has to beat."""
    plan: MixedPlan | None = None
    split: int | None = None
    """Asks for another number of layers on the first pool's ranks than this."""

    def rule(self, plan: MixedPlan) -> StageRule | None:
        """What it asks of the stages of a plan's layout."""
        return None if self.split is None else StageRule(plan.split, self.split)

    def admits(self, of: Decided) -> Array:
        """Which rows count."""
        every = np.ones(len(of), dtype=bool)
        return every if self.mask is None else every & self.mask(of)


def anything() -> list[Asked]:
    """The one question that everything answers."""
    return [Asked()]


@dataclass(slots=True)
class BestOfPairs(MixedSearch):
    """Looks for the best plan of each question; there is one unless others are given."""

    asked: list[Asked] = field(default_factory=anything)
    among: tuple[int, ...] | None = None
    """Recompute families to look at; those of the problem unless given."""
    any_will_do: bool = False
    """Whether it is enough to know that there is a plan."""

    @property
    def best(self) -> MixedPlan | None:
        """The answer to the first question."""
        return self.asked[0].plan

    @property
    def achieved(self) -> Keys | None:
        """Its sort keys."""
        return None if self.asked[0].plan is None else self.asked[0].achieved

    def beyond(self, value: float) -> bool:
        if self.any_will_do and self.best is not None:
            return True
        known = [each.achieved for each in self.asked]
        return all(keys is not None and value > float(keys[0][0]) * (1 + 1e-9) for keys in known)

    def families(self) -> tuple[int, ...]:
        return mixed_families(self.instance) if self.among is None else self.among

    def value(self, totals: Totals) -> Array:
        """That of the goal."""
        return self.goal.key_bound(totals)

    def keys(self, economy: Economy, step: Array) -> Keys:
        """Those of the goal."""
        return self.goal.keys(economy, step)

    def may_win(self, economy: Economy, step: Array, of: Decided) -> Array:
        """Whether rows do not come after the best plan of a question that lets them through."""
        keys, found = self.keys(economy, step), np.zeros(len(step), dtype=bool)
        if self.any_will_do and self.best is not None:
            return found
        for each in self.asked:
            known = each.achieved
            open_ones = ~found if known is None else ~found & economics.no_worse(keys, known)
            if open_ones.any():
                found |= open_ones & each.admits(of)
        return found

    def longest(self, economy: Economy, of: Decided) -> Array:
        """A step beyond which a limit is broken, or the best plan of each question is better."""
        most: dict[Term, Any] = {**most_of(self.goal.limits)}
        first = self.goal.objective[0][0]
        flat = first == "cost" and any(pool.committed for pool in self.instance.pools)
        if self.goal.lexicographic and not flat:
            achieved = np.full(len(of), -np.inf)
            for each in self.asked:
                value = np.inf if each.achieved is None else float(each.achieved[0][0])
                achieved = np.where(each.admits(of), np.maximum(achieved, value), achieved)
            # A row that no question lets through is bounded by the limits alone.
            most[first] = np.minimum(most[first], np.where(np.isneginf(achieved), np.inf, achieved))
        return economy.later(economy.longest(*most.values()), 1e-9)

    def largest(self, of: Decided) -> Array:
        """For each question the largest number that it lets through."""
        if len(of) < 2 or all(each.mask is None for each in self.asked):
            return np.arange(len(of))[-1:]
        last = {int(some[-1]) for each in self.asked if len(some := np.flatnonzero(each.admits(of)))}
        return np.array(sorted(last), dtype=np.int64)

    def keep(self, plan: MixedPlan, economy: Economy, of: Decided) -> None:
        """The plan is the best one now of each question that it answers better than the one before."""
        keys = self.keys(economy, np.array([plan.step]))
        for each in self.asked:
            rule = each.rule(plan)
            if rule is not None and not rule.holds(plan.stages):
                continue
            if each.admits(of)[0] and (each.achieved is None or economics.no_worse(keys, each.achieved)[0]):
                each.plan, each.achieved = plan, keys

    def rules(self, of: Decided, plan: MixedPlan) -> list[StageRule]:
        """Of the questions that ask for other stages than those."""
        asked = [each.rule(plan) for each in self.asked if each.admits(of)[0]]
        return [rule for rule in dict.fromkeys(asked) if rule is not None and not rule.holds(plan.stages)]

    def gap(self, chosen: Keys | None) -> float:
        """How far a plan with such sort keys may be from the best on two pools; 1 if there is none yet."""
        if self.complete:
            return 0.0
        return 1.0 if chosen is None else economics.gap(float(chosen[0][0]), self.least)


def best_of_pairs(
    instance: Instance, effort: Effort | None = None, forms: tuple[Form, ...] | None = None
) -> BestOfPairs:
    """The search for the best plan on two pools; out of time, it holds the best that was found."""
    search = BestOfPairs(instance, goal_of(instance), effort or Effort())
    search.run(forms)
    return search


def any_of_pairs(instance: Instance, effort: Effort, memo: Memo | None = None) -> MixedPlan | None:
    """Any plan on two pools, if there is one. Raises OutOfTime where neither is known in time."""
    search = BestOfPairs(
        instance, goal_of(instance), effort, memo={} if memo is None else memo, any_will_do=True
    )
    search.run()
    if search.best is None:
        effort.conclude()
    return search.best


def best_of_each(
    instance: Instance,
    asked: Sequence[Asked],
    effort: Effort | None = None,
    memo: Memo | None = None,
    families: tuple[int, ...] | None = None,
) -> BestOfPairs:
    """The search for the best plan of each of several questions."""
    search = BestOfPairs(
        instance,
        goal_of(instance),
        effort or Effort(),
        memo={} if memo is None else memo,
        asked=list(asked),
        among=families,
    )
    search.run()
    return search
