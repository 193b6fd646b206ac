"""Whether the layers fit a pipeline's memory at all: a few operations a rank, for the many that do not."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.stage import StageRates
from planner.bound.mix import LayerMix

Array = NDArray[Any]
CELLS = 1 << 16
"""Rows x ranks that are looked at together: they stay in cache."""


def may_fit(
    rates: StageRates,
    mix: LayerMix,
    pp: Array,
    fewest: Array,
    limit: float,
    recomputes: bool,
    ranks: Array | None = None,
) -> Array:
    """(rows,) bool, False only where no assignment of any schedule fits.

    A rank with k micro-batches in flight holds floor(R / (s + k*a)) layers at most, R its room without
    embedding and head, s a layer's states, a its activations (`recomputes`: with every layer recomputed);
    k = min(fewest, pp - rank) in 1F1B, which keeps least in flight. All ranks together hold all layers.
    `ranks`: more of them, for pipelines of pp stages and all longer ones up to there. Rows come with
    ascending ranks, which keeps the padding small.
    """
    ranks = pp if ranks is None else ranks
    kind, fits = mix.kind, np.empty(len(pp), dtype=bool)
    kept = rates.kept.kinds[:, kind]
    each = np.minimum(kept, rates.checkpoint[:, kind]) if recomputes else kept
    states = rates.states.kinds[:, kind]
    room = (limit - rates.fixed_bytes) / (1 + rates.overhead) - rates.working
    step = max(CELLS // max(int(ranks.max(initial=1)), 1), 1)
    for start in range(0, len(pp), step):
        at = slice(start, start + step)
        flying = np.arange(1, int(ranks[at].max()) + 1)
        need = states[at, None] + np.minimum(flying, fewest[at, None]) * each[at, None]
        held = np.floor(np.maximum(room[at, None], 0.0) / need + 1e-9)
        held = np.minimum(held, mix.layers) * (flying <= ranks[at, None])
        fits[at] = held.sum(axis=-1) >= float(mix.totals.max())
    if len(mix.totals) == 1:  # a rank holds a layer or more; of two kinds it may be the other one
        fits &= room >= (states + np.minimum(pp, fewest) * each) * (1 - 1e-9)
    return fits
