"""When nothing fits: the plan that breaks the limits by the least share, and by how much it breaks each.

All limits on numbers are loosened by the same share (`planner.loosening`). The least one with which there is
a plan is found by bisection, a search each. The limit that needs it is then kept there and the others are
tightened again, down to where the next one needs a share, and so on: no plan breaks the limit that is broken
most by less, and of those that break it as little none breaks the next one by less. As little is up to a
twentieth more (`AS_GOOD`): nobody gives up twice the time for the last dollar of a budget that is far away.
With the others where they are then, the first limit is tightened once more.

Where loosening all of them is not enough, the memory of GPUs is loosened first, as little as can be: what
does not fit cannot be run at all. Where that is not enough either, what has no number is let go
(`planner.let_go`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import chain
from math import inf, sqrt

from planner.instance import Instance, Term
from planner.let_go import LetGo, let_go
from planner.loosening import NumberLimit
from planner.near import Find, Near, near_of
from planner.nearest_words import nearest_words
from planner.relaxed import TERMS
from planner.search.goal import OutOfTime
from planner.solution import Nearest

PRECISION = 2e-3
"""Of the least share."""
AS_GOOD = 0.05
"""Shares that differ by less than this part of them are as good as each other, if that spares others."""
ROUNDING = 1e-6
"""Share beyond what a plan takes with which it is surely within a limit: bytes are rounded in one."""


def nearest_miss(instance: Instance, until: float | None = None) -> Nearest | None:
    """The plan that breaks the limits by the least share; None if there is none whatever is let go.

    `until`: time (of time.monotonic) at which to stop with the nearest one that was found.
    """
    return nearest_found(instance, near_of(instance, until))


def nearest_found(instance: Instance, find: Find) -> Nearest | None:
    """The same of plans that are found in some way."""
    try:
        free = let_go(instance, find)
    except OutOfTime:
        return None
    if free is None:
        return None
    search = Loosened.of(free, find)
    near = search.least()
    broken = [of for of in chain(*free.steps) if near.share(of) > ROUNDING]
    return Nearest(
        plan=near.plan,
        phase=near.phase,
        over={of.name: near.over(of) for of in broken},
        share={of.name: near.share(of) for of in broken},
        let_go=free.names,
        proved=search.proved,
        text=nearest_words(near, broken, free.names, search.proved),
    )


@dataclass(slots=True)
class Loosened:
    """The search for the least shares."""

    free: LetGo
    find: Find
    near: Near
    """The nearest plan so far."""
    later: dict[str, float] = field(default_factory=dict[str, float])
    """Shares of limits that are loosened in a later step: they do not hold yet."""
    proved: bool = True
    """False once time is out."""

    @classmethod
    def of(cls, free: LetGo, find: Find) -> Loosened:
        """From the plan that was found without the limits."""
        return cls(free, find, free.near)

    def least(self) -> Near:
        """The plan that breaks the most broken limit least, of those the next one least, and so on."""
        kept: dict[str, float] = {}
        try:
            for step, limits in enumerate(self.free.steps):
                self.later = {of.name: inf for of in chain(*self.free.steps[step + 1 :])}
                self._settle(list(limits), kept)
                kept |= self._shares(limits)
            return self._within({}, kept, None) or self.near
        except OutOfTime:
            self.proved = False
            return self.near

    def _settle(self, left: list[NumberLimit], kept: dict[str, float]) -> None:
        """Finds the plan that breaks some limits least, the worst first, beside those that are kept."""
        least = self._loosen(left, kept, 0.0)
        if least <= ROUNDING:
            return
        worst = max(left, key=self.near.share)
        rest = [of for of in left if of is not worst]
        if all(self.near.share(of) <= ROUNDING for of in rest):
            return
        self._settle(rest, kept | {worst.name: least * (1 + AS_GOOD)})
        self._loosen([worst], kept | self._shares(rest), least / (1 + 2 * PRECISION))

    def _loosen(self, left: list[NumberLimit], kept: dict[str, float], low: float) -> float:
        """The least share with which there is a plan, which is then the nearest one; none below `low` is."""
        if kept:
            # What it was the best in was asked beside other limits.
            self.near = replace(self.near, aimed=None)
        high, probes = self._worst(self.near, left), self._likely(left, kept, low)
        while high > ROUNDING and high - low > PRECISION * high:
            term = TERMS.get(max(left, key=self.near.share).name)
            # No plan has less of what it breaks most, though the others are looser than they need to be.
            if term is not None and self.near.aimed == term and not probes:
                break
            share = probes.pop(0) if probes else sqrt((1 + low) * (1 + high)) - 1
            found = self._within(dict.fromkeys((of.name for of in left), share), kept, term or "time")
            if found is None:
                low = max(low, share)
            else:
                self.near, high, probes = found, min(high, self._worst(found, left)), []
        return high

    def _likely(self, left: list[NumberLimit], kept: dict[str, float], low: float) -> list[float]:
        """Shares to look at first: beside what is kept there is often no other plan, or one within all."""
        high = self._worst(self.near, left)
        return [low, high * (1 - 0.9 * PRECISION)] if kept and low == 0.0 else []

    def _worst(self, near: Near, limits: list[NumberLimit]) -> float:
        return max(map(near.share, limits), default=0.0)

    def _shares(self, limits: list[NumberLimit]) -> dict[str, float]:
        """What the nearest plan needs of some limits."""
        return {of.name: self.near.share(of) for of in limits}

    def _within(self, shares: dict[str, float], kept: dict[str, float], term: Term | None) -> Near | None:
        """The best plan with limits looser by shares, beside those that are kept at theirs."""
        surely = {name: (1 + share) * (1 + ROUNDING) - 1 for name, share in kept.items()}
        return self.find(self.free.change, self.later | shares | surely, term)
