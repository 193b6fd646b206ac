"""Groups and candidates that are written down, with the bounds on their steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.economics import Economy
from planner.keybook import KeyBook
from planner.search.pipelines import PipelineTable
from planner.space.columns import Candidates, Groups

Array = NDArray[Any]
LOOSE, TIGHT, UNIFORM = range(3)
"""What a bound knows: layers and bubble; memory and everything else; that recompute is uniform as well."""


@dataclass(slots=True)
class GroupTable:
    """Groups with their bounds."""

    rows: Groups
    bound: Array
    """Seconds of a step at m_high."""
    level: Array
    expanded: Array
    economy: Economy

    @classmethod
    def of(cls, book: KeyBook, rows: Groups, pipelines: PipelineTable) -> GroupTable:
        zeros = np.zeros(len(rows), dtype=np.int8)
        bound = _first_bound(book, rows, pipelines)
        return cls(rows, bound, zeros, zeros.astype(bool), Economy.of(book.instance, rows))

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(slots=True)
class RowTable:
    """Candidates with their bounds and plain splits."""

    rows: Candidates
    bound: Array
    """Seconds of a step at m_high; exact where `exact` has a plan."""
    level: Array
    economy: Economy
    plain: Array
    """Seconds of a step with the plain split, inf if it does not fit, nan until it was looked at."""
    plain_recomputes: Array
    """Whether that split recomputes every layer."""
    exact: Array
    """Whether `bound` is the step of a plan."""

    @classmethod
    def of(cls, book: KeyBook, rows: Candidates, pipelines: PipelineTable) -> RowTable:
        zeros = np.zeros(len(rows), dtype=np.int8)
        bound = _first_bound(book, rows, pipelines)
        economy = Economy.of(book.instance, rows)
        never = np.full(len(rows), np.nan)
        return cls(rows, bound, zeros, economy, never, zeros.astype(bool), zeros.astype(bool))

    def __len__(self) -> int:
        return len(self.rows)


def _first_bound(book: KeyBook, rows: Groups, pipelines: PipelineTable) -> Array:
    """What knows layers and bubble, and what memory leaves of the rows' pipelines."""
    slowest, extra = pipelines.slowest[rows.pipeline], pipelines.extra[rows.pipeline]
    return book.bound(rows, slowest, extra) * (1 - 1e-12)
