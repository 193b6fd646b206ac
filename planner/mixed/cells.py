"""Nodes of each of two pools: pairs of numbers of them, by the least that a step takes on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from planner.instance import Limits
from planner.limits import most_of
from planner.mixed.arrangement import Arrangement, alike
from planner.mixed.bound import SURE
from planner.mixed.decided import Decided
from planner.mixed.economy import PairEconomy, Running
from planner.mixed.floor import Totals, floor_of
from planner.mixed.layouts import cells_of, layouts
from planner.mixed.schedules import LayoutBounds, loosely
from planner.mixed.shortest import Shortest
from planner.mixed.tally import LIMIT_OF

if TYPE_CHECKING:
    from planner.mixed.search import MixedSearch

Array = NDArray[Any]
PART = 1 << 16
"""Cells that are bounded between two looks at the clock, and kept or forgotten together."""
PAIRS = 1 << 15
"""Pairs of a cell and a key that are looked at together: their columns stay in cache."""
FIRST_PAIRS = 1 << 15
"""Pairs whose layouts are written down first; each further batch is twice as large."""


@dataclass(slots=True)
class Cells:
    """Pairs of numbers of nodes of an arrangement's pools, some of them: those still open, the best first."""

    arranged: Arrangement
    shortest: Shortest
    running: Running
    bound: Array
    """Seconds a step of the largest batch, by cell."""
    economy: PairEconomy
    left: Array

    @classmethod
    def of(cls, of: Arrangement, shortest: Shortest, first: Array, check: Callable[[], None]) -> Cells:
        """Cells of an arrangement with so many nodes of its first pool, by the best key of each."""
        instance = of.instance
        running = Running.of(instance, of.both, cells_of(instance, of, first))
        cells = running.num_gpus.shape[1]
        tokens = np.full(cells, float(instance.max_batch * instance.seq_len))
        economy = loosely(instance, running.economy(instance, of.both, tokens))
        bound = np.empty(cells)
        for part in _parts(of, np.arange(cells)):
            check()
            least = least_seconds(of, shortest, running.num_gpus[:, part])
            bound[part] = least.min(axis=1, initial=np.inf)
        return cls(of, shortest, running, bound, economy, np.arange(cells))

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
        search.pairs.opened += len(cells)
        at, key, bound = self._keys(search, cells)
        some, size = np.arange(len(at)), FIRST_PAIRS
        while len(some):
            search.effort.check()
            first, some = some[:size], some[size:]
            rows = layouts(
                self.arranged.instance, self.arranged, self.running.num_gpus, at[first], key[first]
            )
            search.written.number += len(rows)
            LayoutBounds(self.arranged, self.running, search).each(rows)
            some, size = some[self._wins(search, at[some], key[some], bound[some])], 2 * size

    def _keys(self, search: MixedSearch, cells: Array) -> tuple[Array, Array, Array]:
        """Pairs of a cell and a key that may win, and seconds of their steps at least; the best first."""
        longest, found = search.longest(self.economy.take(cells), self._decided(cells)), []
        for part in _parts(self.arranged, np.arange(len(cells))):
            search.effort.check()
            bound = least_seconds(self.arranged, self.shortest, self.running.num_gpus[:, cells[part]])
            # Most pairs are dismissed without a look at days and dollars.
            at, key = np.nonzero(bound <= longest[part, None])
            found.append((cells[part[at]], key, bound[at, key]))
        at, key, bound = (np.concatenate(column) for column in zip(*found, strict=True))
        some = self._wins(search, at, key, bound)
        return at[some], key[some], bound[some]

    def _wins(self, search: MixedSearch, cells: Array, key: Array, bound: Array) -> Array:
        """Which pairs of a cell and a key may win, the best first."""
        return search.wins(self.economy.take(cells), bound, self._decided(cells, key))

    def _decided(self, cells: Array, key: Array | None = None) -> Decided:
        return Decided(self.arranged, self.running.num_gpus[:, cells], key)


