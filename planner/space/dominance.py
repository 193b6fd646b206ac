"""Sets of recomputed modules that another set makes needless, layer key by layer key."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.layer import LayerCost
from costmodel.memory.layer_memory import LayerMemory

Array = NDArray[Any]
ROUNDING = 1e-12
"""Relative difference of two figures that are the same one."""


def undominated(costs: Sequence[tuple[LayerCost, LayerMemory]]) -> list[Array]:
    """Of each set of modules, for which keys no other is as quick and as small in every layer: (sets, keys).

    Seconds and kept bytes of each kind of layer and of the last stage are compared; nothing else depends on
    what is recomputed. Of sets that are equal in all of them the first stays. With the other set
    each stage of a plan is as quick and fits as well. A longer micro-batch hides more of the data-parallel
    traffic, but no more than it is longer: what it loses in every micro-batch it can win back in one. Only
    where layers are of two kinds and the slowest rank has none of the slower one may it win, by less.
    """
    if not costs:
        return []
    figures = [_figures(cost, memory) for cost, memory in costs]
    keep = [np.ones(figure.shape[1], dtype=bool) for figure in figures]
    for i, j in combinations(range(len(figures)), 2):
        first = (figures[i] <= figures[j] * (1 + ROUNDING)).all(axis=0)
        second = (figures[j] <= figures[i] * (1 + ROUNDING)).all(axis=0)
        keep[j] &= ~first
        keep[i] &= ~second | first
    return keep


def _figures(cost: LayerCost, memory: LayerMemory) -> Array:
    """(figures, keys)."""
    return np.vstack([cost.total.T, cost.last[None], memory.kept.kinds.T, memory.kept.last[None]])
