"""What a step takes at least whatever memory allows: the parts of the bound that knows it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.run import Column
from costmodel.stage import PerLayer, StageRates
from costmodel.step import pipeline_time
from planner.bound.mix import LayerMix

Array = NDArray[Any]


def whole_model(rates: PerLayer, layers: Array) -> Array:
    """A per-layer quantity summed over the whole model: (...,)."""
    return (layers * rates.kinds).sum(axis=-1) + rates.first + rates.last


def least_slowest(rates: StageRates, mix: LayerMix, pp: Column, chunks: Column) -> Array:
    """Least seconds of the slowest rank: the mean, ceil(L/p) layers, or an end with what it holds.

    ceil(L/p) of all layers, or of one kind of them.
    """
    work, layers = rates.work, mix.totals
    total = whole_model(work, layers)
    cheapest, at_end = work.kinds.min(axis=-1), mix.least_at_ends(pp, chunks)
    fullest = np.ceil(layers.sum(axis=-1) / pp) * cheapest
    fullest = np.maximum(fullest, (np.ceil(layers / _each(pp)) * work.kinds).max(axis=-1))
    ends = np.maximum(work.first, work.last) + at_end * cheapest
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
