"""Fits alpha + V/B + c*sqrt(V) to the measured times of one collective on one group of GPUs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np

from costmodel.calibration.descent import Values

NOISE = 0.05
"""Expected relative error of a point; beyond HUBER times that it counts as an outlier."""
HUBER = 1.5
PRIOR_SD = 1.0
"""How far each term may be from the known curve's, relative: it decides only what the points leave open."""
SMALLEST = 0.01
"""Latency and inverse bandwidth stay above this share of the known curve's: a curve needs both."""
ROUNDS = 30


def collective_seconds(constants: Values, sent: Values) -> Values:
    """Seconds: alpha + V/B + c*sqrt(V) with constants (alpha, B, c) and V bytes sent."""
    alpha, bandwidth, root = constants
    return alpha + sent / bandwidth + root * np.sqrt(sent)


def fit_collective(sent: Values, seconds: Values, known: Values) -> Values:
    """Constants (alpha, B, c), none negative, that fit the points best.

    Robust least squares of log(predicted/measured): Gauss-Newton steps in (alpha, 1/B, c), in which the
    time is linear, each a non-negative least-squares problem with Huber weights. `known` are the constants
    of a curve that is expected (the catalogue's).
    """
    terms = np.stack([np.ones_like(sent), sent, np.sqrt(sent)], axis=1)
    prior = np.array([known[0], 1 / known[1], max(known[2], np.finfo(float).tiny)])
    least = prior * np.array([SMALLEST, SMALLEST, 0.0])
    rows, wanted = np.diag(1 / prior) / PRIOR_SD, np.full(3, 1 / PRIOR_SD)
    here = nonnegative(np.vstack([terms / seconds[:, None]]), np.ones_like(seconds), prior)
    for _ in range(ROUNDS):
        here = np.maximum(here, least)
        time = terms @ here
        error = np.log(time / seconds)
        weight = np.sqrt(np.minimum(1.0, HUBER * NOISE / np.maximum(np.abs(error), NOISE / 1e3))) / NOISE
        slopes = terms / time[:, None]
        there = nonnegative(
            np.vstack([weight[:, None] * slopes, rows]), np.concatenate([weight * (1 - error), wanted]), prior
        )
        if np.allclose(there, here, rtol=1e-9, atol=0.0):
            break
        here = there
    alpha, inverse, root = np.maximum(here, least)
    return np.array([alpha, 1 / inverse, root])


def nonnegative(rows: Values, wanted: Values, scale: Values) -> Values:
    """The x >= 0 with the least |rows*x - wanted|: the best of the sub-problems that leave terms out.

    A few unknowns only. `scale` are magnitudes of the unknowns, which keep the numbers even.
    """
    count, best, least = rows.shape[1], np.zeros(rows.shape[1]), float("inf")
    scaled = rows * scale
    for size in range(count, 0, -1):
        for chosen in combinations(range(count), size):
            part = scaled[:, chosen]
            x = np.linalg.lstsq(part, wanted, rcond=None)[0]
            loss = float(np.sum((part @ x - wanted) ** 2))
            if loss < least and bool(np.all(x >= 0)):
                best, least = np.zeros(count), loss
                best[list(chosen)] = x
    return best * scale


def mean_error(constants: Values, sent: Values, seconds: Values) -> float:
    """Mean |log(predicted/measured)|."""
    return float(np.abs(np.log(collective_seconds(constants, sent) / seconds)).mean())


def left_out_error(sent: Values, seconds: Values, refit: Callable[[Values, Values], Values]) -> float:
    """The same where each point is predicted by a fit that has not seen it (leave-one-out)."""
    errors = np.empty(len(sent))
    for index in range(len(sent)):
        kept = np.arange(len(sent)) != index
        constants = refit(sent[kept], seconds[kept])
        errors[index] = mean_error(constants, sent[~kept], seconds[~kept])
    return float(errors.mean())
