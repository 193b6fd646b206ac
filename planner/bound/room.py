"""How many layers each pipeline rank can hold in a given time and within its memory."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.stage import PerLayer, StageRates
from planner.bound.mix import LayerMix
from planner.bound.recompute import Recompute

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Extent:
    """What ranks may hold and keep in flight: (rows, ranks), ranks beyond pp hold nothing."""

    least: Array
    """Fewest layers."""
    most: Array
    surplus: Array
    """Sum over chunks of its fewest layers x (micro-batches in flight - the rank's least)."""
    short: Array
    """What of that a rank is spared that holds one layer fewer than it could."""
    in_flight_least: Array
    """Of the rank's chunks, the one that keeps least in flight."""
    in_flight_most: Array
    exists: Array
    lead: Array
    """Leading layers of the rarer kind that a rank must hold if it holds any layer of the other."""
    rare: Array
    """Most layers of the rarer kind."""

    def take(self, index: Array) -> Extent:
        return Extent(*(getattr(self, f.name)[index] for f in fields(self)))


def extent(mix: LayerMix, pp: Array, vpp: Array, num_microbatches: Array, any_vpp: bool) -> Extent:
    """Extents of many schedules at once: pipeline.micro_batches_in_flight and level_chunks in closed form.

    The counts of a rank's chunks fall from the first to the last and add up to its warm-up. Of a model with
    two kinds of layers, what ranks hold of the more numerous one. With `any_vpp`, vpp = 1 stands for all.
    """
    layers = mix.layers
    rank = np.arange(int(pp.max()))
    p, v, m = pp[:, None], vpp[:, None], num_microbatches[:, None]
    # Ranks beyond pp are padding; one micro-batch keeps their numbers harmless.
    single = np.maximum(np.minimum(m, p - rank), 1)
    warm_up = np.minimum(2 * (p - rank - 1) + (v - 1) * p + 1, m * v)
    rounds, rest = np.divmod(np.maximum(warm_up, 1), p * v)
    first = np.where(v == 1, single, rounds * p + np.minimum(rest, p))
    last = np.where(v == 1, single, rounds * p + np.clip(rest - (v - 1) * p, 0, p))
    # Interleaved, every rank holds the same layers, but for ends that hold one fewer (`level_chunks`).
    missing = -layers % p
    held, short = (layers + missing) // p, ((missing > 0) & (v > 1)).astype(int)
    base = np.where(v == 1, 1, held // v)
    end = base - short
    least = np.where(v == 1, 1, held) - short * ((rank == 0).astype(int) + (rank == p - 1))
    surplus = np.where(v == 1, 0, base * (warm_up - v * last))
    spared = short * (rank == 0) * (first - last)
    lead, rare = np.zeros_like(least), np.zeros_like(least)
    if len(mix.totals) > 1:
        # Layers of the other kind may take a rank's places: anywhere, or those of the leading stages.
        taken = 1 + np.maximum(-(-(mix.lead - end) // np.maximum(base, 1)), 0) if mix.lead else p * v
        # The first stage may be empty if the pipeline is interleaved in the end.
        late = ((missing > 0) & any_vpp).astype(int)
        taken = taken + late
        least, surplus = np.where(rank < taken, 0, least), np.where(rank < taken, 0, surplus)
        spared = np.where(rank < taken, 0, spared)
        rare = np.where(rank < taken, mix.lead or mix.layers, 0) + rare
        # Interleaved, the first chunk holds `end` layers or more, and leading ones come first among them.
        chunk = np.where(v == 1, mix.lead, np.minimum(mix.lead, end))
        chunk = np.minimum(mix.lead, 1) * (1 - late) if any_vpp else chunk
        lead = lead + np.where(rank == 0, chunk, 0)
    exists = rank < p
    most = np.where(v == 1, layers, held) - lead
    return Extent(least * exists, most * exists, surplus, spared, last, first, exists, lead, rare)


@dataclass(frozen=True, slots=True)
class RankRoom:
    """What each rank can hold of one kind of layer: arrays (rows, ranks), rates (rows, 1).

    Memory of n layers, r of them recomputed: need*n + base - saved*r (+ rebuilt if r > 0) <= 0, and r <= n.
    """

    per_second: Array
    """1 / seconds of a layer; huge where layers take no time (an assumed MFU)."""
    again: Array
    per_second_again: Array
    """1 / seconds of a layer that is recomputed."""
    other_time: Array
    need: Array
    base: Array
    short: Array
    """Bytes less where a rank holds one layer fewer than it could."""
    rebuilt: Array
    """Bytes more where any layer is recomputed: one that the backward pass rebuilds."""
    saved: Array
    slope: Array
    """Seconds of recompute that make room for a byte; 0 where recompute saves nothing."""
    per_second_mixed: Array
    """1 / (seconds of a layer and of the recompute that makes room for it)."""
    most: Array
    """Layers that fit with all of them recomputed."""
    spared: Array
    """Layers that a rank counts with at least, whatever its room."""
    extent: Extent

    @classmethod
    def of(
        cls,
        rates: StageRates,
        mix: LayerMix,
        pp: Array,
        vpp: Array,
        num_microbatches: Array,
        limit: float,
        any_vpp: bool = False,
    ) -> RankRoom:
        """Of columns of candidates of one model, with so many bytes of each GPU."""
        kind, reach = mix.kind, extent(mix, pp, vpp, num_microbatches, any_vpp)
        least, most, entry = reach.in_flight_least, reach.in_flight_most, reach.in_flight_most[:, :1]
        rank = np.arange(least.shape[1])
        first, last = (rank == 0).astype(float), (rank == pp[:, None] - 1).astype(float)

        def ends(of: PerLayer) -> Array:
            return first * of.first[:, None] + last * of.last[:, None]

        kept, checkpoint = rates.kept.kinds[:, kind, None], rates.checkpoint[:, kind, None]
        states = rates.states.kinds[:, kind, None]
        fixed = ends(rates.states) + first * entry * rates.kept.first[:, None]
        fixed = fixed + last * rates.kept.last[:, None]
        backward, loss = rates.working[:, None], last * rates.loss[:, None]
        rebuilt = np.maximum(backward + rates.rebuilt[:, None], loss) - np.maximum(backward, loss)
        fixed = fixed + np.maximum(backward, loss)
        other_time = ends(rates.work) - TINY
        if mix.lead:
            rare = 1 - kind
            light = np.minimum(rates.kept.kinds[:, rare], rates.checkpoint[:, rare])[:, None]
            fixed = fixed + reach.lead * (rates.states.kinds[:, rare, None] + entry * light)
            other_time = other_time + reach.lead * rates.work.kinds[:, rare, None]
        room = (limit - rates.fixed_bytes[:, None]) / (1 + rates.overhead) - fixed
        surplus = reach.surplus
        # A recomputed layer may also be dearer to keep (tiny models): then none is recomputed.
        saved = most * np.maximum(kept - checkpoint, 0.0)
        lightest = np.minimum(kept, checkpoint)
        time, again = rates.work.kinds[:, kind, None], rates.recompute[:, kind, None]
        need = states + least * kept
        slope = np.where(saved > 0, again / np.where(saved > 0, saved, 1.0), 0.0)
        return cls(
            per_second=inverse(time),
            again=again,
            per_second_again=inverse(time + again),
            other_time=other_time,
            need=need,
            base=surplus * kept - room,
            short=reach.short * kept,
            rebuilt=rebuilt,
            saved=saved,
            slope=slope,
            per_second_mixed=inverse(time + slope * need),
            most=np.minimum(
                (room - (surplus - reach.short) * lightest) / (states + least * lightest), reach.most
            ),
            # With several leading layers a rank may hold some of them and no other layer.
            spared=np.where((vpp[:, None] == 1) & (reach.lead > 1), 0.0, -np.inf),
            extent=reach,
        )

    def take(self, index: Array) -> RankRoom:
        """The room of some of its rows."""
        rows = {f.name: getattr(self, f.name)[index] for f in fields(self) if f.name != "extent"}
        return RankRoom(**rows, extent=self.extent.take(index))

    def held(self, slowest: Array, case: Recompute) -> Array:
        """Layers that all ranks together hold if none takes longer than `slowest`: (rows,)."""
        left = slowest[:, None] * (1 + 1e-12) - self.other_time
        # Layers of the other kind may be among those that are recomputed.
        again = np.maximum(case.least - self.extent.rare, 0)
        base = self.base - case.most * self.saved + np.greater(again, 0) * self.rebuilt
        some = self._held(left - again * self.again, base, case.more)
        n = np.floor(np.minimum(some, self.most) + 1e-9)
        if np.any(self.short):
            fewer = self._held(left - again * self.again, base - self.short, case.more)
            fewer = np.minimum(np.floor(np.minimum(fewer, self.most) + 1e-9), self.extent.most - 1)
            n = np.where((n >= self.extent.most) | (self.short == 0), n, fewer)
        if np.any(again):
            all_again = np.minimum(left * self.per_second_again, self.most)
            n = np.where(n >= again, n, np.minimum(np.floor(all_again + 1e-9), again))
        n = np.maximum(np.where(n >= self.extent.least, n, -np.inf), self.spared)
        return np.where(self.extent.exists, n, 0.0).sum(axis=-1)

    def _held(self, left: Array, base: Array, more: bool) -> Array:
        """Layers by time and memory, with more of them recomputed where that lets a rank hold more."""
        by_time = left * self.per_second
        free = -base / self.need
        if not more:
            return np.minimum(by_time, free)
        more_left = left - self.slope * (base + self.rebuilt)
        mixed = np.where(self.saved > 0, more_left * self.per_second_mixed, free)
        return np.where(by_time <= free, by_time, np.maximum(mixed, free))

    def least_recomputed(self, wanted: float) -> Array:
        """Least number of layers that must be recomputed for all to fit: (rows,)."""
        exists = self.extent.exists
        free = np.where(exists, np.maximum(-self.base / self.need, 0.0), 0.0).sum(axis=-1)
        with np.errstate(divide="ignore"):
            price = np.where(self.saved > 0, self.need / self.saved, 0.0)
        price = np.where(exists, price, np.inf).min(axis=-1)
        return np.maximum(wanted - free, 0.0) * price


TINY = 1e-30
"""Seconds: makes room for layers that take no time at all."""


def inverse(seconds: Array) -> Array:
    """1/seconds, huge for none."""
    return 1 / np.maximum(seconds, TINY**3)
