"""Lower bounds on the time of a step that no stage assignment can beat."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.pipeline import chunk_range
from costmodel.run import Column
from costmodel.stage import PerLayer, StageRates
from costmodel.step import pipeline_time

Array = NDArray[Any]


def whole_model(rates: PerLayer, layers: Array) -> Array:
    """A per-layer quantity summed over the whole model: (...,)."""
    return (layers * rates.kinds).sum(axis=-1) + rates.first + rates.last


def least_slowest(rates: StageRates, layers: Array, pp: Column, chunks: Column) -> Array:
    """Least seconds of the slowest rank: the mean, ceil(L/p) layers, or an end with a layer in each chunk."""
    work = rates.work
    total = whole_model(work, layers)
    cheapest = work.kinds.min(axis=-1)
    fullest = np.ceil(layers.sum(axis=-1) / pp) * cheapest
    ends = np.maximum(work.first, work.last) + chunks * cheapest
    return np.maximum(np.maximum(total / pp, fullest), ends)


def per_step_floor(rates: StageRates, layers: Array, pp: Column, again: Column) -> Array:
    """Least data-parallel and optimizer time of the worst rank.

    Both are convex in what a rank holds, so the worst rank has at least the value of the mean rank;
    hiding is bounded by the busiest a rank can be (`again` = 1: with every layer recomputed). And for
    each kind some rank holds ceil(L/p) layers of it or more.
    """
    busy = PerLayer(rates.work.kinds + _each(again) * rates.recompute, rates.work.first, rates.work.last)
    floor, optimizer = rates.exposed_floor, rates.optimizer
    mean = whole_model(optimizer, layers) / pp
    fullest = np.ceil(layers / _each(pp))
    crowded = fullest * optimizer.kinds
    for traffic, window in ((rates.reduce, rates.reduce_window), (rates.gather, rates.gather_window)):
        total = whole_model(traffic, layers) / pp
        mean = mean + np.maximum(total - window * whole_model(busy, layers) / pp, floor * total)
        shown = traffic.kinds - window * busy.kinds
        # Layers of other kinds, embedding and head on the same rank may hide more than they add.
        others = np.minimum(shown, 0.0) * layers
        others = others.sum(axis=-1, keepdims=True) - others
        ends = np.minimum(traffic.first - window * busy.first, 0.0) + np.minimum(
            traffic.last - window * busy.last, 0.0
        )
        # More layers than ceil(L/p) add to what shows only if a layer shows more than it hides.
        held = np.where(shown > 0, fullest, layers) * shown
        crowded = crowded + np.maximum(held + others + ends[..., None], floor * fullest * traffic.kinds)
    return np.maximum(mean, crowded.max(axis=-1))


def _each(value: Column) -> Array:
    """A column with an axis for kinds."""
    return np.asarray(value)[..., None]


def step_bound(
    rates: StageRates,
    layers: Array,
    pp: Column,
    vpp: Column,
    num_microbatches: Column,
    slowest: Array,
    extra: Column,
    again: Column,
) -> Array:
    """A step is at least this long if its slowest rank takes `slowest` and recompute adds `extra` in all."""
    total = whole_model(rates.work, layers) + extra
    busy = pipeline_time(slowest, np.maximum(total, slowest), num_microbatches, vpp, rates.bubble)
    transfers = num_microbatches * rates.p2p_steady + (pp - 1) * rates.p2p_fill
    return (busy + transfers + per_step_floor(rates, layers, pp, again) + rates.fixed) * rates.scale


def quick_bound(
    rates: StageRates,
    layers: Array,
    pp: Column,
    vpp: Column,
    num_microbatches: Column,
    chunks: Column,
    again: Column = 1,
) -> Array:
    """The bound that ignores memory: cheap enough for every row. A rank holds at least `chunks` layers.

    `again` is 0 where no layer can be recomputed in full.
    """
    slowest = least_slowest(rates, layers, pp, chunks)
    return step_bound(rates, layers, pp, vpp, num_microbatches, slowest, 0.0, again)


@dataclass(frozen=True, slots=True)
class Recompute:
    """How many of a rank's layers are recomputed: (rows, ranks) or numbers.

    At least `least` (or all, if it holds fewer); memory may profit from `most`, or if `more` from as
    many as it takes.
    """

    least: Column
    most: Column
    more: bool
    total: Column = 0
    """Layers that all ranks together recompute at least: (rows,) or a number."""

    def take(self, index: Array) -> Recompute:
        """The case for some of its rows."""

        def rows(value: Any) -> Any:
            return value[index] if isinstance(value, np.ndarray) else value

        return Recompute(rows(self.least), rows(self.most), self.more, rows(self.total))


def recompute_cases(recompute: str, uniform: bool, layers: int, pp: Array, vpp: Array) -> list[Recompute]:
    """Cases that together cover what a stage assignment may recompute.

    Rows are alike: all without a pipeline, all 1F1B, or all interleaved (`schedule_kind`).
    """
    if recompute == "none":
        return [Recompute(0, 0, False)]
    if recompute == "all":
        return [Recompute(layers, layers, False, layers)]
    if not uniform or pp[0] == 1:
        # One stage recomputes as many layers as it takes either way.
        return [Recompute(0, 0, True)]
    if vpp[0] == 1:
        most = min(-(-layers // int(pp.min())) + 2, MOST_CASES)
        cases = [Recompute(q, q, False, pp * min(q, 1)) for q in range(most)]
        return [*cases, Recompute(most, most, True, pp)]
    return _interleaved_cases(layers, pp, vpp)


def _interleaved_cases(layers: int, pp: Array, vpp: Array) -> list[Recompute]:
    """Uniform recompute of q layers a virtual stage, up to all that one holds."""
    rank, last = np.arange(int(pp.max())), pp[:, None] - 1
    end, base = (np.asarray(value) for value in chunk_range(layers, (pp * vpp)[:, None])[:2])
    ends = (rank == 0).astype(int) + (rank == last)
    cases = []
    for q in range(int(base.max()) + 2):
        # A stage at an end may hold fewer than q layers.
        least = np.where(q > base, layers, vpp[:, None] * q - ends * (q > end))
        most = np.where(q > base, layers, vpp[:, None] * q)
        total = np.where(q > base[:, 0], layers, np.where(rank <= last, least, 0).sum(axis=-1))
        cases.append(Recompute(least, most, False, total))
    return cases


def schedule_kind(pp: Array, vpp: Array) -> Array:
    """0 without a pipeline, 1 for 1F1B, 2 interleaved."""
    return np.where(pp == 1, 0, np.where(vpp == 1, 1, 2))


@dataclass(frozen=True, slots=True)
class Extent:
    """What ranks may hold and keep in flight: (rows, ranks), ranks beyond pp hold nothing."""

    least: Array
    """Fewest layers."""
    most: Array
    surplus: Array
    """Sum over chunks of its fewest layers x (micro-batches in flight - the rank's least)."""
    in_flight_least: Array
    """Of the rank's chunks, the one that keeps least in flight."""
    in_flight_most: Array
    exists: Array

    def take(self, index: Array) -> Extent:
        return Extent(*(getattr(self, f.name)[index] for f in fields(self)))


def extent(layers: int, pp: Array, vpp: Array, num_microbatches: Array, kinds: int) -> Extent:
    """Extents of many schedules at once: pipeline.micro_batches_in_flight and chunk_range in closed form.

    The counts of a rank's chunks fall from the first to the last and add up to its warm-up.
    """
    rank = np.arange(int(pp.max()))
    p, v, m = pp[:, None], vpp[:, None], num_microbatches[:, None]
    # Ranks beyond pp are padding; one micro-batch keeps their numbers harmless.
    single = np.maximum(np.minimum(m, p - rank), 1)
    warm_up = np.minimum(2 * (p - rank - 1) + (v - 1) * p + 1, m * v)
    rounds, rest = np.divmod(np.maximum(warm_up, 1), p * v)
    first = np.where(v == 1, single, rounds * p + np.minimum(rest, p))
    last = np.where(v == 1, single, rounds * p + np.clip(rest - (v - 1) * p, 0, p))
    end, base, top = chunk_range(layers, p * v)
    short = np.where(v == 1, 0, base - end)
    base = np.where(v == 1, 1, base)
    least = base * v - short * ((rank == 0).astype(int) + (rank == p - 1))
    surplus = np.where(v == 1, 0, base * (warm_up - v * last) - short * (rank == 0) * (first - last))
    if kinds > 1:
        # Layers of the other kind may take a rank's places.
        least, surplus = np.zeros_like(least), np.zeros_like(surplus)
    exists = rank < p
    most = np.where(v == 1, layers, top * v)
    return Extent(least * exists, most * exists, surplus, last, first, exists)


def capacity_bound(
    rates: StageRates,
    layers: Array,
    pp: Array,
    vpp: Array,
    num_microbatches: Array,
    fewest: Array,
    limit: float,
    cases: list[Recompute],
    memory_vpp: Array | None = None,
) -> Array:
    """The bound that knows memory: (rows,), inf where no assignment fits.

    A rank that may take T seconds a micro-batch holds at most so many layers, with just enough of
    them recomputed to fit its memory; the smallest T at which the ranks together hold all layers is
    a bound on the slowest rank. Of two kinds of layers only the more numerous one is counted, and of
    the chunks of a rank the one that keeps least in flight (at `fewest` micro-batches): both only
    loosen the bound. `memory_vpp` = 1 gives a bound for every vpp: 1F1B keeps least in flight.
    """
    kind = int(np.argmax(layers))
    held = vpp if memory_vpp is None else memory_vpp
    room = RankRoom.of(rates, layers, kind, pp, held, fewest, limit)
    best = np.full(len(vpp), np.inf)
    for case in cases:
        slowest = smallest_bottleneck(rates, room, layers, pp, held, case)
        # Which kind of layer a case recomputes is open, unless it is all of them.
        every = (layers * rates.recompute).sum(axis=-1)
        cheapest = case.total * rates.recompute.min(axis=-1)
        extra = np.where(np.asarray(case.total) >= layers.sum(), every, cheapest)
        if case.more:
            needed = room.least_recomputed(float(layers[kind])) * rates.recompute[..., kind]
            extra = np.maximum(extra, needed)
        fits = np.isfinite(slowest)
        again = float(case.more or bool(np.any(case.most)))
        bound = step_bound(
            rates, layers, pp, vpp, num_microbatches, np.where(fits, slowest, 0.0), extra, again
        )
        best = np.minimum(best, np.where(fits, bound, np.inf))
    return best


MOST_CASES = 12
"""Numbers of uniformly recomputed layers that are looked at one by one; more of them are one looser case."""
BISECTIONS = 9
"""Halvings of the bracket, which is first narrowed to 1.2 times its lower end where that will do."""


def smallest_bottleneck(
    rates: StageRates, room: RankRoom, layers: Array, pp: Array, chunks: Array, case: Recompute
) -> Array:
    """Least time of the slowest rank at which all ranks hold the layers, inf if they never do: (rows,)."""
    wanted = float(layers.max())
    low = least_slowest(rates, layers, pp, chunks)
    high = (layers * (rates.work.kinds + rates.recompute)).sum(axis=-1) + rates.work.first + rates.work.last
    result = np.where(room.held(low, case) >= wanted, low, np.inf)
    # Only rows that hold the layers in no less time, but hold them at all, are worth a search.
    open_rows = np.flatnonzero(np.isinf(result))
    open_rows = open_rows[room.take(open_rows).held(high[open_rows], case.take(open_rows)) >= wanted]
    if not len(open_rows):
        return result
    some, asked, low, high = room.take(open_rows), case.take(open_rows), low[open_rows], high[open_rows]
    near = np.minimum(1.2 * low, high)
    high = np.where(some.held(near, asked) >= wanted, near, high)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        enough = some.held(middle, asked) >= wanted
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    result[open_rows] = low
    return result


@dataclass(frozen=True, slots=True)
class RankRoom:
    """What each rank can hold of one kind of layer: arrays (rows, ranks), rates (rows, 1).

    Memory of n layers, r of them recomputed: need*n + base - saved*r <= 0, and r <= n.
    """

    per_second: Array
    """1 / seconds of a layer; huge where layers take no time (an assumed MFU)."""
    again: Array
    per_second_again: Array
    """1 / seconds of a layer that is recomputed."""
    other_time: Array
    need: Array
    base: Array
    saved: Array
    slope: Array
    """Seconds of recompute that make room for a byte; 0 where recompute saves nothing."""
    per_second_mixed: Array
    """1 / (seconds of a layer and of the recompute that makes room for it)."""
    most: Array
    """Layers that fit with all of them recomputed."""
    extent: Extent

    @classmethod
    def of(
        cls,
        rates: StageRates,
        layers: Array,
        kind: int,
        pp: Array,
        vpp: Array,
        num_microbatches: Array,
        limit: float,
    ) -> RankRoom:
        reach = extent(int(layers.sum()), pp, vpp, num_microbatches, len(layers))
        least, most, entry = reach.in_flight_least, reach.in_flight_most, reach.in_flight_most[:, :1]
        rank = np.arange(least.shape[1])
        first, last = (rank == 0).astype(float), (rank == pp[:, None] - 1).astype(float)

        def ends(of: PerLayer) -> Array:
            return first * of.first[:, None] + last * of.last[:, None]

        kept, checkpoint = rates.kept.kinds[:, kind, None], rates.checkpoint[:, kind, None]
        states = rates.states.kinds[:, kind, None]
        fixed = ends(rates.states) + first * entry * rates.kept.first[:, None]
        fixed = fixed + last * rates.kept.last[:, None]
        fixed = fixed + np.maximum(rates.working[:, None], last * rates.loss[:, None])
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
            other_time=ends(rates.work) - TINY,
            need=need,
            base=surplus * kept - room,
            saved=saved,
            slope=slope,
            per_second_mixed=inverse(time + slope * need),
            most=np.minimum((room - surplus * lightest) / (states + least * lightest), reach.most),
            extent=reach,
        )

    def take(self, index: Array) -> RankRoom:
        """The room of some of its rows."""
        rows = {f.name: getattr(self, f.name)[index] for f in fields(self) if f.name != "extent"}
        return RankRoom(**rows, extent=self.extent.take(index))

    def held(self, slowest: Array, case: Recompute) -> Array:
        """Layers that all ranks together hold if none takes longer than `slowest`: (rows,)."""
        left = slowest[:, None] * (1 + 1e-12) - self.other_time
        some = self._held(left - case.least * self.again, self.base - case.most * self.saved, case.more)
        n = np.floor(np.minimum(some, self.most) + 1e-9)
        if np.any(case.least):
            all_again = np.minimum(left * self.per_second_again, self.most)
            n = np.where(n >= case.least, n, np.minimum(np.floor(all_again + 1e-9), case.least))
        n = np.where(n >= self.extent.least, n, -np.inf)
        return np.where(self.extent.exists, n, 0.0).sum(axis=-1)

    def _held(self, left: Array, base: Array, more: bool) -> Array:
        """Layers by time and memory, with more of them recomputed where that lets a rank hold more."""
        by_time = left * self.per_second
        free = -base / self.need
        if not more:
            return np.minimum(by_time, free)
        mixed = np.where(self.saved > 0, (left - self.slope * base) * self.per_second_mixed, free)
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


def slowest_rank_bound(
    rates: StageRates,
    layers: Array,
    pp: int,
    vpp: int,
    num_microbatches: int,
    limit: float,
    cases: list[Recompute],
) -> float:
    """Least seconds a micro-batch of one candidate's slowest rank, given its memory; inf if nothing fits."""
    row, chunks, ranks = one_row(rates), np.array([vpp]), np.array([pp])
    room = RankRoom.of(
        row, layers, int(np.argmax(layers)), ranks, chunks, np.array([num_microbatches]), limit
    )
    return min(float(smallest_bottleneck(row, room, layers, ranks, chunks, case)[0]) for case in cases)


def one_row(rates: StageRates) -> StageRates:
    """Rates of one candidate with a row axis."""

    def wide(value: Any) -> Any:
        if isinstance(value, PerLayer):
            return PerLayer(*(np.asarray(getattr(value, f.name))[None] for f in fields(PerLayer)))
        # np.float64 is a float too, but it is a rate here and not a profile's constant.
        return value if type(value) is float else np.asarray(value)[None]

    return replace(rates, **{f.name: wide(getattr(rates, f.name)) for f in fields(StageRates)})
