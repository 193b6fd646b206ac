"""What any run takes at least, known before a layer is priced: model FLOPs at the peak of the GPUs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.flops import model_flops_per_token
from planner.instance import Instance
from planner.search.goal import Goal
from planner.search.least import PerGpuSecond

Array = NDArray[Any]


def gpu_seconds_at_peak(instance: Instance) -> Array:
    """(pools,) GPU-seconds a token: model FLOPs over the peak of the quickest precision of the GPU.

    Nothing under an agreed MFU, which may be any number and of other FLOPs than the model's.
    """
    if instance.assume_mfu is not None:
        return np.zeros(len(instance.pools))
    flops = float(model_flops_per_token(instance.architecture, instance.seq_len))
    return np.array([flops / max(pool.gpu.peak_flops.values()) for pool in instance.pools])


def floor(instance: Instance, goal: Goal) -> float:
    """No plan on one pool has a smaller first sort key."""
    pools = np.arange(len(instance.pools))
    per_gpu_second = PerGpuSecond.of(instance, goal, pools, np.zeros_like(pools))
    least = per_gpu_second.least(goal.limits, pools, gpu_seconds_at_peak(instance))
    return float(least.value.min())
