"""Counts of candidates, looked up: what `Counter` says, added up once for any deadline and any nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.instance import Instance
from planner.space.columns import LayerKeys, Pipelines, values_of
from planner.space.counting import Counter, Places, classes
from planner.space.layouts import SHARINGS

Array = NDArray[Any]
MOST = 1 << 23
"""Running totals that are kept; problems with more are counted afresh every time."""
PP = 1 << 40
"""Layouts are looked up by pp x this + dp."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Running totals over the layouts of every class of layer keys, one class after the other."""

    gpus: tuple[Array, ...]
    """By place: GPUs of its layouts, ascending."""
    codes: tuple[Array, ...]
    """By place: pp x PP + dp of its layouts, ascending."""
    place: Array
    """(keys,) which pool and tp*cp a key has, by their order in the counter's layouts."""
    ranks: Array
    """(keys,) tp*cp."""
    by_gpus: Array
    """Over layouts in the order of their GPUs."""
    of_keys: Array
    """(keys,) where a key's totals begin in `by_gpus`."""
    by_pp: Array
    """Over layouts in the order of (pp, dp), for each (`Multiplicity.kinds`, filled or not) there is."""
    of_pipelines: Array
    """(keys, 4 * SHARINGS) where the totals of a key's pipelines begin in `by_pp`."""

    @classmethod
    def of(cls, counter: Counter, keys: LayerKeys) -> Totals | None:
        """Of all keys of a search; None where that would be too much to keep."""
        groups, places = classes(keys), list(counter.layouts)
        kinds = [2 * of + filled for of in values_of(counter.many.kinds) for filled in (0, 1)]
        each = sum(len(counter.layouts[of[0], of[1]].pp) + 1 for of, _ in groups)
        if each * (1 + len(kinds)) > MOST:
            return None
        place, of_keys = np.zeros(len(keys), dtype=np.int64), np.zeros(len(keys), dtype=np.int64)
        of_pipelines, by_gpus, by_pp = np.zeros((len(keys), 4 * SHARINGS), dtype=np.int64), [], []
        ends = [0, 0]
        for of, rows in groups:
            place[rows], of_keys[rows] = places.index((of[0], of[1])), ends[0]
            by_gpus.append(counter.totals_by_gpus(of)[1])
            ends[0] += len(by_gpus[-1])
            for column in kinds:
                of_pipelines[rows, column] = ends[1]
                by_pp.append(counter.totals_by_pp(of, column))
                ends[1] += len(by_pp[-1])
        empty = np.empty(0, dtype=np.int64)
        layouts = counter.layouts.values()
        return cls(
            tuple(np.sort(layout.num_gpus) for layout in layouts),
            tuple(layout.pp * PP + layout.dp for layout in layouts),
            place, keys.tp * keys.cp, np.concatenate([empty, *by_gpus]), of_keys,
            np.concatenate([empty, *by_pp]), of_pipelines,
        )  # fmt: skip


class LookedUp(Counter):
    """A `Counter` of an instance with as many nodes or fewer, which looks up what it says."""

    def __init__(self, instance: Instance, layouts: Places, totals: Totals) -> None:
        super().__init__(instance, layouts)
        self.totals = totals
        node = [(pool.fabric.gpus_per_node, pool) for pool in instance.pools]
        self.low = np.array([size * pool.min_nodes for size, pool in node])
        self.high = np.array([size * pool.max_nodes for size, pool in node])
        self.first, self.last = self._ends()

    def _ends(self) -> tuple[Array, ...]:
        """(places, pp) where the layouts on so many nodes begin and end among those of the totals."""
        pp = np.arange(1, self.instance.architecture.layers + 1)
        first, last = [], []
        for code, (pool, ranks) in zip(self.totals.codes, self.layouts, strict=True):
            least, most = -(-self.low[pool] // (ranks * pp)), self.high[pool] // (ranks * pp)
            first.append(np.searchsorted(code, pp * PP + least))
            last.append(np.searchsorted(code, pp * PP + most + 1))
        return tuple(np.array(rows, dtype=np.int64).reshape(-1, len(pp)) for rows in (first, last))

    def keys(
        self, keys: LayerKeys, at_least: Array, filled: int = -1, check: Callable[[], None] = lambda: None
    ) -> tuple[Array, Array]:
        """`Counter.keys` of all keys of the search, in its order."""
        if filled >= 0:
            return super().keys(keys, at_least, filled, check)
        check()
        low, high = self.low[keys.pool], self.high[keys.pool]
        before = [self._below(bound) for bound in (low, np.clip(at_least, low, high + 1), high + 1)]
        modes = keys.modes
        return (before[2] - before[0]) * modes, (before[1] - before[0]) * modes

    def _below(self, gpus: Array) -> Array:
        """(keys,) candidates on fewer GPUs than that, all recompute modes as one."""
        of, at = self.totals, np.empty_like(gpus)
        for number, ascending in enumerate(of.gpus):
            rows = np.flatnonzero(of.place == number)
            at[rows] = np.searchsorted(ascending, gpus[rows])
        return of.by_gpus[of.of_keys + at]

    def pipelines(self, rows: Pipelines, at_least: Array, check: Callable[[], None] = lambda: None) -> Array:
        """`Counter.pipelines`."""
        check()
        of, place = self.totals, self.totals.place[rows.key]
        start = of.of_pipelines[rows.key, 2 * self.many.kinds[rows.zero] + rows.filled]
        code = rows.pp * PP - (-at_least // (of.ranks[rows.key] * rows.pp))
        first = self.first[place, rows.pp - 1]
        for number, known in enumerate(of.codes):
            some = np.flatnonzero((place == number) & (at_least > 0))
            first[some] = np.maximum(first[some], np.searchsorted(known, code[some]))
        number = of.by_pp[start + self.last[place, rows.pp - 1]] - of.by_pp[start + first]
        return np.maximum(number, 0) * rows.modes
