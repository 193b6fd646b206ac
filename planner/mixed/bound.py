"""What a step on two pools takes at least, within the memory of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.step import pipeline_time
from planner.bound.capacity import within_memory
from planner.bound.mix import LayerMix
from planner.bound.recompute import Recompute
from planner.bound.room import Holding, RankRoom
from planner.mixed.costs import Around, MixedCosts, of_both

Array = NDArray[Any]
HALVINGS = 16
"""Of the bisection for the least pace: much closer than whole layers of deep pipelines are to each other."""
SURE = 1 - 1e-9
"""Bounds are lowered by this share, so that rounding drops nothing."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Least seconds a micro-batch: (lines, rows); inf where nothing fits."""

    slowest: Array
    """Of the slowest rank."""
    total: Array
    """Of all ranks together."""
    other: Array | None = None
    """(2, rows) of one pipeline over both pools: of all ranks together if all work were done by the other
    pool's GPUs, which is what it takes but for `saved`."""
    saved: Array | None = None
    """(2, rows) seconds that a pool saves of that, for each second that its slowest rank may take."""

    @property
    def fits(self) -> Array:
        return np.asarray(np.isfinite(self.slowest).all(axis=0))

    def take(self, index: Any) -> Pace:
        """Of some rows."""
        trade = [None if of is None else of[:, index] for of in (self.other, self.saved)]
        return Pace(self.slowest[:, index], self.total[:, index], *trade)

    def line(self, around: Around, num_microbatches: Array) -> Array:
        """(lines, rows) seconds of each pipeline with (lines, rows) micro-batches."""
        slowest = np.where(np.isfinite(self.slowest), self.slowest, 0.0)
        total = np.maximum(self.total, slowest)
        busy = pipeline_time(slowest, total, num_microbatches, around.vpp, around.bubble)
        if self.other is not None and self.saved is not None:
            for other, saved in zip(self.other, self.saved, strict=True):
                busy = np.maximum(busy, self._traded(slowest, other, saved, num_microbatches, around.bubble))
        return busy + num_microbatches * around.steady + around.fill

    def _traded(
        self, slowest: Array, other: Array, saved: Array, num_microbatches: Array, bubble: float
    ) -> Array:
        """What a pipeline over two pools takes: the quicker pool does more only if its ranks take longer.

        All ranks together take max(total, other - saved*T) at least if the slowest one takes T. With the
        steady state's (m - x)*T that is convex in T: least at the shortest T, or where `total` is reached.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            longer = np.where(saved > 0, (other - self.total) / saved, 0.0)
        longer = np.maximum(slowest, longer)
        at_least, at_longer = (
            pipeline_time(
                t, np.maximum(np.maximum(self.total, other - saved * t), t), num_microbatches, 1, bubble
            )
            for t in (slowest, longer)
        )
        return np.minimum(at_least, at_longer)


def favour(parts: Array) -> Array:
    """(rows,) at most 1: how much less work is left if each pool does what it is best at.

    X micro-batches a second of which pool 1 does shares f_c of each component c take X*sum f_c*w_c1 <= n1
    and X*sum (1 - f_c)*w_c2 <= n2 rank-seconds. Weighing both with l*W_1 = (1 - l)*W_2 leaves
    X <= (n1/W_1 + n2/W_2) / favour with favour = sum min(l*w_c1, (1 - l)*w_c2) / (l*W_1).
    `parts` (2, rows, components).
    """
    first, second = parts.sum(axis=-1)
    weight = second / (first + second)
    least = np.minimum(weight[:, None] * parts[0], (1 - weight[:, None]) * parts[1])
    return least.sum(axis=-1) / (weight * first)


def step_of(around: Around, pace: Pace, num_microbatches: Array) -> Array:
    """Least seconds of a step with (2, rows) micro-batches; inf where nothing fits."""
    lines = pace.line(around, num_microbatches[: len(around.steady)]).max(axis=0)
    fixed = (around.fixed + around.micro_batch * num_microbatches).max(axis=0)
    return np.where(pace.fits, (lines + around.end + fixed) * around.scale, np.inf)


def pace_of_work(parts: Array, pp: Array, split: Array, one_pipeline: bool) -> Pace:
    """From the work alone: W/p a rank, or both pools' ranks in proportion to their speed.

    `parts` (2, rows, components): seconds on one rank of each pool, as `Arrangement.parts`. Of stages, the
    embedding is the first pool's and the head the second one's; layers of kind c are done by one pool in
    shares f_c. With e_i for its end, k_i ranks that take T each leave k_i*T - e_i for layers, so that
    (k_1*T - e_1)/K_1 + (k_2*T - e_2)/K_2 >= `favour`. Each second of it saves at most max_c (w_c'/w_c - 1)
    of what the other pool would take.
    """
    if not one_pipeline:
        whole = parts.sum(axis=-1)
        return Pace(whole / pp, whole)
    kinds, ends = parts[..., :-2], np.stack([parts[0, :, -2], parts[1, :, -1]])
    ranks, whole = np.stack([split, pp - split]), kinds.sum(axis=-1)
    slowest = (favour(kinds) + (ends / whole).sum(axis=0)) / (ranks / whole).sum(axis=0)
    gain = np.maximum((kinds[::-1] / kinds - 1).max(axis=-1), 0.0)
    total = kinds.min(axis=0).sum(axis=-1) + ends.sum(axis=0)
    other = whole[::-1] + ends.sum(axis=0) + gain * ends
    return Pace(np.maximum(slowest, (ends / ranks).max(axis=0))[None], total[None], other, ranks * gain)


def pace_without_memory(costs: MixedCosts, mix: LayerMix) -> Pace:
    """`pace_of_work` of rows that are priced."""
    works = [of.work for of in costs.rates]
    parts = np.stack(
        [np.concatenate([mix.totals * w.kinds, w.first[:, None], w.last[:, None]], axis=-1) for w in works]
    )
    return pace_of_work(parts, costs.pp, costs.split, costs.one_pipeline)


def pace_within_memory(costs: MixedCosts, mix: LayerMix, in_flight: Array, case: Recompute) -> Pace:
    """The same within memory, with (2, rows) micro-batches that may be in flight, in one recompute case."""
    rooms = [
        RankRoom.of(of, mix, costs.pp, costs.vpp, m, limit)
        for of, m, limit in zip(costs.rates, in_flight, costs.limits, strict=True)
    ]
    usual = pace_without_memory(costs, mix)
    if not costs.one_pipeline:
        found = [
            within_memory(of, room, mix, costs.pp, costs.vpp, case)
            for of, room in zip(costs.rates, rooms, strict=True)
        ]
        slowest, extra = (np.stack(column) for column in zip(*found, strict=True))
        return Pace(np.maximum(slowest, usual.slowest), usual.total + extra)
    rank = np.arange(rooms[0].extent.exists.shape[1])
    on_first = rank < costs.split[:, None]
    masked = [
        replace(room, extent=replace(room.extent, exists=room.extent.exists & mask))
        for room, mask in zip(rooms, (on_first, ~on_first), strict=True)
    ]
    high = np.maximum(
        *(
            (mix.totals * (of.work.kinds + of.recompute)).sum(axis=-1) + of.work.first + of.work.last
            for of in costs.rates
        )
    )
    slowest = least_pace(masked, case, usual.slowest[0], high, float(mix.totals.max()))
    extra = case.total * of_both(np.minimum, *costs.rates, "recompute").min(axis=-1)
    assert usual.other is not None
    return Pace(slowest[None], usual.total + extra, usual.other + extra, usual.saved)


def least_pace(rooms: Sequence[RankRoom], case: Recompute, low: Array, high: Array, wanted: float) -> Array:
    """Least seconds at which ranks of both pools together hold so many layers, inf if they never do.

    Layers held only grow with the time that a rank may take.
    """
    holding = [room.under(case) for room in rooms]
    found, some = np.full(len(low), np.inf), np.arange(len(low))

    def enough(seconds: Array) -> Array:
        return sum((each.held(seconds) for each in holding), np.zeros(len(seconds))) >= wanted

    def left(which: Array) -> tuple[list[Holding], Array]:
        return [each.take(which) for each in holding], some[which]

    holding, some = left(np.flatnonzero(enough(high)))
    at_once = enough(low[some])
    found[some[at_once]] = low[some[at_once]]
    # Only what holds the layers, and in no less time, is worth a search.
    holding, some = left(np.flatnonzero(~at_once))
    bottom, top = low[some], high[some]
    for _ in range(HALVINGS if len(some) else 0):
        middle = (bottom + top) / 2
        holds = enough(middle)
        bottom, top = np.where(holds, bottom, middle), np.where(holds, middle, top)
    found[some] = bottom
    return found
