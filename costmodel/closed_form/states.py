"""Model states: bytes a parameter costs, and what ZeRO shards.

Mixed-precision Adam: 2 weights + 2 gradients + 12 optimizer (4 master weights, 4 + 4 moments) = 16
bytes a parameter; FP32 gradients make it 18. ZeRO (arXiv:1910.02054), section 3.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from costmodel.run import Column


def optimizer_bytes(master: Column = 4, first: Column = 4, second: Column = 4) -> Column:
    """Optimizer bytes a parameter: master weights and the moments it keeps, 12 for Adam.

    8-bit Adam 4 + 1 + 1 = 6; SGD with momentum 4 + 4 + 0 = 8; BF16 moments 4 + 2 + 2 = 8; pure FP32
    training needs no master copy.
    """
    return master + first + second


def state_bytes(
    parameters: Column, *, weights: Column = 2, gradients: Column = 2, optimizer: Column = 12
) -> Column:
    """All model states unsharded: (w + g + o)*P. Gradient accumulation adds nothing."""
    return (weights + gradients + optimizer) * parameters


def zero_bytes(
    parameters: Column,
    stage: Column,
    group: Column,
    *,
    weights: Column = 2,
    gradients: Column = 2,
    optimizer: Column = 12,
) -> Column:
    """Model states of a GPU that holds P parameters of a replica, sharded over a group of z.

    Stage 0: (w+g+o)*P; 1: (w+g)*P + o*P/z; 2: w*P + (g+o)*P/z; 3: (w+g+o)*P/z.
    """
    shard = 1 / group
    weight_part = weights * np.where(np.asarray(stage) >= 3, shard, 1)
    gradient_part = gradients * np.where(np.asarray(stage) >= 2, shard, 1)
    optimizer_part = optimizer * np.where(np.asarray(stage) >= 1, shard, 1)
    return parameters * (weight_part + gradient_part + optimizer_part)


def local_parameters(
    dense: Column, experts: Column = 0, *, tp: Column = 1, pp: Column = 1, ep: Column = 1, etp: Column = 1
) -> Column:
    """Parameters of an average GPU of a replica: P_dense/(t*p) + P_expert/(e*etp*p)."""
    return dense / (tp * pp) + experts / (ep * etp * pp)
