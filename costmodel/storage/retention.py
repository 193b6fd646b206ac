"""Which checkpoints are kept, and the room that takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.run import Column


def steps_in(seconds: Column, step_time: Column) -> Column:
    """Steps of so long a run: T/T_step."""
    return seconds / step_time


def checkpoints_written(steps: Column, every: Column) -> Column:
    """Checkpoints of a run that saves every so many steps."""
    return steps / every


def kept_bytes(size: Column, count: Column) -> Column:
    """Room for so many checkpoints."""
    return size * count


def kept_checkpoints(
    recent: Column, seconds: Column, every: Column = np.inf, milestones: Column = 0, in_progress: Column = 0
) -> Column:
    """Checkpoints at the end of a run: the last few, one each so often, named ones, unfinished ones."""
    return recent + np.floor(seconds / every) + milestones + in_progress


@dataclass(frozen=True, slots=True)
class Retention:
    """The last few, one each so often, and named ones."""

    recent: int = 5
    every: float | None = None
    """Seconds between checkpoints that are kept for good."""
    milestones: int = 0
    in_progress: int = 1
    """Room for checkpoints that are being written while all others are still there."""

    def count(self, seconds: Column) -> NDArray[Any]:
        """Checkpoints there at most during a run of so many seconds."""
        every = np.inf if self.every is None else self.every
        return np.asarray(
            kept_checkpoints(self.recent, seconds, every, self.milestones, self.in_progress), dtype=float
        )
