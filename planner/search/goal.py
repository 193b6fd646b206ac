"""What is best, what must hold, and what a search may take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from planner import economics
from planner.economics import Economy
from planner.instance import Instance, Limits, Term
from planner.space.columns import LayerKeys
from planner.space.recompute import FAMILIES

Array = NDArray[Any]
Mask = Callable[[LayerKeys], "Array | bool"]
"""Which rows count. Asked of layer keys, groups and candidates alike: where rows do not decide what a mask
asks for yet, it lets them through."""


PIECE = 1 << 12
"""Rows between two looks at the clock, where there is a time limit."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What is best, and what must hold."""

    objective: tuple[tuple[Term, float], ...]
    lexicographic: bool
    limits: Limits

    def keys(self, economy: Economy, step: Array) -> tuple[Array, ...]:
        """Sort keys of steps, most important first."""
        return economics.keys(self.objective, self.lexicographic, economy, step)

    def key_bound(self, totals: Mapping[Term, Array]) -> Array:
        """The first sort key of runs that take so much."""
        return economics.first_key(self.objective, self.lexicographic, totals)


def goal_of(instance: Instance, limits: Limits | None = None, objective: Term | None = None) -> Goal:
    """The instance's goal, or with other limits or another single objective."""
    return Goal(
        instance.objective if objective is None else ((objective, 1.0),),
        instance.lexicographic if objective is None else True,
        instance.limits if limits is None else limits,
    )


class OutOfTime(Exception):
    """The time limit passed before a question was answered.

    A search ends with what it has found; whoever needs the proof asks `Effort.conclude`. `asking` tells of
    questions that are left without an answer.
    """

    def __init__(self, found: Any = None) -> None:
        super().__init__()
        self.found = found
        """The best plan that was found, where there is one: it is not known to be the best of all."""


@dataclass(slots=True)
class Effort:
    """What a search may take, and what it took."""

    until: float | None = None
    """Time (of time.monotonic) at which to stop with what there is."""
    progress: Callable[[str], None] = lambda text: None
    solved: int = 0
    """Stage assignments solved by CP-SAT."""
    out_of_time: bool = False
    gap: float = 0.0
    """(objective - bound) / objective of the plan that is returned."""

    def check(self) -> None:
        if self.until is not None and monotonic() > self.until:
            self.stop()

    def pieces(self, index: Array) -> Iterator[Array]:
        """Rows to be looked at together, with a look at the clock before each piece of many."""
        for some in [index] if self.until is None else np.split(index, range(PIECE, len(index), PIECE)):
            self.check()
            yield some

    def conclude(self, found: Any = None) -> None:
        """Raises OutOfTime where a search had to stop: what it found is not proved to be the best."""
        if self.out_of_time:
            raise OutOfTime(found)

    def stop(self) -> NoReturn:
        """Time is out: by this clock, or by that of a solver, which may be a little ahead of it."""
        assert self.until is not None
        self.out_of_time = True
        raise OutOfTime

    def share(self, of: float) -> Effort:
        """An effort of its own that may take such a share of the time that is left."""
        left = self.seconds_left
        until = None if self.until is None or left is None else self.until - (1 - of) * left
        return Effort(until=until, progress=self.progress)

    @property
    def seconds_left(self) -> float | None:
        return None if self.until is None else max(self.until - monotonic(), 0.01)


def differs(name: str, value: int) -> Mask:
    """Lets through rows that decide `name` otherwise, or do not decide it yet."""

    def mask(rows: LayerKeys) -> Array | bool:
        column = getattr(rows, name, None)
        return True if column is None else column != value

    return mask


def in_families(families: tuple[int, ...], mask: Mask | None = None) -> Mask:
    """Lets through rows of recompute families that another mask lets through."""
    member = np.isin(np.arange(FAMILIES), families)

    def both(rows: LayerKeys) -> Array | bool:
        of = member[rows.family]
        return of if mask is None else of & mask(rows)

    return both
