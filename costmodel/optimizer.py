"""Time of the optimizer: bytes of states it reads and writes at the end of a step."""

from __future__ import annotations

import numpy as np

from costmodel.elementwise import memory_rate
from costmodel.memory.shape import add, scaled
from costmodel.memory.states import LocalParameters
from costmodel.run import Run
from costmodel.stage import PerLayer


def optimizer_time(run: Run, local: LocalParameters) -> PerLayer:
    """Seconds a step: t = P_loc*(sharded_bytes/z + local_bytes)/HBM.

    z = the ranks that share the states (all of dp*cp unless sharding is hybrid), for experts their own
    replicas; 1 without ZeRO.
    """
    stack, rate = run.stack.optimizer, memory_rate(run)
    sharded = np.greater_equal(run.zero, 1)
    dense = stack.sharded_bytes / np.where(sharded, run.state_shards, 1) + stack.local_bytes
    experts = stack.sharded_bytes / np.where(sharded, run.expert_shards, 1) + stack.local_bytes
    return add(
        scaled(add(local.layers, local.vocabulary), dense / rate), scaled(local.experts, experts / rate)
    )