@dataclass(slots=True)
class Part:
    """Cells of some numbers of nodes of the first pool; of those that come late, only their best bound."""

    arranged: Arrangement
    shortest: Shortest
    first: Array
    """Nodes of the first pool."""
    floor: Totals
    """What runs take at least by its GPUs alone."""
    best: float
    """The first sort key of the best open cell, at least."""
    cells: Cells | None = None
    """None while others are better, of which there are many."""
    left: Array | None = None
    """Those open when the cells were forgotten."""

    @classmethod
    def each_of(cls, of: Arrangement, search: MixedSearch) -> list[Part]:
        """All cells of an arrangement, with no more known of them than what their GPUs take at least."""
        shortest, (pool, other) = Shortest.of(of, search.effort), of.both
        first = np.arange(pool.min_nodes, pool.max_nodes + 1)
        size = max(PART // max(other.max_nodes - other.min_nodes + 1, 1), 1)
        found: list[Part] = []
        for some in np.split(first, range(size, len(first), size)):
            nodes = np.array([some[[0, -1]], [other.min_nodes, other.max_nodes]])
            floor = floor_of(of, nodes)
            found.append(cls(of, shortest, some, floor, float(search.value(floor))))
        return found

    @property
    def number(self) -> int:
        """Cells, open or not."""
        return cells_of(self.arranged.instance, self.arranged, self.first).shape[1]

    def broken(self, limits: Limits) -> str | None:
        """The first limit that its GPUs alone already break, whatever else a run loses."""
        # With a confidence limits hold for a share of runs, which may be shorter than predicted.
        if limits.chance is not None:
            return None
        most = most_of(limits)
        return next((LIMIT_OF[term] for term, least in self.floor.items() if float(least) > most[term]), None)

    def open(self, search: MixedSearch) -> bool:
        """Whether any cell may hold something better."""
        if self.cells is None:
            return not search.beyond(self.best)
        if not self.cells.open(search):
            return False
        self.best = self.cells.least(search)
        return True

    def recall(self, search: MixedSearch) -> Cells:
        """The cells, with their bounds."""
        check = search.effort.check
        self.cells = Cells.of(self.arranged, self.shortest, self.first, check)
        if self.left is None:
            self.left = search.pairs.sift(
                search.goal.limits, self.cells.economy, self.cells.bound, impossible="memory"
            )
        self.cells.left = self.left
        return self.cells

    def forget(self) -> None:
        """Keeps no more than which cells are open."""
        if self.cells is not None:
            self.left, self.cells = self.cells.left.astype(np.int32), None


def _parts(of: Arrangement, cells: Array) -> list[Array]:
    """Cells that are looked at together with all keys."""
    size = max(PAIRS // max(of.key.shape[1], 1), 1)
    return np.split(cells, range(size, len(cells), size))


def least_seconds(of: Arrangement, shortest: Shortest, gpus: Array) -> Array:
    """Seconds that a step of the largest batch takes at least, by (cells, keys); `gpus` (2, cells).

    Pool i has K_i = n_i/(tp*cp) ranks, on which a micro-batch takes W_i seconds in all. If none ever waits
    they do R = sum_i K_i/W_i micro-batches a second, or R/favour where each does what it is best at. But
    pipelines wait: m micro-batches take (m + x*(p - 1))*W_i/p on one of p ranks, x the bubble.
    """
    keys, x = of.keys, of.instance.stack.pipeline.bubble
    ranks = gpus[:, :, None] / (keys.tp * keys.cp)
    rates = ranks / of.seconds[:, None, :]
    batch = of.instance.max_batch / keys.micro_batch
    busy = batch * of.favour / rates.sum(axis=0)
    waits = _in_one_pipeline if of.form == "stages" else _in_a_pipeline_each
    waiting = waits(of, shortest, ranks.sum(axis=0), rates, busy, batch)
    least = busy + np.where(np.isfinite(waiting), x * waiting, np.inf)
    return least * of.book.stragglers(gpus.sum(axis=0))[:, None] * SURE


def _in_a_pipeline_each(
    of: Arrangement, shortest: Shortest, ranks: Array, rates: Array, busy: Array, batch: Array
) -> Array:
    """Seconds of the bubble over x where each pool runs whole pipelines: (cells, keys), inf where none fit.

    Replicas dp_i = K_i/p do m_i micro-batches each, sum_i dp_i*m_i of the batch. As (m_i + x(p-1))*W_i/p <= T
    that is T*R >= batch + x*(1 - 1/p)*K, and with v chunks a v-th of that bubble. In pipelines that do not
    fill, m <= p - 1, each micro-batch takes 1 + x times as long: in those of both pools, or, if they may run
    different numbers of them, of either.
    """
    filled = shortest.idle * ranks / batch
    x = of.instance.stack.pipeline.bubble
    # Where only a pool at the rate r waits: R/(R - x/(1 + x)*r) as long, in place of 1 + x.
    lost = np.ones_like(busy)
    if not alike(of):
        slower = rates.min(axis=0) / (1 + x)
        lost = slower / (rates.sum(axis=0) - x * slower)
    unfilled = np.where(np.isfinite(shortest.unfilled), lost, np.inf)
    return busy * np.minimum(np.where(np.isfinite(shortest.filled), filled, np.inf), unfilled)


def _in_one_pipeline(
    of: Arrangement, shortest: Shortest, ranks: Array, rates: Array, busy: Array, batch: Array
) -> Array:
    """The same where pipelines are over both pools.

    m*T + x*(t - T) with the slowest rank's T >= busy/m, m = batch*p/K, and all ranks' t >= w, the work at
    the quicker pool of each part: x*(w - busy/m), and more often than once for the largest batch where only
    smaller ones leave pipelines unfilled.
    """
    work = of.parts.min(axis=0).sum(axis=-1)
    each = busy * ranks / batch
    filled = np.maximum(work - each / shortest.filled, 0.0)
    unfilled = np.maximum(work - each / shortest.unfilled, 0.0) * np.maximum(1.0, batch / ranks)
    return np.minimum(
        np.where(np.isfinite(shortest.filled), filled, np.inf),
        np.where(np.isfinite(shortest.unfilled), unfilled, np.inf),
    )
