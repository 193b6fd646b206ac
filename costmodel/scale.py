"""Stragglers and jitter: what a step loses because the slowest of many GPUs sets its pace."""

from __future__ import annotations

import numpy as np

from costmodel.run import Run
from costmodel.stage import Array


def straggler_factor(run: Run) -> Array:
    """Multiplier on the step time: 1 + c*log2(N/N0) beyond N0 GPUs."""
    stack = run.stack.scale
    return 1.0 + stack.per_doubling * np.log2(np.maximum(run.num_gpus / stack.from_gpus, 1.0))
