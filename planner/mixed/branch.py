"""Layouts on two pools by what memory leaves of them, and the least that any of their schedules takes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.bound.mix import LayerMix
from planner.bound.recompute import recompute_cases
from planner.mixed.arrangement import Arrangement, alike
from planner.mixed.batches import most_of_batch, numbers_permitted
from planner.mixed.bound import SURE, Pace, pace_within_memory, step_of
from planner.mixed.costs import Around, MixedCosts
from planner.mixed.layouts import MixedRows
from planner.space.recompute import stage_recompute

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Branch:
    """Layouts with what memory leaves of them: all micro-batches that they keep in flight, or fewer."""

    rows: MixedRows
    costs: MixedCosts | None
    """None: not priced yet."""
    pace: Pace
    around: Around
    capped: Array
    """(2, rows) most micro-batches of each pool's replicas; inf where nothing caps them."""
    fewest: Array
    """(2, rows) fewest of them."""

    def take(self, index: Array) -> Branch:
        """Of some rows."""
        costs = None if self.costs is None else self.costs.take(index)
        return Branch(
            self.rows.take(index), costs, self.pace.take(index), self.around.take(index),
            self.capped[:, index], self.fewest[:, index],
        )  # fmt: skip

    @classmethod
    def opened(cls, rows: MixedRows, costs: MixedCosts | None, pace: Pace, around: Around) -> Branch:
        """Layouts with any number of micro-batches."""
        free = np.full((2, len(rows)), np.inf)
        return cls(rows, costs, pace, around, free, np.ones((2, len(rows)), dtype=np.int64))

    @property
    def full(self) -> Array:
        """(rows,) whether more micro-batches keep no more of them in flight."""
        enough = np.where(self.rows.vpp == 1, self.rows.pp, 2 * self.rows.pp)
        return np.asarray((self.fewest >= enough).all(axis=0))

    def fitting(self) -> Branch:
        """The rows that fit in memory."""
        return self.take(np.flatnonzero(self.pace.fits))


def branches_of(of: Arrangement, open_rows: Branch, family: int) -> list[Branch]:
    """Full pipelines, and for each pool those that keep fewer micro-batches in flight.

    Those do not fill, or are interleaved and run a single round of pp (`saturating_microbatches`).
    """
    rows, layers = open_rows.rows, of.instance.architecture.layers
    assert open_rows.costs is not None
    if not len(rows):
        return []
    (case,) = recompute_cases(stage_recompute(family), False, layers, rows.pp, rows.vpp)
    mix, chunked = LayerMix.of(of.instance.architecture), rows.vpp > 1
    most = np.stack([np.where(chunked, 2 * rows.pp, rows.pp)] * 2)

    def opened(fewest: Array, capped: Array, some: Array) -> Branch:
        at = open_rows.take(np.flatnonzero(some))
        assert at.costs is not None
        fewest, capped = fewest[:, some], capped[:, some]
        pace = pace_within_memory(at.costs, mix, fewest, case)
        return replace(at, pace=pace, fewest=fewest, capped=capped).fitting()

    free = open_rows.capped
    found = [opened(most, free, rows.pp > 0)]
    for sides in ([0, 1],) if alike(of) else ([0], [1]):
        capped = free.copy()
        capped[sides] = rows.pp - 1
        found.append(opened(np.ones_like(most), capped, ~chunked & (rows.pp > 1)))
    for sides in ([0, 1],) if alike(of) else ([0], [1], [0, 1]):
        fewest, capped = most.copy(), free.copy()
        fewest[sides] = capped[sides] = rows.pp
        found.append(opened(fewest, capped, chunked))
    return [branch for branch in found if len(branch.rows)]


def least_of(arranged: Arrangement, of: Branch) -> Array:
    """Seconds for the largest batch's sequences at the best rate of any schedule: (rows,).

    Time for each sequence falls with the number of micro-batches: the largest that is allowed. Where pools
    run different numbers of them, lines of S seconds do up to sum_i dp_i*(S - b_i)/t_i micro-batches, of one
    pool no more than its cap, which is the best rate at the largest batch or where the cap begins.
    """
    rows, most = of.rows, float(arranged.instance.max_batch)
    size = arranged.keys.micro_batch[rows.key]
    if alike(arranged):
        sequences = size * rows.replicas(arranged)
        m = most_of_batch(arranged.instance, sequences, of.fewest[0], of.capped[0])
        fits = m > 0
        step = step_of(of.around, of.pace, np.stack([m, m]))
        return np.where(fits, step * most / np.maximum(sequences * m, 1), np.inf) * SURE
    numbers, around = numbers_permitted(arranged.instance), of.around
    if not len(numbers):
        return np.full(len(rows), np.inf)
    of = replace(of, capped=np.minimum(of.capped, numbers[-1]))
    one, two = (of.pace.line(around, np.full(rows.dp.shape, n)) for n in (1.0, 2.0))
    # What each micro-batch adds to the fixed part is that of the pool that runs most of them at least.
    each = two - one
    rest = around.end + around.fixed.max(axis=0)
    return _best_rate(of, each, one - each, rest, most / size) * around.scale * most / size * SURE


def _best_rate(of: Branch, each: Array, start: Array, rest: Array, most: Array) -> Array:
    """Least seconds a micro-batch with lines of m*each + start; `most` micro-batches in all."""
    dp, cap = of.rows.dp, of.capped
    first = np.maximum(*(each * of.fewest + start))

    def done(seconds: Array) -> Array:
        free = np.maximum((seconds - start) / each, 0.0)
        return np.minimum((dp * np.minimum(free, cap)).sum(axis=0), most)

    def when_all(index: int | None) -> Array:
        """When the largest batch is done, with the cap of one pool reached or none."""
        rates, late = dp / each, dp * start / each
        if index is None:
            return (most + late.sum(axis=0)) / rates.sum(axis=0)
        left = most - dp[index] * np.where(np.isinf(cap[index]), 0.0, cap[index])
        return (left + late[1 - index]) / rates[1 - index]

    moments = [when_all(None)]
    for index in (0, 1):
        known = np.isfinite(cap[index])
        cap_at = start[index] + each[index] * np.where(known, cap[index], 0.0)
        moments += [np.where(known, cap_at, moments[0]), np.where(known, when_all(index), moments[0])]
    best = np.full(len(most), np.inf)
    for moment in moments:
        seconds = np.maximum(moment, first)
        best = np.minimum(best, (seconds + rest) / np.maximum(done(seconds), 1e-300))
    return np.where(of.pace.fits, best, np.inf)
