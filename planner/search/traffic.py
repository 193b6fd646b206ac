"""What ZeRO 2 and 3 move among ranks: a part of what pipelines take at least."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.bound.mix import layer_mix
from planner.bound.quick import whole_model
from planner.keybook import KeyBook
from planner.search.pipelines import PipelineTable, gpu_seconds
from planner.space.columns import FULL, Groups, families
from planner.space.recompute import OPEN

Array = NDArray[Any]


def with_traffic(book: KeyBook, pipelines: PipelineTable, index: Array, at_least: Array) -> Array:
    """GPU-seconds a token of pipelines, with what those of `index` move on what the deadline needs.

    `at_least` are the GPUs of that, by layer key.
    """
    # Within nodes next to nothing is moved.
    index = index[np.isinf(pipelines.by_node[index])]
    rows = pipelines.rows.take(index)
    ranks = rows.tp * rows.cp
    fewest = np.maximum(-(-at_least[rows.key] // (ranks * rows.pp)), -(-rows.ep * rows.etp // ranks))
    each = pipelines.gpu_seconds.copy()
    each[index] = moving_states(book, pipelines, index, np.maximum(fewest, 1))
    return each


def moving_states(book: KeyBook, pipelines: PipelineTable, index: Array, dp: Array) -> Array:
    """GPU-seconds a token of pipelines that move sharded weights or gradients among all ranks (ZeRO 2 and 3).

    The traffic only grows with the replicas, of which each pipeline has `dp` or more: its part of a ring's
    buffer is (n-1)/n, and beyond a node the ring is no quicker.
    """
    each, mix = pipelines.gpu_seconds[index], layer_mix(book.instance)
    # Those with an open variant keep their bound.
    index_of = np.flatnonzero(pipelines.rows.variant[index] != OPEN)
    for _, _, part in families(pipelines.rows.take(index[index_of])):
        of = index_of[part]
        some = index[of]
        rows = pipelines.rows.take(some)
        columns = {f.name: getattr(rows, f.name) for f in fields(rows)}
        one, shared = np.ones_like(rows.pp), np.full(len(rows), FULL)
        groups = Groups(**columns, pipeline=some, dp=dp[of], zero_scope=shared, m_low=one, m_high=one)
        work = book.rates(groups, vpp=1).work
        slowest = (whole_model(work, mix.totals) + pipelines.extra[some]) / rows.pp
        slowest = np.maximum(pipelines.slowest[some], slowest)
        each[of] = gpu_seconds(book, rows, slowest, pipelines.extra[some])
    return each
