"""Coordinate descent over positive constants, for losses without usable derivatives."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
FIRST_STEP = 0.2
LAST_STEP = 0.002
"""Logarithms of the factors by which constants are moved."""


def descend(loss: Callable[[Values], float], start: Values, rounds: int = 60) -> Values:
    """Constants near `start` (all positive) with a small loss.

    Every constant goes up or down by a factor e^step where that helps; the step is halved when none does.
    """
    best, score, step = start.copy(), loss(start), FIRST_STEP
    for _ in range(rounds):
        improved = False
        for index in range(len(best)):
            for factor in (np.exp(step), np.exp(-step)):
                trial = best.copy()
                trial[index] *= factor
                value = loss(trial)
                if value < score:
                    best, score, improved = trial, value, True
        if not improved:
            step /= 2
        if step < LAST_STEP:
            break
    return best
