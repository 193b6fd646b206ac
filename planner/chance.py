"""Deadline and budget as chance constraints: how much longer than predicted a run has to be expected.

The length of a run is lognormal around its prediction: sigma from the band of its step time, w from failures,
independent of each other. A limit holds at a confidence if the quantile of the length stays within it.
"""

from __future__ import annotations

from math import exp, hypot, log, log1p, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.goodput.finish import finish_moments
from costmodel.goodput.goodput import Goodput
from planner.confidence import EDGE, Band, band_of, least_margins
from planner.instance import Instance
from planner.running import losses_of
from planner.site import Site
from planner.space.columns import Groups
from planner.space.runs import run_of_rows

Array = NDArray[Any]


def length_spread(site: Site | None, num_gpus: int, losses: Goodput, work: float) -> float:
    """Standard deviation w of the logarithm of a run's length that failures make; `work` in seconds."""
    if site is None or site.reliability is None:
        return 0.0
    mean, deviation = finish_moments(site.process(num_gpus, losses), work)
    return sqrt(log1p((deviation / mean) ** 2))


def length_quantile(share: float, band: Band | None, spread: float) -> float:
    """Length over predicted length that such a share of runs stays below: exp(z*sqrt(sigma^2 + w^2) - w^2/2).

    sigma is that of the half of the band on that side.
    """
    z = NormalDist().inv_cdf(share)
    edge = 1.0 if band is None else band.high if z > 0 else band.low
    return exp(z * hypot(abs(log(edge)) / EDGE, spread) - spread**2 / 2)


def share_within(ratio: float, band: Band | None, spread: float) -> float:
    """Share of runs whose length over predicted length is at most `ratio`: inverse of `length_quantile`."""
    if ratio <= 0:
        return 0.0
    over = log(ratio) + spread**2 / 2
    edge = 1.0 if band is None else band.high if over > 0 else band.low
    width = hypot(abs(log(edge)) / EDGE, spread)
    return NormalDist().cdf(over / width) if width else float(over >= 0)


def least_margins_of(instance: Instance, rows: Groups) -> Array | None:
    """The least that limits have to allow for, a row each; None where no confidence is asked for.

    Of all numbers of micro-batches that a row stands for, and without failures, which widen what is to be
    allowed for: limits divided by it are a relaxation. (rows,) of lengths over predicted lengths.
    """
    share = instance.limits.chance
    if share is None:
        return None
    found = np.ones(len(rows))
    names = ("pool", "tp", "cp", "pp", "dp", "ep", "micro_batch", "m_low", "m_high")
    keys = np.stack([getattr(rows, name) for name in names])
    _, first, place = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    some = rows.take(first)
    for pool in np.unique(some.pool).tolist():
        at = np.flatnonzero(some.pool == pool)
        of = some.take(at)
        found[at] = least_margins(run_of_rows(instance, pool, 0, of, vpp=1), of.m_low, share)
    return found[place.reshape(-1)]


def margin_of(instance: Instance, row: Groups, step: float) -> float:
    """What limits have to allow for of one plan: exact, at its largest number of micro-batches and step."""
    share = instance.limits.chance
    if share is None:
        return 1.0
    run = run_of_rows(instance, int(row.pool[0]), 0, row, vpp=1).take(0)
    return length_quantile(share, band_of(run), spread_of(instance, row, step))


def spread_of(instance: Instance, row: Groups, step: float) -> float:
    """length_spread of one plan's run."""
    pool, num_gpus = instance.pools[int(row.pool[0])], int(row.num_gpus[0])
    losses = losses_of(pool, num_gpus, int(row.dp[0]))
    batch = float(row.micro_batch[0] * row.m_high[0] * row.dp[0] * instance.seq_len)
    work = instance.tokens / batch * (step + float(losses.evaluation))
    return length_spread(pool.site, num_gpus, losses, work)


def most_spreads(instance: Instance, rows: Groups, step: Array) -> Array:
    """At least `spread_of` each row: of the shortest run on as many GPUs and replicas, which varies most."""
    work = step / (rows.micro_batch * rows.m_high * rows.dp)
    _, place = np.unique(np.stack([rows.pool, rows.num_gpus, rows.dp]), axis=1, return_inverse=True)
    found, place = np.zeros(len(rows)), place.reshape(-1)
    for which in range(int(place.max(initial=-1)) + 1):
        of = np.flatnonzero(place == which)
        least = of[int(np.argmin(work[of]))]
        found[of] = spread_of(instance, rows.take(np.array([least])), float(step[least]))
    return found
