"""Activations in host memory: how much of them is on the GPU all the same."""

from __future__ import annotations

import numpy as np

from costmodel.run import Column, Run

LAYERS_BACK = 2
"""Without a pipeline: the layer of the backward pass, and the next one on its way back."""


def returned_share(run: Run) -> Column:
    """Share of one micro-batch of a rank's layers that has been offloaded and is back: x/v, or x*2/L.

    Pipelines bring back a virtual stage at a time (Yuan et al. 2024, Megatron-Kwai, whose eleven published
    peaks fall by that much); without one, layers come back one by one, one of them ahead (TRL's and
    torchtune's OffloadActivations).
    """
    if not run.offload:
        return 0.0
    layers = np.minimum(1.0, LAYERS_BACK / run.architecture.layers)
    return run.offload * np.where(np.asarray(run.pp) > 1, 1 / np.asarray(run.vpp), layers)
