"""How often to save: Young, Daly, and the exact optimum of the expected time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.run import Column

NEWTON_STEPS = 8


def young_interval(stall: Column, mtbf: Column) -> Column:
    """sqrt(2*delta*M). Young (1974), CACM 17(9)."""
    return np.sqrt(2 * stall * mtbf)


def daly_interval(stall: Column, mtbf: Column) -> Column:
    """sqrt(2*delta*M)*(1 + sqrt(delta/(2M))/3 + delta/(18M)) - delta, M where delta >= 2M.

    Daly (2006), Future Generation Computer Systems 22(3), eq. 37.
    """
    series = 1 + np.sqrt(stall / (2 * mtbf)) / 3 + stall / (18 * mtbf)
    return np.where(stall < 2 * mtbf, young_interval(stall, mtbf) * series - stall, mtbf)


def free_interval(stall: Column, mtbf: Column) -> NDArray[Any]:
    """Seconds of training between checkpoints that minimise `expected_seconds`, exactly, if writes keep up.

    d/dtau (e^((tau + s)/M) - 1)/tau = 0 gives -ln(1 - x) - x = s/M, x = tau/M, solved by Newton's
    method from the right, where it converges monotonically (the left side is convex).
    """
    ratio = np.asarray(stall / mtbf, dtype=float)
    x = np.minimum(np.sqrt(2 * ratio), -np.expm1(-1 - ratio))
    with np.errstate(divide="ignore", invalid="ignore"):
        for _ in range(NEWTON_STEPS):
            x = np.where(x > 0, x - (-np.log1p(-x) - x - ratio) * (1 - x) / x, 0.0)
    return x * mtbf


def behind_writes(interval: Column, stall: Column, write: Column) -> NDArray[Any]:
    """An interval so long that a checkpoint is written before the next one starts: tau >= write - s."""
    return np.maximum(interval, write - stall)


def optimal_interval(stall: Column, mtbf: Column, write: Column = 0.0) -> NDArray[Any]:
    """The best interval where writes go on beside training; the expected time rises beyond the free one."""
    return behind_writes(free_interval(stall, mtbf), stall, write)


def expected_seconds(
    interval: Column, stall: Column, write: Column, restart: Column, mtbf: Column
) -> NDArray[Any]:
    """Expected wall-clock seconds for each second of training.

    M * e^((R + w)/M) * (e^(max(tau + s, w)/M) - 1)/tau: training runs for tau, stands still for s, the
    checkpoint counts w later, and a failure (exponential, mean M, in restarts as well) costs a restart R
    and all work since the last checkpoint that counts. With w = 0 it is Daly's (2006, eq. 20).

    Derivation by renewal: a stretch between failures lasts M*e^(R/M) with its restarts and saves
    n*tau, n = floor((X - w)/(tau + s)) with X exponential, E[n] = e^(-w/M)/(e^((tau + s)/M) - 1).
    """
    with np.errstate(over="ignore", divide="ignore"):
        period = np.maximum(interval + stall, write)
        return np.asarray(mtbf * np.exp((restart + write) / mtbf) * np.expm1(period / mtbf) / interval)


def first_order_goodput(interval: Column, stall: Column, restart: Column, mtbf: Column) -> Column:
    """The textbook's 1 - delta/tau - (tau/2 + R)/M, good while all terms are small."""
    return 1 - stall / interval - (interval / 2 + restart) / mtbf


def whole_steps(
    interval: Column, step_time: Column, stall: Column, write: Column, restart: Column, mtbf: Column
) -> NDArray[Any]:
    """Steps between checkpoints: the neighbour of interval/step_time, at least 1, that costs less time.

    As `expected_seconds` falls up to the best interval and rises behind it, no other number is better.
    """
    low = np.maximum(np.floor(interval / step_time), 1)
    below = expected_seconds(low * step_time, stall, write, restart, mtbf)
    above = expected_seconds((low + 1) * step_time, stall, write, restart, mtbf)
    return np.where(below <= above, low, low + 1)


def steps_by_margin(mtbf: Column, step_time: Column, margin: Column) -> Column:
    """A cruder rule: M/(T_step*margin) steps, with a margin of 5 to 10."""
    return mtbf / (step_time * margin)


def interval_seconds(steps: Column, step_time: Column) -> Column:
    """Training between checkpoints: the most that a failure can undo."""
    return steps * step_time
