"""When nothing fits: up to how many nodes more of them are looked at, and that no number is enough."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.units import DAY
from planner.english import counted, enumerated
from planner.instance import Instance
from planner.keybook import KeyBook
from planner.solution import Relaxation
from planner.space.recompute import recompute_families
from planner.space.values import base_keys
from planner.variants import only, pool_name

Array = NDArray[Any]
TIMES = 16
"""So many times the nodes there are is how far more of them are looked at, at least."""
MANY = 2048
"""Nodes that are looked at whatever there are."""
ASKED = ("deadline", "memory")
"""Limits that more nodes may help to keep."""


def most_looked_at(instance: Instance, index: int) -> int:
    """Up to how many nodes of a pool are looked at: no more than any layout uses."""
    there = instance.pools[index].max_nodes
    return min(max(TIMES * there, MANY), most_used(instance, index))


def most_used(instance: Instance, index: int) -> int:
    """No layout fills more nodes of a pool: a layer on each stage, a micro-batch on each replica.

    tp * cp * layers * max_batch / micro_batch
    """
    tp, cp, _, _, micro_batch = base_keys(instance, index)
    if not len(tp):
        return 0
    replicas = instance.max_batch // micro_batch
    gpus = int((tp * cp * replicas).max()) * instance.architecture.layers
    return gpus // instance.pools[index].fabric.gpus_per_node


def no_number_of_nodes(
    instance: Instance, limits: Sequence[str], moves: Iterable[Relaxation]
) -> dict[str, str]:
    """That no number of nodes makes a plan possible, where more of them could."""
    if any(move.limit == "nodes" for move in moves) or not any(name in ASKED for name in limits):
        return {}
    floor = min((least_seconds(instance, index) for index in instance.described), default=0.0)
    if np.isinf(floor):
        return {}
    if instance.limits.deadline is not None and floor > instance.limits.deadline:
        why = f"on any number of them the largest batches take {counted(floor / DAY, 'day', '.3g')} or more"
        return {"nodes": f"no number of nodes makes a plan possible by itself: {why}"}
    most = {index: most_looked_at(instance, index) for index in instance.described}
    every = all(number == most_used(instance, index) for index, number in most.items())
    up_to = [f"{number:,} of {pool_name(instance, index)}" for index, number in most.items()]
    which = "no number of nodes" + ("" if every else f" up to {enumerated(up_to, 'or')}")
    return {"nodes": f"{which} makes a plan possible by itself"}


def least_seconds(instance: Instance, index: int) -> float:
    """Seconds of a run on any number of nodes at least: every step one micro-batch goes through all layers.

    tokens / (max_batch * seq_len) * seconds of all layers
    """
    if instance.assume_mfu is not None:
        return 0.0
    alone = only(instance, index)
    book = KeyBook.of(alone, recompute_families(alone))
    steps = instance.tokens / (instance.max_batch * instance.seq_len)
    return float(steps * np.min(book.least.total, initial=np.inf))
