"""Puts per-layer numbers of a run into one `PerLayer`, whatever mix of scalars and columns they are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from costmodel.run import Column
from costmodel.stage import PerLayer


def per_layer(kinds: Sequence[Column], first: Column, last: Column) -> PerLayer:
    """A `PerLayer` from one value a layer kind: (..., kinds), (...,), (...,)."""
    values = np.broadcast_arrays(*(np.asarray(value, dtype=float) for value in (*kinds, first, last)))
    return PerLayer(np.stack(values[:-2], axis=-1), values[-2], values[-1])


def scaled(quantity: PerLayer, factor: Column) -> PerLayer:
    """The quantity times one factor a candidate."""
    column = np.asarray(factor, dtype=float)
    return PerLayer(quantity.kinds * column[..., None], quantity.first * column, quantity.last * column)


def add(a: PerLayer, b: PerLayer) -> PerLayer:
    """Their sum."""
    return PerLayer(a.kinds + b.kinds, a.first + b.first, a.last + b.last)
