"""Lower bounds on the time of a step that no stage assignment can beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.pipeline import micro_batches_in_flight
from costmodel.run import Column
from costmodel.stage import PerLayer, StageRates
from costmodel.step import pipeline_time

Array = NDArray[Any]


def whole_model(rates: PerLayer, layers: Array) -> Array:
    """A per-layer quantity summed over the whole model: (...,)."""
    return (layers * rates.kinds).sum(axis=-1) + rates.first + rates.last


def least_slowest(rates: StageRates, layers: Array, pp: Column, chunks: Column) -> Array:
    """The slowest rank takes at least the mean, ceil(L/p) layers, or an end with a layer in each of its chunks."""
    work = rates.work
    total = whole_model(work, layers)
    cheapest = work.kinds.min(axis=-1)
    fullest = np.ceil(layers.sum(axis=-1) / pp) * cheapest
    ends = np.maximum(work.first, work.last) + chunks * cheapest
    return np.maximum(np.maximum(total / pp, fullest), ends)


def per_step_floor(rates: StageRates, layers: Array, pp: Column) -> Array:
    """Least data-parallel and optimizer time of the worst rank.

    Both are convex in what a rank holds, so the worst rank has at least the value of the mean rank;
    hiding is bounded by the busiest a rank can be, every layer recomputed.
    """
    busy = (whole_model(rates.work, layers) + (layers * rates.recompute).sum(axis=-1)) / pp
    reduce = whole_model(rates.reduce, layers) / pp
    gather = whole_model(rates.gather, layers) / pp
    floor = rates.exposed_floor
    exposed = np.maximum(reduce - rates.reduce_window * busy, floor * reduce)
    exposed = exposed + np.maximum(gather - rates.gather_window * busy, floor * gather)
    return exposed + whole_model(rates.optimizer, layers) / pp


def step_bound(
    rates: StageRates, layers: Array, pp: Column, vpp: Column, num_microbatches: Column, slowest: Array, extra: Column
) -> Array:
    """A step is at least this long if its slowest rank takes `slowest` and recompute adds `extra` in all."""
    total = whole_model(rates.work, layers) + extra
    busy = pipeline_time(slowest, np.maximum(total, slowest), num_microbatches, vpp)
    transfers = num_microbatches * rates.p2p_steady + (pp - 1) * rates.p2p_fill
    return (busy + transfers + per_step_floor(rates, layers, pp) + rates.fixed) * rates.scale


def quick_bound(
    rates: StageRates, layers: Array, pp: Column, vpp: Column, num_microbatches: Column, chunks: Column
) -> Array:
    """The bound that ignores memory: cheap enough for every row. A rank holds at least `chunks` layers."""
    slowest = least_slowest(rates, layers, pp, chunks)
    return step_bound(rates, layers, pp, vpp, num_microbatches, slowest, 0.0)


def capacity_bound(
    rates: StageRates, layers: Array, pp: int, vpp: int, num_microbatches: Array, fewest: Array, limit: float
) -> Array:
    """The bound that knows memory: (rows,), inf where no assignment fits. All rows share pp and vpp.

    A rank that may take T seconds a micro-batch holds at most so many layers, with just enough of
    them recomputed to fit its memory; the smallest T at which the ranks together hold all layers is
    a bound on the slowest rank. Of two kinds of layers only the more numerous one is counted, and of
    the chunks of a rank the one that keeps least in flight (at `fewest` micro-batches): both only
    loosen the bound.
    """
    kind = int(np.argmax(layers))
    wanted = float(layers[kind])
    room = RankRoom.of(rates, kind, pp, vpp, fewest, limit)
    at_least = vpp if len(layers) == 1 else 0
    low = least_slowest(rates, layers, pp, vpp)
    high = (layers * (rates.work.kinds + rates.recompute)).sum(axis=-1) + rates.work.first + rates.work.last
    impossible = room.held(high, at_least) < wanted
    done = room.held(low, at_least) >= wanted
    high = np.where(done, low, high)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        enough = room.held(middle, at_least) >= wanted
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    slowest = np.where(done, high, low)
    extra = room.least_recomputed(wanted) * rates.recompute[..., kind]
    bound = step_bound(rates, layers, pp, vpp, num_microbatches, slowest, extra)
    return np.where(impossible, np.inf, bound)


BISECTIONS = 40
"""Halvings of the bracket: its width falls below 1e-10 of the slowest stage."""


@dataclass(frozen=True, slots=True)
class RankRoom:
    """What each rank can hold of one kind of layer: arrays (rows, ranks), rates (rows, 1).

    Memory of n layers, r of them recomputed: need*n + base - saved*r <= 0, and r <= n.
    """

    time: Array
    again: Array
    other_time: Array
    need: Array
    base: Array
    saved: Array
    most: Array
    """Layers that fit with all of them recomputed."""

    @classmethod
    def of(cls, rates: StageRates, kind: int, pp: int, vpp: int, num_microbatches: Array, limit: float) -> RankRoom:
        flights, key = np.unique(num_microbatches, return_inverse=True)
        flying = np.stack([micro_batches_in_flight(pp, vpp, int(m)) for m in flights])[key]
        least, most, together = flying.min(axis=-1), flying.max(axis=-1), flying.sum(axis=-1)
        rank = np.arange(pp)
        first, last = (rank == 0).astype(float), (rank == pp - 1).astype(float)

        def ends(of: PerLayer) -> Array:
            return first * of.first[:, None] + last * of.last[:, None]

        kept, checkpoint = rates.kept.kinds[:, kind, None], rates.checkpoint[:, kind, None]
        states = rates.states.kinds[:, kind, None]
        fixed = ends(rates.states) + first * flying[..., 0] * rates.kept.first[:, None]
        fixed = fixed + last * rates.kept.last[:, None]
        fixed = fixed + np.maximum(rates.working[:, None], last * rates.loss[:, None])
        room = (limit - rates.fixed_bytes[:, None]) / (1 + rates.overhead) - fixed
        surplus = together - vpp * least
        # A recomputed layer may also be dearer to keep (tiny models): then none is recomputed.
        saved = most * np.maximum(kept - checkpoint, 0.0)
        lightest = np.minimum(kept, checkpoint)
        return cls(
            time=rates.work.kinds[:, kind, None],
            again=rates.recompute[:, kind, None],
            other_time=ends(rates.work),
            need=states + least * kept,
            base=surplus * kept - room,
            saved=saved,
            most=(room - surplus * lightest) / (states + least * lightest),
        )

    def held(self, slowest: Array, at_least: int) -> Array:
        """Layers that all ranks together hold if none takes longer than `slowest`: (rows,)."""
        left = slowest[:, None] * (1 + 1e-12) - self.other_time
        with np.errstate(divide="ignore", invalid="ignore"):
            by_time = np.where(self.time > 0, left / self.time, np.where(left >= 0, np.inf, -np.inf))
            free = -self.base / self.need
            slope = np.where(self.saved > 0, self.again / self.saved, np.inf)
            mixed = (left - slope * self.base) / (self.time + slope * self.need)
        mixed = np.where(np.isfinite(mixed), mixed, np.where(self.saved > 0, self.most, free))
        n = np.minimum(by_time, np.maximum(np.minimum(by_time, free), np.where(mixed > free, mixed, free)))
        n = np.floor(np.minimum(n, self.most) + 1e-9)
        total = np.where(n >= at_least, n, -np.inf).sum(axis=-1)
        return total

    def least_recomputed(self, wanted: float) -> Array:
        """Least number of layers that must be recomputed for all to fit: (rows,)."""
        free = np.maximum(-self.base / self.need, 0.0).sum(axis=-1)
        with np.errstate(divide="ignore"):
            price = np.where(self.saved > 0, self.need / self.saved, 0.0).min(axis=-1)
        return np.maximum(wanted - free, 0.0) * price
