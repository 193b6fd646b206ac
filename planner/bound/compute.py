"""The bound that knows layers alone: a few operations a layout, for millions of them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.run import Column
from costmodel.step import pipeline_time
from planner.bound.mix import LayerMix

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class KeyCost:
    """Least seconds a micro-batch by layer key: (keys,)."""

    total: Array
    """All layers, embedding and head."""
    cheapest: Array
    """A layer of the cheapest kind."""
    usual: Array
    """A layer of the most numerous kind."""
    ends: Array
    """Embedding or head, whichever takes longer."""
    per_token: Array
    """GPU-seconds a token that an agreed MFU gives; else 0, and the others are 0 with it."""

    def take(self, index: Any) -> KeyCost:
        """Of some keys; an index of several dimensions gives columns to broadcast."""
        return KeyCost(*(getattr(self, f.name)[index] for f in fields(self)))


def slowest_bound(of: KeyCost, mix: LayerMix, pp: Column, chunks: Column) -> Array:
    """Least seconds of the slowest rank: the mean, ceil(L/p) layers, or an end with what it holds."""
    at_end = mix.least_at_ends(pp, chunks)
    slowest = np.maximum(np.ceil(mix.layers / np.asarray(pp)) * of.cheapest, of.ends + at_end * of.cheapest)
    if len(mix.totals) > 1:
        slowest = np.maximum(slowest, np.ceil(mix.totals.max() / np.asarray(pp)) * of.usual)
    return np.maximum(slowest, of.total / pp)


def compute_bound(
    of: KeyCost,
    slowest: Array,
    extra: Array,
    mix: LayerMix,
    pp: Column,
    vpp: Column,
    chunks: Column,
    num_microbatches: Column,
    tokens_per_gpu: Column,
    scale: Column,
    bubble: float,
) -> Array:
    """Seconds of a step from layers, pipeline bubble and stragglers: no transfers, no optimizer.

    The slowest rank takes `slowest` at least, and recompute adds `extra` over all ranks.
    """
    slowest = np.maximum(slowest, slowest_bound(of, mix, pp, chunks))
    total = np.maximum(of.total + extra, slowest)
    busy = pipeline_time(slowest, total, num_microbatches, vpp, bubble)
    return busy * scale + of.per_token * tokens_per_gpu
