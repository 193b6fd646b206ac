"""When a run ends: not a date but a distribution."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.goodput.interval import expected_seconds
from costmodel.goodput.simulate import Process

Array = NDArray[Any]
USUAL = (0.5, 0.8, 0.95)


def stretch_moments(process: Process) -> tuple[float, float]:
    """Wall-clock seconds a second of training, mean and variance of a long run, without waiting for spares.

    A stretch between failures lasts L = X + D and keeps tau*n, n = floor((X - w)/P), X exponential of
    mean M, D the restarts until one succeeds: E[D] = M(e^r - 1), Var[D] = M^2(e^2r - 2r*e^r - 1),
    r = R/M. By renewal and reward the time for W seconds of work is asymptotically normal with mean
    c*W and variance W/(tau*E[n]) * Var[L - c*tau*n], c = E[L]/(tau*E[n]).
    """
    M, w, P, tau = process.mtbf, process.write, process.period, process.interval
    q, a, r = np.exp(-P / M), np.exp(-w / M), process.restart / M
    mean = float(expected_seconds(tau, process.stall, w, process.restart, M))
    once, twice = q / (1 - q), q / (1 - q) ** 2
    n, square, joint = a * once, a * (2 * twice - once), a * (P * twice + (w + M) * once)
    restarts = M**2 * (np.exp(2 * r) - 2 * r * np.exp(r) - 1)
    reward = mean * tau
    spread = restarts + M**2 + reward**2 * (square - n**2) - 2 * reward * (joint - M * n)
    return mean, float(spread / (tau * n))


def waiting_moments(process: Process, seconds: float) -> tuple[float, float]:
    """Mean and variance of the seconds spent waiting for spares while the run is up for so many seconds.

    By the clock that stops while the run waits, the nodes in repair are a birth and death chain on
    0 to s: failures at rate a, k repairs at k/T. A failure in state s waits for the first of s + 1
    repairs, exponential of mean m = T/(s + 1). With the stationary law pi and the deviation matrix
    D = (Pi - Q)^-1 - Pi: mean a*m*(pi_s*U + D_0s), as all spares are there at the start, and variance
    U*(2*a*m^2*pi_s + 2*(a*m)^2*pi_s*D_ss).
    """
    states = np.arange(process.spares + 1)
    rate, wait = process.swap_share / process.mtbf, process.repair / (process.spares + 1)
    births = np.full(process.spares, rate)
    generator = np.diag(births, 1) + np.diag(states[1:] / process.repair, -1)
    generator -= np.diag(generator.sum(axis=1))
    weight = np.cumprod(np.concatenate([[1.0], births * process.repair / states[1:]]))
    limit = np.tile(weight / weight.sum(), (len(states), 1))
    deviation = np.linalg.inv(limit - generator) - limit
    last = limit[-1, -1]
    mean = rate * wait * (last * seconds + deviation[0, -1])
    return float(mean), float(2 * rate * wait**2 * last * seconds * (1 + rate * deviation[-1, -1]))


def finish_moments(process: Process, work: float) -> tuple[float, float]:
    """Mean and standard deviation, in seconds, of the wall-clock time for `work` seconds of training."""
    mean, variance = stretch_moments(process)
    seconds, spread = mean * work, variance * work
    if process.repair:
        waiting, noise = waiting_moments(process, seconds)
        seconds, spread = seconds + waiting, spread * (1 + waiting / seconds) ** 2 + noise
    return float(seconds), float(np.sqrt(spread))


def finish_quantiles(process: Process, work: float, shares: Sequence[float] = USUAL) -> list[float]:
    """Wall-clock seconds within which such shares of runs end, from the two moments (log-normal)."""
    mean, deviation = finish_moments(process, work)
    width = np.sqrt(np.log1p((deviation / mean) ** 2))
    return [float(mean * np.exp(NormalDist().inv_cdf(p) * width - width**2 / 2)) for p in shares]
