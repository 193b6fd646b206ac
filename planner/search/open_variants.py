"""Bounds of rows that leave their variant open: the least of all, of which few are looked at closely."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.records import gather
from costmodel.stage import StageRates
from planner.bound.fit import may_fit
from planner.bound.mix import layer_mix
from planner.keybook import KeyBook
from planner.search.rows import memory_limit
from planner.space.columns import Groups
from planner.space.recompute import HIDDEN, OPEN, family_variants, stage_recompute

Array = NDArray[Any]
PAIRS = 1 << 15
"""Rows x variants that are looked at together."""


def least_of_variants(
    book: KeyBook,
    rows: Groups,
    family: int,
    fits: Callable[[Groups, Array], Array],
    quickest: Callable[[Groups, Array], Array],
    bound: Callable[[Groups, Array], Array],
) -> Array:
    """The least bound of rows of one pool and family over their variants: (rows,), inf where none fits.

    Each callable is given rows with their variants, and which of the rows they are copies of: whether they
    may fit, what they take at least whatever fits, and their bound. First the quickest variant that may fit
    is bounded, then those that may still be quicker than that.
    """
    least, number = np.full(len(rows), np.inf), len(family_variants(book.instance, family))
    size = max(PAIRS // max(number, 1), 1)
    for part in np.split(np.arange(len(rows)), range(size, len(rows), size)) if len(rows) else ():
        which, copies = book.of_variants(rows.take(part), int(rows.pool[0]), family)
        some = np.flatnonzero(fits(copies, part[which]))
        if not len(some):
            continue
        which, copies = part[which[some]], copies.take(some)
        value = quickest(copies, which)
        order = np.lexsort((value, which))
        first = np.zeros(len(which), dtype=bool)
        first[order[np.flatnonzero(np.diff(which[order], prepend=-1))]] = True
        for wave in (first, ~first):
            at = np.flatnonzero(wave & (value < least[which]))
            if len(at):
                np.minimum.at(least, which[at], bound(copies.take(at), which[at]))
    return least


def may_fit_rates(book: KeyBook, rows: Groups, rates: StageRates, family: int) -> Array:
    """Whether rows of one pool and family may fit with such rates; any order of pp."""
    order = np.argsort(rows.pp, kind="stable")
    limit, mix = memory_limit(book.instance, int(rows.pool[0])), layer_mix(book.instance)
    ordered = rows.take(order)
    found, recomputes = np.empty(len(rows), dtype=bool), stage_recompute(family) != "none"
    taken = gather(rates, order)
    found[order] = may_fit(taken, mix, ordered.pp, ordered.m_low, limit, recomputes)
    return found


def leanest(book: KeyBook, rows: Groups, family: int) -> tuple[Groups, Callable[[StageRates], StageRates]]:
    """Rows in one variant, and what makes its rates those of the leanest that they may have."""
    if not (rows.variant == OPEN).any():
        return rows, lambda rates: rates
    pool, numbers = int(rows.pool[0]), np.array(family_variants(book.instance, family))
    memory = book.costs[pool, family >= HIDDEN].memory
    at = book.start[pool, numbers][:, None] + book.place[rows.key]
    less = memory.kept.kinds[at[0]] - memory.kept.kinds[at].min(axis=0)
    fewer = memory.working[at[0]] - memory.working[at].min(axis=0)

    def lean(rates: StageRates) -> StageRates:
        kept = replace(rates.kept, kinds=rates.kept.kinds - less)
        return replace(rates, kept=kept, working=rates.working - fewer)

    return replace(rows, variant=np.full(len(rows), numbers[0])), lean
