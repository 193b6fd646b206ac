"""Numbers of micro-batches that a layout on two pools may run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.mixed.arrangement import Arrangement, alike
from planner.mixed.batches import batch_allowed, numbers_of_batch, numbers_permitted
from planner.mixed.branch import Branch
from planner.mixed.layouts import MixedRows

Array = NDArray[Any]
PAIRS = 1 << 20
"""Pairs of numbers of micro-batches that are written down together."""


Chosen = Callable[[Array], Array]
"""Indices of some of the pairs of numbers, (2, pairs)."""


def numbers_of(of: Arrangement, one: Branch, wins: Chosen, largest: Chosen) -> Array:
    """(2, schedules) numbers of micro-batches of one layout that may win.

    `wins` says which pairs may, `largest` which are enough where more are never slower.
    """
    return _same_numbers(of, one, largest) if alike(of) else _own_numbers(of, one, wins)


def _same_numbers(of: Arrangement, one: Branch, largest: Chosen) -> Array:
    """Both pools run the same number: those whose batch is allowed."""
    instance, rows = of.instance, one.rows
    sequences = int(of.keys.micro_batch[rows.key[0]]) * int(rows.replicas(of)[0])
    m = numbers_of_batch(instance, sequences)
    m = m[(m >= one.fewest[0, 0]) & (m <= one.capped[0, 0])]
    m = _whole_rounds(one.rows, m)
    pairs = np.stack([m, m])
    # More of them are never slower a token, and need no more memory once they keep no more in flight.
    return pairs[:, largest(pairs)] if one.full[0] and not instance.limits.steps else pairs


def _whole_rounds(rows: MixedRows, m: Array) -> Array:
    """Of numbers of one layout those that it can run: interleaved in rounds of pp."""
    return m[m % rows.pp[0] == 0] if rows.vpp[0] > 1 else m


def _own_numbers(of: Arrangement, one: Branch, wins: Chosen) -> Array:
    """Each pool runs a number of its own: pairs whose batch is allowed and that may win."""
    first, second = one.rows.dp[:, 0].tolist()
    low, cap = one.fewest[:, 0].tolist(), one.capped[:, 0]
    total = of.instance.max_batch // int(of.keys.micro_batch[one.rows.key[0]])
    numbers = _whole_rounds(one.rows, numbers_permitted(of.instance))
    mine, others = (
        numbers[(numbers >= low[i]) & (numbers <= min((total - low[1 - i] * rest) // dp, cap[i]))]
        for i, dp, rest in ((0, first, second), (1, second, first))
    )
    block, parts = max(PAIRS // max(len(others), 1), 1), [np.empty((2, 0), dtype=np.int64)]
    for start in range(0, len(mine), block):
        grid = np.meshgrid(mine[start : start + block], others, indexing="ij")
        pairs = _within(of, one.rows, np.stack([column.reshape(-1) for column in grid]))
        parts.append(pairs[:, wins(pairs)])
    return np.concatenate(parts, axis=1)


def _within(of: Arrangement, rows: MixedRows, m: Array) -> Array:
    """Of pairs of one layout, those whose global batch is allowed."""
    return m[:, batch_allowed(of.instance, rows.sequences(of, m))]
