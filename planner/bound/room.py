"""How many layers each pipeline rank can hold in a given time and within its memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.records import gather
from costmodel.stage import StageRates
from planner.bound.extent import Extent, extent
from planner.bound.mix import LayerMix
from planner.bound.recompute import Recompute

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class RankRoom:
    """What each rank can hold of one kind of layer: (rows, ranks) or, where ranks are alike, (rows, 1).

    Memory of n layers, r of them recomputed: need*n + base - saved*r (+ rebuilt if r > 0) <= 0, and r <= n.
    """

    time: Array
    """Seconds of a layer; none with an assumed MFU."""
    again: Array
    """Seconds that recomputing it adds."""
    other_time: Array
    need: Array
    base: Array
    rebuilt: Array
    """Bytes more where any layer is recomputed: one that the backward pass rebuilds."""
    saved: Array
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
        interleaved: bool = False,
        recomputes: bool = True,
    ) -> RankRoom:
        """Of columns of candidates of one model, with so many bytes of each GPU.

        `any_vpp` and `interleaved` as of `extent`; `recomputes`: whole layers may be.
        """
        kind, reach = mix.kind, extent(mix, pp, vpp, num_microbatches, any_vpp, interleaved)
        each, most = reach.each, reach.in_flight_most
        kept, checkpoint = rates.kept.kinds[:, kind, None], rates.checkpoint[:, kind, None]
        states = rates.states.kinds[:, kind, None]
        fixed, rebuilt, other_time = _beside_layers(rates, mix, reach, _Ends(pp, each.shape))
        room = ((limit - rates.fixed_bytes) / (1 + rates.overhead))[:, None] - fixed
        surplus, lightest = reach.surplus, np.minimum(kept, checkpoint)
        most_kept = (room - surplus * lightest) / (states + each * lightest)
        return cls(
            time=rates.work.kinds[:, kind, None],
            again=rates.recompute[:, kind, None],
            other_time=other_time,
            need=states + each * kept,
            base=surplus * kept - room,
            rebuilt=rebuilt,
            # A recomputed layer may also be dearer to keep (tiny models): then none is recomputed.
            saved=most * np.maximum(kept - checkpoint, 0.0),
            most=np.minimum(
                np.minimum(most_kept, reach.most), _beside_rare(rates, mix, reach, room, recomputes)
            ),
            # With several leading layers a rank may hold some of them and no other layer.
            spared=np.where((vpp[:, None] == 1) & (reach.level == 0) & (reach.lead > 1), 0.0, -np.inf),
            extent=reach,
        )

    def under(self, case: Recompute) -> Holding:
        """What ranks hold if so much is recomputed."""
        # Layers of the other kind may be among those that are recomputed.
        again, base = np.maximum(case.least - self.extent.rare, 0.0), self.base
        if np.any(case.most):
            base = base - case.most * self.saved
        if forced := bool(again.any()):
            base = base + (again > 0) * self.rebuilt
        return Holding(
            other_time=self.other_time,
            per_second=inverse(self.time),
            memory=self._memory(base, case.more),
            again=again if forced else None,
            again_time=again * self.again,
            per_second_again=inverse(self.time + self.again),
            most=self.most,
            spared=self.spared if np.isfinite(self.spared).any() else None,
            least=self.extent.least,
            missing=~self.extent.exists,
        )

    def _memory(self, base: Array, more: bool) -> Memory:
        """What memory leaves at a base of bytes, with more layers recomputed or not."""
        free = -base / self.need
        if not more:
            return Memory(free, None, None)
        saves = self.saved > 0
        # Seconds of recompute that make room for a byte.
        slope = np.divide(self.again, self.saved, out=np.zeros(saves.shape), where=saves)
        late = np.where(saves, slope * (base + self.rebuilt), np.inf)
        return Memory(free, late, inverse(self.time + slope * self.need))

    def least_recomputed(self, wanted: float) -> Array:
        """Least number of layers that must be recomputed for all to fit: (rows,)."""
        exists, free = self.extent.exists, -self.base / self.need
        short = wanted - np.where(exists, np.maximum(free, 0.0), 0.0).sum(axis=-1)
        if not (short > 0).any():
            return np.zeros(len(free))
        price = np.divide(self.need, self.saved, out=np.zeros(exists.shape), where=self.saved > 0)
        return np.maximum(short, 0.0) * np.where(exists, price, np.inf).min(axis=-1)


class _Ends:
    """Columns by rank that are alike but for what the first and the last rank add."""

    def __init__(self, pp: Array, shape: tuple[int, ...]) -> None:
        self.shape, self.last = shape, (np.arange(len(pp)), pp - 1)

    def of(self, each: Any, first: Any, last: Any) -> Array:
        """The value of every rank: (rows, ranks)."""
        value = np.empty(self.shape)
        value.T[:] = each
        value[:, 0] += first
        value[self.last] += last
        return value


def _beside_layers(
    rates: StageRates, mix: LayerMix, reach: Extent, ends: _Ends
) -> tuple[Array, Array, Array]:
    """What ranks need beside layers of the more numerous kind: bytes, bytes of a rebuilt layer, seconds."""
    entry = reach.in_flight_most[:, 0]
    # On the last rank, the larger of what backward passes and the loss need.
    loss = np.maximum(rates.loss - rates.working, 0.0)
    last = rates.states.last + rates.kept.last + loss
    fixed = ends.of(rates.working, rates.states.first + entry * rates.kept.first, last)
    rebuilt = ends.of(rates.rebuilt, 0.0, -np.minimum(rates.rebuilt, loss))
    seconds = ends.of(-TINY, rates.work.first, rates.work.last)
    if mix.lead:
        rare = 1 - mix.kind
        light = np.minimum(rates.kept.kinds[:, rare], rates.checkpoint[:, rare])[:, None]
        fixed = fixed + reach.lead * (rates.states.kinds[:, rare, None] + entry[:, None] * light)
        seconds = seconds + reach.lead * rates.work.kinds[:, rare, None]
    return fixed, rebuilt, seconds


def _beside_rare(rates: StageRates, mix: LayerMix, reach: Extent, room: Array, recomputes: bool) -> Array:
    """Layers of the more numerous kind that leave room for the rarer ones: (rows, ranks).

    An interleaved rank holds H layers of both kinds (`Extent.level`): n*a + (H - n)*b <= room with a and b
    bytes of a layer, at the fewest micro-batches in flight. Where the rarer kind is no lighter, H*a <= room.
    """
    if len(mix.totals) == 1 or not reach.level.any():
        return np.full(room.shape, np.inf)
    kept = np.minimum(rates.kept.kinds, rates.checkpoint) if recomputes else rates.kept.kinds
    spare = np.where(reach.level_surplus > 0, kept.min(axis=-1)[:, None], kept.max(axis=-1)[:, None])
    left = room - reach.level_surplus * spare
    usual, rare = (
        rates.states.kinds[:, kind, None] + reach.in_flight_least * kept[:, kind, None]
        for kind in (mix.kind, 1 - mix.kind)
    )
    lighter = usual - rare
    alike = np.where(reach.level * usual <= left * (1 + 1e-12), np.inf, -np.inf)
    mixed = (left - reach.level * rare) / np.where(lighter > 0, lighter, 1.0)
    return np.where((reach.level > 0) & (reach.rare > 0), np.where(lighter > 0, mixed, alike), np.inf)


@dataclass(frozen=True, slots=True)
class Memory:
    """What memory leaves: (rows, ranks)."""

    free: Array
    """Layers of which no more are recomputed than a case asks for."""
    late: Array | None
    """With more of them recomputed: seconds that this takes beside what each layer adds."""
    per_second: Array | None
    """1 / (seconds of a layer and of the recompute that makes room for it)."""


@dataclass(frozen=True, slots=True)
class Holding:
    """What ranks hold under one case of recompute, ready to be asked for many times."""

    other_time: Array
    per_second: Array
    """1 / seconds of a layer; huge where layers take no time."""
    memory: Memory
    again: Array | None
    """Layers that are recomputed at least, if any."""
    again_time: Array
    """Seconds that this takes."""
    per_second_again: Array
    """1 / seconds of a layer that is recomputed."""
    most: Array
    spared: Array | None
    least: Array
    missing: Array
    """Ranks beyond pp."""

    def take(self, index: Array) -> Holding:
        """The same of some rows."""
        return gather(self, index)

    def held(self, slowest: Array) -> Array:
        """Layers that all ranks together hold if none takes longer than `slowest`: (rows,)."""
        left = slowest[:, None] * (1 + 1e-12) - self.other_time
        rest = left if self.again is None else left - self.again_time
        n = self._whole(rest, self.memory)
        if self.again is not None:
            all_again = np.floor(np.minimum(left * self.per_second_again, self.most) + 1e-9)
            n = np.where(n >= self.again, n, np.minimum(all_again, self.again))
        np.putmask(n, n < self.least, -np.inf)
        if self.spared is not None:
            n = np.maximum(n, self.spared)
        np.putmask(n, self.missing, 0.0)
        return n.sum(axis=-1)

    def _whole(self, left: Array, memory: Memory) -> Array:
        """Layers by time and memory, with more of them recomputed where that lets a rank hold more."""
        n, most = left * self.per_second, memory.free
        if memory.late is not None:
            most = np.maximum((left - memory.late) * memory.per_second, most)
        np.minimum(n, most, out=n)
        np.minimum(n, self.most, out=n)
        return np.floor(n + 1e-9)


TINY = 1e-30
"""Seconds: makes room for layers that take no time at all."""


def inverse(seconds: Array) -> Array:
    """1/seconds, huge for none."""
    return 1 / np.maximum(seconds, TINY**3)
