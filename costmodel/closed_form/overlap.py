"""Compute against communication: ratios, what shows, and a step put together the textbook way.

All times of one step or one micro-batch in the same unit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from costmodel.run import Column


def compute_ratio(compute: Column, communication: Column, num_microbatches: Column = 1) -> Column:
    """R = m*T_compute/T_comm; 1 and more can hide the communication. m for traffic once a step."""
    return num_microbatches * compute / communication


def communication_share(compute: Column, communication: Column, num_microbatches: Column = 1) -> Column:
    """Share of the step when nothing is hidden: T_comm/(m*T_compute + T_comm)."""
    return communication / (num_microbatches * compute + communication)


def exposed_seconds(communication: Column, hidden_share: Column) -> Column:
    """What is left after a share is hidden: (1 - o)*T."""
    return communication * (1 - hidden_share)


def required_bandwidth(sent: Column, seconds: Column, num_microbatches: Column = 1) -> Column:
    """bytes/s that hide a step's traffic behind m micro-batches: V/(m*T)."""
    return sent / (num_microbatches * seconds)


def rails(bandwidth: Column, rail: Column) -> Column:
    """Network ports that carry it: ceil(BW/port)."""
    return np.ceil(bandwidth / rail)


def critical_gpus(bandwidth: Column, single_gpu_seconds: Column, gradients: Column) -> Column:
    """Strong scaling: GPUs at which the gradient ring takes half the step, N = BW*T_1/(2G).

    T_1 is the whole batch on one GPU, the ring takes 2G/BW for large N.
    """
    return bandwidth * single_gpu_seconds / (2 * gradients)


def microbatch_seconds(
    compute: Column, tensor_parallel: Column = 0, *, hidden_share: Column = 0, expert_parallel: Column = 0
) -> Column:
    """One micro-batch on one stage: t_c + (1 - o)*t_TP + t_EP."""
    return compute + exposed_seconds(tensor_parallel, hidden_share) + expert_parallel


def step_seconds(
    microbatch: Column, num_microbatches: Column, pp: Column = 1, vpp: Column = 1, *, per_step: Column = 0
) -> Column:
    """Equal stages: (m + (p-1)/v)*t_mb, and what happens once a step (gradients, optimizer)."""
    return (num_microbatches + (pp - 1) / vpp) * microbatch + per_step


def overlapped_step_seconds(compute: Column, communication: Column, per_step: Column = 0) -> Column:
    """Perfect overlap: max(T_compute, T_comm), and what cannot overlap."""
    return np.maximum(compute, communication) + per_step
