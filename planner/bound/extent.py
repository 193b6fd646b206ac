"""How many layers pipeline ranks may hold, and how many micro-batches they keep in flight."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.pipeline import chunk_sizes
from planner.bound.mix import LayerMix

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Extent:
    """What ranks may hold and keep in flight: (rows, ranks), or (rows, 1) where ranks are alike.

    Ranks beyond pp are padding: `exists` tells.
    """

    least: Array
    """Fewest layers."""
    most: Array
    each: Array
    """Layers x micro-batches in flight of a rank with n layers: each*n + `surplus` or more.

    Of the first rank those of its first chunk, the one that may be without layers; of others the chunk's
    that keeps least."""
    surplus: Array
    in_flight_least: Array
    """Of the rank's chunks, the one that keeps least in flight."""
    in_flight_most: Array
    exists: Array
    lead: Array
    """Leading layers of the rarer kind that a rank must hold if it holds any layer of the other."""
    rare: Array
    """Most layers of the rarer kind."""
    level: Array
    """Layers of both kinds that an interleaved rank holds at least, beside leading ones; 0 where nothing says
    so."""
    level_surplus: Array
    """Of so many layers of any kind what they keep beside the least of any chunk each, leading ones aside."""


def extent(
    mix: LayerMix,
    pp: Array,
    vpp: Array,
    num_microbatches: Array,
    any_vpp: bool,
    interleaved: bool = False,
) -> Extent:
    """Extents of many schedules at once: pipeline.micro_batches_in_flight and level_chunks in closed form.

    Of a model with two kinds of layers, what ranks hold of the more numerous one. With `any_vpp`,
    vpp = 1 stands for all, or if `interleaved` for all but 1 where there is a pipeline.
    """
    rank, p = np.arange(int(pp.max(initial=1))), pp[:, None]
    # Ranks beyond pp are padding; one micro-batch keeps their numbers harmless.
    single = np.clip(p - rank, 1.0, num_microbatches[:, None])
    one, none = np.ones(p.shape), np.zeros(p.shape)
    flat = Extent(
        least=mix.layers // p * one if mix.even else one,
        most=(mix.layers // p if mix.even else mix.layers) * one,
        each=single,
        surplus=none,
        in_flight_least=single,
        in_flight_most=single,
        exists=rank < p,
        lead=none,
        rare=none,
        level=none,
        level_surplus=none,
    )
    if interleaved:
        reach = _however_interleaved(flat, mix.layers, p)
    elif (vpp == 1).all():
        reach = flat
    else:
        reach = _interleaved(flat, mix.layers, p, vpp[:, None], num_microbatches)
    return reach if len(mix.totals) == 1 else _of_kind(reach, mix, p, vpp[:, None], any_vpp)


def _interleaved(flat: Extent, layers: int, p: Array, v: Array, num_microbatches: Array) -> Extent:
    """Extents of rows that are interleaved where vpp > 1.

    The counts of a rank's chunks fall from the first to the last and add up to its warm-up.
    """
    rank, m = np.arange(flat.exists.shape[1]), num_microbatches[:, None]
    warm_up = np.minimum(2 * (p - rank - 1) + (v - 1) * p + 1, m * v)
    rounds, rest = np.divmod(np.maximum(warm_up, 1), p * v)
    first = np.where(v == 1, flat.in_flight_most, rounds * p + np.minimum(rest, p))
    last = np.where(v == 1, flat.in_flight_least, rounds * p + np.clip(rest - (v - 1) * p, 0, p))
    of = chunk_sizes(layers, p, v)
    held, smaller = of.held, of.smaller
    fewer = np.where(v == 1, 0, of.at_first * (rank == 0) + of.at_last * (rank == p - 1))
    # The last chunks are the ones that hold a layer more.
    without = np.clip(v - (held - smaller * v), 0, v)
    larger = warm_up - without * rounds * p - np.minimum(rest, without * p)
    whole = smaller * warm_up + larger
    each = np.where((rank == 0) & (fewer > 0), first, last)
    return replace(
        flat,
        least=np.where(v == 1, 1.0, held - fewer),
        most=np.where(v == 1, layers, held) * np.ones(p.shape),
        each=each,
        surplus=np.where(v == 1, 0.0, whole - held * each),
        level=np.where(v == 1, 0.0, held - fewer),
        level_surplus=np.where(v == 1, 0.0, whole - held * last - fewer * (each - last)),
        in_flight_least=last,
        in_flight_most=first,
    )


def _however_interleaved(flat: Extent, layers: int, p: Array) -> Extent:
    """Extents for any vpp > 1, and of rows without a pipeline.

    Every chunk but the last keeps p micro-batches in flight or more, and the last one, which holds at most
    half the layers, min(p, 2(p - rank) - 1).
    """
    rank, several = np.arange(flat.exists.shape[1]), p > 1
    # Two chunks are the ones of which the ends can be without the most layers.
    of = chunk_sizes(layers, p, np.full_like(p, 2))
    held, fewest = of.held, of.held - of.at_first * (rank == 0) - of.at_last * (rank == p - 1)
    less = (p - np.minimum(p, 2 * (p - rank) - 1)) * of.larger
    return replace(
        flat,
        least=np.where(several, fewest, flat.least),
        most=np.where(several, held, flat.most),
        each=np.where(several, p, flat.each),
        surplus=np.where(several, -1.0 * less, 0.0),
        in_flight_least=np.where(several, p, flat.in_flight_least),
        in_flight_most=np.where(several, p, flat.in_flight_most),
        level=np.where(several, fewest, 0.0),
        level_surplus=np.where(several, -1.0 * less, 0.0),
    )


def _of_kind(reach: Extent, mix: LayerMix, p: Array, v: Array, any_vpp: bool) -> Extent:
    """Extents of the more numerous of two kinds of layers."""
    rank, chunked = np.arange(reach.exists.shape[1]), v > 1
    of = chunk_sizes(mix.layers, p, v)
    base = np.where(chunked, of.smaller, 1)
    end = base - np.where(chunked, of.at_first, 0)
    # Layers of the other kind may take a rank's places: anywhere, or those of the leading stages.
    taken = 1 + np.maximum(-(-(mix.lead - end) // np.maximum(base, 1)), 0) if mix.lead else p * v
    # The first stage may be empty if the pipeline is interleaved in the end.
    late = ((-mix.layers % p > 0) & any_vpp).astype(int)
    open_to_rare = rank < taken + late
    # Interleaved, the first chunk holds `end` layers or more, and leading ones come first among them.
    chunk = np.where(v == 1, mix.lead, np.minimum(mix.lead, end))
    chunk = np.minimum(mix.lead, 1) * (1 - late) if any_vpp else chunk
    lead = np.where(rank == 0, chunk, 0.0)
    # Ranks that are short of layers keep more a layer, and less beside them: here none of either.
    wider = reach.each > reach.in_flight_least
    return replace(
        reach,
        least=np.where(open_to_rare, 0.0, reach.least),
        most=reach.most - lead,
        each=np.where(open_to_rare, reach.in_flight_least, reach.each),
        surplus=np.where(open_to_rare, np.where(wider, 0.0, np.minimum(reach.surplus, 0.0)), reach.surplus),
        lead=lead,
        rare=np.where(open_to_rare, mix.lead or mix.layers, 0.0),
        level=np.maximum(reach.level - lead, 0.0),
        # Leading layers lie in the first chunk, whose micro-batches in flight are counted with them.
        level_surplus=reach.level_surplus - lead * (reach.in_flight_most - reach.in_flight_least),
    )
