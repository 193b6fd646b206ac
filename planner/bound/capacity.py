"""The bound that knows memory."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.stage import PerLayer, StageRates
from planner.bound.mix import LayerMix
from planner.bound.quick import least_slowest, step_bound
from planner.bound.recompute import Recompute
from planner.bound.room import RankRoom

Array = NDArray[Any]
BISECTIONS = 9
"""Halvings of the bracket, which is first narrowed to two neighbouring multiples of its lower end."""
MULTIPLES = (1.2, 1.5, 2.0, 3.0)
"""Of the time that the work alone takes. All layers on one rank take so much longer than what is usual that
halving up to there would say little."""


def capacity_bound(
    rates: StageRates,
    mix: LayerMix,
    pp: Array,
    vpp: Array,
    num_microbatches: Array,
    fewest: Array,
    limit: float,
    cases: list[Recompute],
    memory_vpp: Array | None = None,
    interleaved: bool = False,
) -> Array:
    """The bound that knows memory: (rows,), inf where no assignment fits.

    A rank that may take T seconds a micro-batch holds at most so many layers, with just enough of
    them recomputed to fit its memory; the smallest T at which the ranks together hold all layers is
    a bound on the slowest rank. Of two kinds of layers only the more numerous one is counted, beside what
    leads on the first rank, and of the chunks of a rank the one that keeps least in flight (at `fewest`
    micro-batches): both only loosen the bound. `memory_vpp` = 1 gives a bound for every vpp: 1F1B keeps
    least in flight; if `interleaved` for every one but 1.
    """
    held = vpp if memory_vpp is None else memory_vpp
    room = RankRoom.of(
        rates, mix, pp, held, fewest, limit, memory_vpp is not None, interleaved, recomputes(cases)
    )
    best = np.full(len(vpp), np.inf)
    for case in cases:
        slowest, extra = within_memory(rates, room, mix, pp, held, case)
        fits = np.isfinite(slowest)
        again = float(case.more or bool(np.any(case.most)))
        bound = step_bound(
            rates, mix.totals, pp, vpp, num_microbatches, np.where(fits, slowest, 0.0), extra, again
        )
        best = np.minimum(best, np.where(fits, bound, np.inf))
    return best


def recomputes(cases: list[Recompute]) -> bool:
    """Whether any case recomputes whole layers."""
    return any(case.more or bool(np.any(case.most)) for case in cases)


def within_memory(
    rates: StageRates,
    room: RankRoom,
    mix: LayerMix,
    pp: Array,
    chunks: Array,
    case: Recompute,
    halvings: int = BISECTIONS,
) -> tuple[Array, Array]:
    """Least seconds of the slowest rank, inf if nothing fits, and what recompute adds over all ranks."""
    layers, slowest = mix.totals, smallest_bottleneck(rates, room, mix, pp, chunks, case, halvings)
    # Which kind of layer a case recomputes is open, unless it is all of them.
    every = (layers * rates.recompute).sum(axis=-1)
    cheapest = case.total * rates.recompute.min(axis=-1)
    extra = np.where(np.asarray(case.total) >= layers.sum(), every, cheapest)
    if case.more:
        needed = room.least_recomputed(float(layers[mix.kind])) * rates.recompute[..., mix.kind]
        extra = np.maximum(extra, needed)
    return slowest, extra


def smallest_bottleneck(
    rates: StageRates,
    room: RankRoom,
    mix: LayerMix,
    pp: Array,
    chunks: Array,
    case: Recompute,
    halvings: int = BISECTIONS,
) -> Array:
    """Least time of the slowest rank at which all ranks hold the layers, inf if they never do: (rows,)."""
    layers, wanted = mix.totals, float(mix.totals.max())
    low = least_slowest(rates, mix, pp, chunks)
    high = (layers * (rates.work.kinds + rates.recompute)).sum(axis=-1) + rates.work.first + rates.work.last
    holding = room.under(case)
    result = np.where(holding.held(low) >= wanted, low, np.inf)
    # Only rows that hold the layers in no less time, but hold them at all, are worth a search.
    open_rows = np.flatnonzero(np.isinf(result))
    if len(open_rows):
        holding = holding.take(open_rows)
        some = np.flatnonzero(holding.held(high[open_rows]) >= wanted)
        open_rows, holding = open_rows[some], holding.take(some)
    if not len(open_rows):
        return result
    low, high = low[open_rows], high[open_rows]
    least = low
    for multiple in MULTIPLES:
        near = np.minimum(multiple * least, high)
        enough = holding.held(near) >= wanted
        low, high = np.where(enough, low, near), np.where(enough, near, high)
        if enough.all():
            break
    for _ in range(halvings):
        middle = (low + high) / 2
        enough = holding.held(middle) >= wanted
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    result[open_rows] = low
    return result


def case_bounds(
    rates: StageRates,
    mix: LayerMix,
    pp: int,
    vpp: int,
    num_microbatches: int,
    limit: float,
    case: Recompute,
    rows: int,
) -> tuple[Array, Array]:
    """Of one candidate and each row of a case: least seconds of its slowest rank, and of its step.

    inf where nothing fits.
    """
    of, ranks, chunks, m = repeated(rates, rows), *(np.full(rows, n) for n in (pp, vpp, num_microbatches))
    room = RankRoom.of(of, mix, ranks, chunks, m, limit)
    slowest, extra = within_memory(of, room, mix, ranks, chunks, case)
    fits = np.isfinite(slowest)
    step = step_bound(of, mix.totals, ranks, chunks, m, np.where(fits, slowest, 0.0), extra, 1.0)
    return slowest, np.where(fits, step, np.inf)


def repeated(rates: StageRates, rows: int) -> StageRates:
    """Rates of one candidate as so many equal rows."""

    def wide(value: Any) -> Any:
        if isinstance(value, PerLayer):
            return PerLayer(*(wide(np.asarray(getattr(value, f.name))) for f in fields(PerLayer)))
        # np.float64 is a float too, but it is a rate here and not a profile's constant.
        return value if type(value) is float else np.broadcast_to(value, (rows, *np.shape(value)))

    return replace(rates, **{f.name: wide(getattr(rates, f.name)) for f in fields(StageRates)})
