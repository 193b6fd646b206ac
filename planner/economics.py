"""From the time of a step to the days and dollars of a run, and to the order of plans."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.money import dollars
from planner.instance import Instance, Limits, Term
from planner.space import Groups

Array = NDArray[Any]
DAY = 86400.0


def run_seconds(instance: Instance, rows: Groups, step: Array) -> Array:
    """Seconds of the whole run: tokens / tokens a step x seconds a step."""
    batch = rows.micro_batch * rows.m_high * rows.dp
    return instance.tokens / (batch * float(instance.seq_len)) * step


def run_dollars(instance: Instance, rows: Groups, seconds: Array) -> Array:
    """What the run costs: the GPUs for as long as it runs, or for the committed window if that is longer."""
    price = np.array([p.price for p in instance.pools])[rows.pool]
    committed = np.array([p.committed for p in instance.pools])[rows.pool]
    return dollars(rows.num_gpus, seconds / DAY, price, committed / DAY)


def within(limits: Limits, seconds: Array, cost: Array) -> Array:
    """Rows that meet deadline and budget."""
    ok = np.isfinite(seconds)
    if limits.deadline is not None:
        ok &= seconds <= limits.deadline
    if limits.budget is not None:
        ok &= cost <= limits.budget
    return ok


def keys(
    objective: tuple[tuple[Term, float], ...], lexicographic: bool, rows: Groups, seconds: Array, cost: Array
) -> tuple[Array, ...]:
    """Sort keys of plans, most important first: the objective, then time, then fewer GPUs."""
    terms = {"cost": cost, "time": seconds}
    if lexicographic:
        first = tuple(terms[name] for name, _ in objective)
    else:
        weight = {"cost": 1.0, "time": 1 / DAY}
        first = (sum((terms[name] * weight[name] * factor for name, factor in objective), np.zeros(len(rows))),)
    return (*first, seconds, rows.num_gpus.astype(float))


def ranks(columns: tuple[Array, ...]) -> Array:
    """Position of each row in the order of the keys; equal rows share a position.

    Keys are compared to 1e-9 relative, so that rounding does not decide between equal plans.
    """
    rounded = [np.where(np.isfinite(c), _digits(c), np.inf) for c in columns]
    order = np.lexsort(rounded[::-1])
    differs = np.zeros(len(order), dtype=bool)
    for column in rounded:
        differs[1:] |= column[order][1:] != column[order][:-1]
    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.cumsum(differs)
    return position


def _digits(values: Array) -> Array:
    """Values rounded to ten significant digits."""
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = 10.0 ** (10 - np.ceil(np.log10(np.abs(values))))
    scale = np.where(np.isfinite(scale) & (scale > 0), scale, 1.0)
    return np.round(values * scale) / scale
