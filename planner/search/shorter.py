"""Fewer micro-batches where a step is required to be short: until its bound is no longer than that."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.economics import Economy
from planner.keybook import KeyBook
from planner.required import fewer_microbatches, longest_step
from planner.search.bounded import LOOSE, GroupTable, RowTable
from planner.search.outside import Outside
from planner.search.pipelines import PipelineTable
from planner.space.columns import Groups

Array = NDArray[Any]


def shortened(book: KeyBook, pipelines: PipelineTable, groups: Groups, step: Array) -> tuple[Groups, Array]:
    """Groups with no more micro-batches than a required step allows, and the bounds on their steps."""
    longest, index = longest_step(book.instance), np.arange(len(groups))
    if np.isinf(longest):
        return groups, step
    high, step = groups.m_high.copy(), step.copy()
    while len(index):
        index = index[(step[index] > longest) & np.isfinite(step[index])]
        most = fewer_microbatches(groups.take(index), step[index], longest)
        index, most = index[most >= groups.m_low[index]], most[most >= groups.m_low[index]]
        high[index] = most
        groups = replace(groups, m_high=high.copy())
        rows = groups.take(index)
        step[index] = book.bound(rows, pipelines.slowest[rows.pipeline], pipelines.extra[rows.pipeline])
    return groups, step


def shorten(
    book: KeyBook, pipelines: PipelineTable, part: GroupTable | RowTable, index: Array, outside: Outside
) -> None:
    """Takes micro-batches from rows that are written down; what they lose is counted."""
    longest = longest_step(book.instance)
    while np.isfinite(longest) and len(index):
        index = index[(part.bound[index] > longest) & np.isfinite(part.bound[index])]
        if isinstance(part, RowTable):
            index = index[~part.exact[index]]
        before = part.rows.take(index)
        most = fewer_microbatches(before, part.bound[index], longest)
        enough = most >= before.m_low
        index, before = index[enough], before.take(enough)
        if len(index):
            after = replace(before, m_high=most[enough])
            outside.count_shorter(book.instance, before, after)
            _written_over(book, pipelines, part, index, after)


def _written_over(
    book: KeyBook, pipelines: PipelineTable, part: GroupTable | RowTable, index: Array, rows: Groups
) -> None:
    """Rows with fewer micro-batches, of which nothing but their first bound is known."""
    anew: Any = type(part).of
    fresh: GroupTable | RowTable = anew(book, rows, pipelines)
    bound = np.maximum(fresh.bound, part.bound[index] * rows.m_high / part.rows.m_high[index] * (1 - 1e-12))
    part.rows.m_high[index], part.bound[index], part.level[index] = rows.m_high, bound, LOOSE
    for f in fields(Economy):
        if (column := getattr(part.economy, f.name)) is not None:
            column[index] = getattr(fresh.economy, f.name)
    if isinstance(part, RowTable):
        part.plain[index], part.plain_recomputes[index] = np.nan, False
