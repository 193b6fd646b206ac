"""Plans of either kind of a problem and its variants: searches of one share what those of others found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from planner.instance import Instance
from planner.mixed.best import any_of_pairs
from planner.mixed.either import OnEither
from planner.mixed.questions import Either
from planner.mixed.reasons import told
from planner.mixed.search import Memo, memo_of
from planner.relaxed import optimum
from planner.search import Effort
from planner.search.goal import OutOfTime
from planner.search.physics import physics_of
from planner.solution import Plan as Told
from planner.variants import aimed


@dataclass(frozen=True, slots=True)
class Known:
    """What searches of a problem and of its variants have found."""

    best: list[tuple[Instance, Either | None]] = field(default_factory=list[Any])
    """The best plan of each variant of which that is proved."""
    plans: list[tuple[Instance, Either]] = field(default_factory=list[Any])
    """All plans, each with the variant that it was found for."""
    memo: Memo = field(default_factory=dict[Any, Any])
    """Stage assignments of plans on two pools."""


@dataclass(frozen=True, slots=True)
class Searches:
    """Looks for plans of variants of a problem: with limits moved or let go, keys left out, more nodes."""

    instance: Instance
    until: float | None
    """Searches raise OutOfTime where they would go on beyond this (of time.monotonic)."""
    known: Known

    @classmethod
    def of(cls, instance: Instance, until: float | None = None) -> Searches:
        """Those of an instance, with what was found before, whatever was asked then."""
        return cls(instance, until, instance.derived.setdefault("known_of_both", Known()))

    def best(self, instance: Instance) -> Either | None:
        """The best plan of a variant."""
        for other, plan in self.known.best:
            if other == instance:
                return plan
        try:
            best = self._on().best(instance, self._begin(instance))
        except OutOfTime as out:
            self._keep(instance, out.found)
            raise
        self.known.best.append((instance, best))
        self._keep(instance, best)
        return best

    def told(self, instance: Instance) -> Told | None:
        """The same as the solution file has it. Out of time, so is what OutOfTime has found."""
        try:
            best = self.best(instance)
        except OutOfTime as out:
            raise OutOfTime(None if out.found is None else told(instance, out.found)) from out
        return None if best is None else told(instance, best)

    def any(self, instance: Instance) -> bool:
        """Whether a variant has a plan on one pool or on two."""
        if next(self._within(instance), None) is not None:
            return True
        alone = optimum(instance, instance.limits, "time", until=self.until)
        self._keep(instance, alone)
        return alone is not None or self.any_of_pairs(instance)

    def any_of_pairs(self, instance: Instance) -> bool:
        """Whether it has one on two."""
        memo = memo_of(self.instance, instance, self.known.memo)
        found = any_of_pairs(aimed(instance, "time"), Effort(until=self.until), memo)
        self._keep(instance, found)
        return found is not None

    def _on(self) -> OnEither:
        return OnEither(self.instance, self.known.memo, self.until)

    def _keep(self, instance: Instance, plan: Either | None) -> None:
        if plan is not None:
            self.known.plans.append((instance, plan))

    def _begin(self, instance: Instance) -> Either | None:
        """The best plan that is known of a variant: what is no better need not be looked at."""
        of = self._on()
        return min(self._within(instance), key=lambda plan: of.value(instance, plan), default=None)

    def _within(self, instance: Instance) -> Iterator[Either]:
        """Known plans that keep to the limits of a variant, of the same layouts on the same GPUs."""
        if instance.limits.chance is not None:
            # Of a share of runs: more than what a plan is predicted to take.
            return
        physics, of = physics_of(instance), self._on()
        for other, plan in self.known.plans:
            if physics_of(other) == physics and of.holds(instance, plan):
                yield plan
