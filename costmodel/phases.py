"""Runs in phases: a batch that grows, a longer context at the end. Each phase has steps of its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from costmodel.run import Column


def tokens_a_step(global_batch: Column, seq_len: Column) -> Column:
    """Tokens of an optimizer step: B*S."""
    return global_batch * seq_len


def steps_of(tokens: Column, global_batch: Column, seq_len: Column) -> Column:
    """Optimizer steps of a phase: D/(B*S)."""
    return tokens / tokens_a_step(global_batch, seq_len)


def phased_seconds(steps: Sequence[Column], step_times: Sequence[Column]) -> NDArray[np.float64]:
    """Seconds of all phases one after the other: sum of steps*T_step."""
    total = np.zeros(())
    for count, seconds in zip(steps, step_times, strict=True):
        total = total + np.asarray(count * seconds, dtype=float)
    return total
