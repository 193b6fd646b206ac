"""Prices of layouts on two pools, from the key book's costs of layers and the links between the pools."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from costmodel.mixed import crossing, replica_rates
from costmodel.stage import Array, StageRates
from planner.mixed.arrangement import Arrangement
from planner.mixed.costs import MixedCosts
from planner.mixed.layouts import MixedRows
from planner.search.rows import memory_limit
from planner.space.runs import run_of_rows

Rates = tuple[StageRates, StageRates]


def costs_of(of: Arrangement, rows: MixedRows) -> MixedCosts:
    """What rows of one recompute family cost."""
    each = of.instance.stack.optimizer.micro_batch
    # Rows are priced at one micro-batch.
    first, second = (replace(r, fixed=r.fixed - each) for r in (_rates(of, rows, side) for side in (0, 1)))
    move = _one_pipeline if of.form == "stages" else _a_pipeline_each
    steady, fill = move(of, rows, (first, second))
    limits = memory_limit(of.instance, of.pools[0]), memory_limit(of.instance, of.pools[1])
    return MixedCosts(
        of.form == "stages", (first, second), steady, fill, rows.pp, rows.vpp, rows.split, limits, each
    )


def _rates(of: Arrangement, rows: MixedRows, side: int) -> StageRates:
    """Rates on one pool; of replicas, states and gradients are shared with the other's."""
    own = of.book.rates(rows.on(of, side, rows.dp[side]), vpp=rows.vpp)
    if of.form == "stages":
        return own
    every = rows.on(of, side, rows.replicas(of))
    shared = of.joint.rates(every, vpp=rows.vpp, elsewhere=rows.dp[1 - side])
    return replica_rates(own, shared)


def _one_pipeline(of: Arrangement, rows: MixedRows, rates: Rates) -> tuple[Array, Array]:
    """(1, rows) steady and fill transfers of pipelines over both pools, in seconds (`mixed.lines_of`)."""
    first, second = rates
    on_both = rows.on(of, 0, rows.dp[0])
    run = run_of_rows(of.joint.instance, of.pools[0], int(on_both.variant[0]), on_both, vpp=rows.vpp)
    steady, fill = crossing(run)
    steady = np.maximum(steady, np.maximum(first.p2p_steady, second.p2p_steady))
    fill = fill + (rows.split - 1) * first.p2p_fill + (rows.pp - rows.split - 1) * second.p2p_fill
    return steady[None], fill[None]


def _a_pipeline_each(of: Arrangement, rows: MixedRows, rates: Rates) -> tuple[Array, Array]:
    """(2, rows) steady and fill transfers of each pool's pipelines, in seconds."""
    steady = np.stack([r.p2p_steady for r in rates])
    return steady, np.stack([(rows.pp - 1) * r.p2p_fill for r in rates])
