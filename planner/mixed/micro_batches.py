"""Numbers of micro-batches that a layout on two pools may run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.mixed.arrangement import Arrangement
from planner.mixed.branch import Branch, alike
from planner.mixed.layouts import MixedRows

Array = NDArray[Any]
PAIRS = 1 << 20
"""Pairs of numbers of micro-batches that are written down together."""


def numbers_of(of: Arrangement, one: Branch, wins: Callable[[Array], Array]) -> Array:
    """(2, schedules) numbers of micro-batches of one layout that may win.

    `wins` says which pairs of numbers, of whole columns of them, may.
    """
    return _same_numbers(of, one) if alike(of) else _own_numbers(of, one, wins)


def _same_numbers(of: Arrangement, one: Branch) -> Array:
    """Both pools run the same number: those whose batch is allowed."""
    instance, rows = of.instance, one.rows
    sequences = int(of.keys.micro_batch[rows.key[0]]) * int(rows.replicas(of)[0])
    most = int(min(instance.max_batch // sequences, one.capped[0, 0]))
    m = _allowed(of, np.arange(int(one.fewest[0]), most + 1))
    pairs = _within(of, rows, np.stack([m, m]))
    # More of them are never slower a token, and need no more memory once the pipeline is full.
    return pairs[:, -1:] if one.filled[0] and not instance.limits.steps else pairs


def _own_numbers(of: Arrangement, one: Branch, wins: Callable[[Array], Array]) -> Array:
    """Each pool runs a number of its own: pairs whose batch is allowed and that may win."""
    first, second = one.rows.dp[:, 0].tolist()
    low, cap = int(one.fewest[0]), one.capped[:, 0]
    total = of.instance.max_batch // int(of.keys.micro_batch[one.rows.key[0]])
    mine, others = (
        _allowed(of, np.arange(low, int(min((total - rest) // dp, most)) + 1))
        for dp, rest, most in ((first, second, cap[0]), (second, first, cap[1]))
    )
    block, parts = max(PAIRS // max(len(others), 1), 1), [np.empty((2, 0), dtype=np.int64)]
    for start in range(0, len(mine), block):
        grid = np.meshgrid(mine[start : start + block], others, indexing="ij")
        pairs = _within(of, one.rows, np.stack([column.reshape(-1) for column in grid]))
        parts.append(pairs[:, wins(pairs)])
    return np.concatenate(parts, axis=1)


def _allowed(of: Arrangement, m: Array) -> Array:
    return m[of.instance.narrowing.permitted("num_microbatches", m)]


def _within(of: Arrangement, rows: MixedRows, m: Array) -> Array:
    """Of pairs of one layout, those whose global batch is allowed."""
    instance, batch = of.instance, rows.sequences(of, m)
    inside = (batch >= instance.min_batch) & (batch <= instance.max_batch)
    return m[:, inside & instance.narrowing.permitted("global_batch", batch)]
