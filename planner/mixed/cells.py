"""Nodes of each of two pools: pairs of numbers of them, by the least that a step takes on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from planner.mixed.arrangement import Arrangement
from planner.mixed.bound import SURE
from planner.mixed.decided import Decided
from planner.mixed.economy import PairEconomy, Running
from planner.mixed.layouts import cells_of, layouts
from planner.mixed.schedules import LayoutBounds, loosely

if TYPE_CHECKING:
    from planner.mixed.search import MixedSearch

Array = NDArray[Any]


@dataclass(slots=True)
class Cells:
    """Pairs of numbers of nodes of one arrangement's pools that are still open, the best bounds first."""

    arranged: Arrangement
    running: Running
    bound: Array
    """Seconds a step of the largest batch, by cell."""
    economy: PairEconomy
    left: Array

    @classmethod
    def of(cls, of: Arrangement) -> Cells:
        """All cells of an arrangement, by the best key of each pool by itself."""
        instance = of.instance
        running = Running.of(instance, of.both, cells_of(instance, of))
        cells = running.num_gpus.shape[1]
        tokens = np.full(cells, float(instance.max_batch * instance.seq_len))
        economy = loosely(instance, running.economy(instance, of.both, tokens))
        bound = _least_seconds(of, running.num_gpus, _rank_seconds(of).min(axis=1), of.favour.min())
        return cls(of, running, bound, economy, np.arange(cells))

    def open(self, search: MixedSearch) -> bool:
        """Whether any cell may hold something better; drops those that cannot."""
        order = search.wins(self.economy.take(self.left), self.bound[self.left], self._decided(self.left))
        self.left = self.left[order]
        return len(self.left) > 0

    def least(self, search: MixedSearch) -> float:
        """The first sort key of the best open cell; `open` has put them in order."""
        first = self.left[:1]
        return float(search.keys(self.economy.take(first), self.bound[first])[0][0])

    def advance(self, search: MixedSearch, size: int) -> None:
        """Looks into the first cells."""
        cells, self.left = self.left[:size], self.left[size:]
        at, key = self._keys(search, cells)
        rows = layouts(self.arranged.instance, self.arranged, self.running.num_gpus, cells[at], key)
        search.layouts += len(rows)
        LayoutBounds(self.arranged, self.running, search).each(rows)

    def _keys(self, search: MixedSearch, cells: Array) -> tuple[Array, Array]:
        """Pairs of a cell and a key that may win."""
        of, gpus = self.arranged, self.running.num_gpus[:, cells]
        bound = _least_seconds(of, gpus[:, :, None], _rank_seconds(of)[:, None, :], of.favour)
        at, key = (column.reshape(-1) for column in np.indices(bound.shape))
        some = search.wins(self.economy.take(cells[at]), bound.reshape(-1), self._decided(cells[at], key))
        return at[some], key[some]

    def _decided(self, cells: Array, key: Array | None = None) -> Decided:
        return Decided(self.arranged, self.running.num_gpus[:, cells], key)


def _rank_seconds(of: Arrangement) -> Array:
    """(2, keys) rank-seconds that a sequence takes on each pool."""
    keys = of.keys
    return of.seconds * keys.tp * keys.cp / keys.micro_batch


def _least_seconds(of: Arrangement, gpus: Array, rank_seconds: Array, favour: Array) -> Array:
    """Seconds that a step of the largest batch takes at least, if no rank of either pool ever waits.

    `gpus` of each pool in the first axis, as `rank_seconds`.
    """
    each = rank_seconds.reshape(2, *(1,) * (gpus.ndim - rank_seconds.ndim), *rank_seconds.shape[1:])
    rate = (gpus / each).sum(axis=0) / favour
    return of.instance.max_batch / rate * of.book.stragglers(gpus.sum(axis=0)) * SURE
