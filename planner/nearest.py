"""When nothing fits: the plan that breaks the limits by the least share, and by how much it breaks each.

All limits on numbers are loosened by the same share (`planner.loosening`). The least one with which there is
a plan is found by bisection, a search each. The limits that need it are then kept there and the others
tightened again, down to where they need a share themselves: no plan breaks the limit that is broken most by
less, of those none the next one by less, and so on.

Where loosening all of them is not enough, the memory of GPUs is loosened first, as little as can be: what
does not fit cannot be run at all. Where that is not enough either, what has no number is let go
(`planner.let_go`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from math import inf, sqrt

from planner.instance import Instance, Term
from planner.let_go import LetGo, let_go
from planner.loosening import NumberLimit
from planner.near import Find, Near, Stopped, near_of
from planner.nearest_words import nearest_words
from planner.relaxed import TERMS
from planner.solution import Nearest

PRECISION = 1e-4
"""Of a limit that is loosened by the least share."""
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
    except Stopped:
        return None
    if free is None:
        return None
    search = Loosened(free, find)
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
    kept: dict[str, float] = field(default_factory=dict[str, float])
    """By limit, the shares that are needed."""
    proved: bool = True
    """False once time is out."""

    def least(self) -> Near:
        """The plan that breaks the most broken limit least, of those the next one least, and so on."""
        near = self.free.near
        try:
            for step, left in enumerate(self.free.steps):
                later = {of.name: inf for of in chain(*self.free.steps[step + 1 :])}
                near = self._least_of_step(near, left, later)
        except Stopped:
            self.proved = False
            return near
        try:
            return self._within({}, None) or near
        except Stopped:
            return near

    def _least_of_step(self, near: Near, left: list[NumberLimit], later: dict[str, float]) -> Near:
        """The same of limits that are loosened together, while those that come later do not hold."""
        while left:
            near = self._least(near, left, later)
            worst = max(map(near.share, left))
            if worst <= ROUNDING:
                break
            needed = [of for of in left if near.share(of) >= worst * (1 - PRECISION)]
            self.kept |= {of.name: near.share(of) for of in needed}
            left = [of for of in left if of not in needed]
        return near

    def _least(self, near: Near, left: list[NumberLimit], later: dict[str, float]) -> Near:
        """The plan in which the most broken of some limits is broken least; by bisection."""

        def within(share: float, term: Term) -> Near | None:
            return self._within({of.name: share for of in left} | later, term)

        low, high = 0.0, max(map(near.share, left))
        # Beside what is kept there is often no other plan.
        for share in (0.0, high - 2 * PRECISION * (1 + high)) if self.kept else ():
            if share >= low and (found := within(share, "time")) is not None:
                near, high = found, max(map(found.share, left))
                break
            low = max(low, share)
        while high > ROUNDING and 1 + high > (1 + low) * (1 + 2 * PRECISION):
            term = TERMS.get(max(left, key=near.share).name)
            # No plan has less of what it breaks most, though the others are looser than they need to be.
            if term is not None and near.aimed == term:
                break
            middle = sqrt((1 + low) * (1 + high)) - 1
            found = within(middle, term or "time")
            if found is None:
                low = middle
            else:
                near, high = found, min(middle, max(map(found.share, left)))
        return near

    def _within(self, shares: dict[str, float], term: Term | None) -> Near | None:
        """The best plan with limits looser by shares, beside those that are kept at theirs."""
        kept = {name: (1 + share) * (1 + ROUNDING) - 1 for name, share in self.kept.items()}
        return self.find(self.free.change, shares | kept, term)
