"""Bytes that no tensor holds, and how much of a GPU a plan may fill."""

from __future__ import annotations

import numpy as np

from costmodel.memory.profile import MemoryProfile
from costmodel.run import Run
from costmodel.stage import Array
from hardware.accelerator import Accelerator


def fixed_bytes(run: Run) -> Array:
    """Context and communicators: fixed + group_bytes * communicators."""
    p = run.stack.memory
    return np.asarray(p.fixed_bytes + p.group_bytes * communicators(run))


def communicators(run: Run) -> Array:
    """Groups among TP, CP, PP, DP and EP with more than one rank."""
    sizes = (run.tp, run.cp, run.pp, run.dp, run.ep)
    return np.asarray(sum((np.asarray(size) > 1).astype(float) for size in sizes))


def usable_bytes(gpu: Accelerator) -> float:
    """What the driver lets processes allocate on the GPU together."""
    return gpu.memory.driver


def memory_limit(gpu: Accelerator, profile: MemoryProfile) -> float:
    """Predicted peak up to which a plan counts as fitting: capacity_share * usable bytes."""
    return profile.capacity_share * usable_bytes(gpu)
