"""What became of the pairs of node counts, and of the layouts on them, in a search on two pools."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.economics import Economy
from planner.instance import Limits, Term
from planner.limits import refused

Array = NDArray[Any]
LIMIT_OF: dict[Term, str] = {"time": "deadline", "cost": "budget", "energy": "energy", "carbon": "carbon"}


@dataclass(slots=True)
class Tally:
    """Each is counted once: under the first limit that its first bound breaks, as opened, or as neither.

    Neither is what a bound shows to be no better than a plan that was found, or, out of time, is still open.
    """

    number: int = 0
    """All of them."""
    rejected: dict[str, int] = field(default_factory=dict[str, int])
    """By the limit that none of their plans can keep."""
    opened: int = 0
    """Within all limits by that bound, and looked into."""

    @property
    def left(self) -> int:
        """Neither."""
        return self.number - sum(self.rejected.values()) - self.opened

    def reject(self, name: str, number: int) -> None:
        """So many break a limit."""
        if number:
            self.rejected[name] = self.rejected.get(name, 0) + number

    def sift(self, limits: Limits, economy: Economy, least: Array, impossible: str) -> Array:
        """Indices of rows that break no limit if a step takes so long; counts the others.

        `impossible` names what leaves no plan where the least is infinite.
        """
        inside = np.isfinite(least)
        self.reject(impossible, int((~inside).sum()))
        for name, broken in refused(limits, economy, least).items():
            self.reject(name, int((inside & broken).sum()))
            inside &= ~broken
        return np.flatnonzero(inside)
