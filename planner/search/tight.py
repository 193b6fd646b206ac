"""Bounds that know memory, of groups and of rows, grouped by what it takes to be vectorised."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.pipeline import most_chunks
from costmodel.records import gather
from costmodel.transfer import hop_time, steady_transfer
from planner.bound.capacity import capacity_bound
from planner.bound.mix import layer_mix
from planner.bound.recompute import recompute_cases, schedule_kind
from planner.evaluate import settled, settled_steps
from planner.keybook import KeyBook
from planner.search.open_variants import leanest, least_of_variants, may_fit_rates
from planner.search.rows import memory_limit
from planner.space.columns import Candidates, Groups, families, values_of
from planner.space.recompute import HIDDEN, OPEN, stage_recompute
from planner.space.runs import run_of_rows

Array = NDArray[Any]
PADDED = 1 << 16
"""Rows x ranks that fill one array, however different their pipelines are."""


def rank_buckets(pp: Array, kind: Array) -> list[Array]:
    """Indices of rows of one kind, with similar pp where there are many: their ranks fill one array."""
    size = np.zeros_like(pp)
    if len(pp) * int(pp.max(initial=1)) > PADDED:
        size = np.ceil(np.log2(pp) / 2).astype(np.int64)
    code = kind * 64 + size
    return [np.flatnonzero(code == value) for value in values_of(code)]


def group_memory_bound(book: KeyBook, groups: Groups) -> Array:
    """bound.capacity_bound of groups, for every vpp and number of micro-batches that goes with them.

    Where their variant is open it is the least of all variants.
    """
    bound = np.full(len(groups), np.inf)
    for _, family, of in families(groups):
        rows = groups.take(of)
        if (rows.variant == OPEN).any():
            bare, lean = leanest(book, rows, family)
            may = np.flatnonzero(may_fit_rates(book, rows, lean(book.least_rates(bare)), family))
            bound[of[may]] = _least_of_open(book, rows.take(may), family)
        else:
            bound[of] = _group_bound(book, rows, family)
    return bound


def fitting_variants(book: KeyBook, groups: Groups) -> Array:
    """Whether groups may fit in memory with their variant, of those that their layer key leaves open."""
    fits = np.ones(len(groups), dtype=bool)
    chosen = np.flatnonzero((book.keys.variant[groups.key] == OPEN) & (groups.variant != OPEN))
    for _, family, of in families(groups.take(chosen)):
        at = chosen[of]
        fits[at] = np.isfinite(_group_bound(book, groups.take(at), family))
    return fits


def _least_of_open(book: KeyBook, rows: Groups, family: int) -> Array:
    """The bound of groups of one pool and family whose variant is open."""

    def fits(copies: Groups, which: Array) -> Array:
        return may_fit_rates(book, copies, book.least_rates(copies), family)

    def quickest(copies: Groups, which: Array) -> Array:
        nothing = np.zeros(len(copies))
        return book.bound(copies, nothing, nothing) * (1 - 1e-12)

    def bound(copies: Groups, which: Array) -> Array:
        return _group_bound(book, copies, family)

    return least_of_variants(book, rows, family, fits, quickest, bound)


def _group_bound(book: KeyBook, rows: Groups, family: int) -> Array:
    """The bound of groups of one pool and family, each in its variant."""
    bound, mix = np.full(len(rows), np.inf), layer_mix(book.instance)
    if not len(rows):
        return bound
    rates, pool = book.least_rates(rows), int(rows.pool[0])
    # One or two chunks transfer least.
    interleaved = run_of_rows(book.instance, pool, int(rows.variant[0]), rows, vpp=2)
    steady = np.minimum(rates.p2p_steady, steady_transfer(interleaved, hop_time(interleaved)))
    rates = replace(rates, p2p_steady=steady)
    limit, recompute = memory_limit(book.instance, pool), stage_recompute(family)
    for at in rank_buckets(rows.pp, np.zeros(len(rows), dtype=np.int64)):
        some = rows.take(at)
        one = np.ones_like(some.pp)
        most = np.where(some.filled == 1, most_chunks(mix.layers, some.pp), 1)
        cases = recompute_cases(recompute, False, mix.layers, some.pp, one)
        here = rates if len(at) == len(rows) else gather(rates, at)
        bound[at] = capacity_bound(
            here, mix, some.pp, most, some.m_high, some.m_low, limit, cases, one, family >= HIDDEN
        )
    return bound


def row_memory_bound(book: KeyBook, candidates: Candidates, uniform: bool) -> Array:
    """bound.capacity_bound of rows; of those that leave no choice, what they take."""
    bound, apart = np.empty(len(candidates)), settled(candidates)
    for pool, family, of in families(candidates):
        recompute = stage_recompute(family)
        done = apart[of] if recompute == "none" else np.zeros(len(of), dtype=bool)
        rows, limit = candidates.take(of[done]), memory_limit(book.instance, pool)
        if len(rows):
            bound[of[done]] = settled_steps(book, rows, book.rates(rows), limit) * (1 - 1e-12)
        if len(rows) < len(of):
            some = of[~done]
            bound[some] = _row_bound(book, candidates.take(some), family, uniform)
    return bound


def _row_bound(book: KeyBook, rows: Candidates, family: int, uniform: bool) -> Array:
    """bound.capacity_bound of rows of one pool and family."""
    bound, mix, recompute = np.empty(len(rows)), layer_mix(book.instance), stage_recompute(family)
    rates, limit = book.rates(rows), memory_limit(book.instance, int(rows.pool[0]))
    # Only cases of uniform recompute depend on the schedule.
    kind = schedule_kind(rows.pp, rows.vpp) if uniform and recompute == "some" else np.zeros_like(rows.pp)
    for at in rank_buckets(rows.pp, kind):
        some = rows.take(at)
        cases = recompute_cases(recompute, uniform, mix.layers, some.pp, some.vpp)
        here = rates if len(at) == len(rows) else gather(rates, at)
        bound[at] = capacity_bound(here, mix, some.pp, some.vpp, some.m_high, some.m_low, limit, cases)
    return bound
