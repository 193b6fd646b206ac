"""Rows of decisions as runs: the noun that the cost model takes."""

from __future__ import annotations

from typing import Any

import numpy as np

from costmodel.run import Run
from planner.instance import Instance
from planner.space.columns import NODE, Candidates, Groups
from planner.space.recompute import run_of, variants


def run_of_rows(instance: Instance, pool: int, variant: int, rows: Groups, vpp: Any = None) -> Run:
    """The cost model's noun for rows of a pool in one variant; groups have no `vpp` of their own."""
    names = ("tp", "cp", "pp", "dp", "ep", "etp", "micro_batch", "zero")
    columns = {name: getattr(rows, name) for name in names}
    if np.any(rows.zero_scope):  # else all share with all; saves passes over memory
        near = instance.pools[pool].fabric.domain // rows.tp
        columns["shard_ranks"] = np.where(rows.zero_scope == NODE, near, np.inf)
    chunks = rows.vpp if vpp is None and isinstance(rows, Candidates) else vpp
    of = variants(instance.framework)[variant]
    return run_of(instance, instance.pools[pool], of, vpp=chunks, num_microbatches=rows.m_high, **columns)
