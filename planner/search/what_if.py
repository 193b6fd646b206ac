"""The table of one what-if: a `Table` that looks up what others have found, and goes its own way."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from planner.keybook import KeyBook
from planner.search.bounded import TIGHT
from planner.search.goal import Effort, Goal
from planner.search.pipelines import PipelineTable
from planner.search.rows import Plan, solved_plan
from planner.search.table import Table
from planner.space.columns import Candidates, Groups
from planner.space.counting import Counter, Places

if TYPE_CHECKING:
    from planner.search.reuse import Evaluation

Array = NDArray[Any]
FOUND = ("slowest", "extra", "gpu_seconds", "known")
"""Columns of pipelines that knowing memory changes."""


def columns_of(pipelines: PipelineTable) -> dict[str, Array]:
    """What a search may change of pipelines."""
    return {f.name: getattr(pipelines, f.name) for f in fields(PipelineTable) if f.name != "rows"}


@dataclass(slots=True)
class SharedPipelines(PipelineTable):
    """Pipelines of one what-if: it knows of memory what it asked for, whoever found it out."""

    found: Evaluation
    origin: Array
    """Rows of the evaluation's pipelines."""

    @classmethod
    def none(cls, found: Evaluation) -> SharedPipelines:
        """No pipelines yet."""
        origin = np.empty(0, dtype=np.int64)
        columns = {name: of[origin] for name, of in columns_of(found.loose).items()}
        return cls(rows=found.loose.rows.take(origin), **columns, found=found, origin=origin)

    def with_more(self, asked: Array) -> SharedPipelines:
        """The same and those of the evaluation that are asked for, with nothing known of them yet."""
        origin, rows = self.found.listing(self.origin, asked)
        more = origin[len(self) :]
        columns = {
            name: np.concatenate([getattr(self, name), of[more]])
            for name, of in columns_of(self.found.loose).items()
        }
        return SharedPipelines(rows=rows, **columns, found=self.found, origin=origin)

    def fit(self, book: KeyBook, index: Array, layouts: Places) -> None:
        shared, of = self.found.pipelines, self.origin[index]
        unknown = of[~shared.known[of]]
        if len(unknown):
            shared.fit(self.found.book, unknown, self.found.layouts)
        for name in FOUND:
            getattr(self, name)[index] = getattr(shared, name)[of]

    def fit_by_node(self, book: KeyBook, index: Array, layouts: Places) -> None:
        of = self.origin[index]
        self.found.pipelines.fit_by_node(self.found.book, of, self.found.layouts)
        self.by_node[index] = self.found.pipelines.by_node[of]


@dataclass(slots=True, kw_only=True)
class WhatIf(Table):
    """The table of one what-if: a `Table` that looks up what others have found."""

    found: Evaluation
    exists: Array
    """Which of the evaluation's pipelines have any layout."""

    @classmethod
    def on(
        cls, found: Evaluation, book: KeyBook, goal: Goal, layouts: Places, counter: Counter, exists: Array
    ) -> WhatIf:
        """A table with nothing but the layer keys."""
        table = Table.on(book, goal, SharedPipelines.none(found), layouts, counter)
        return cls(**{f.name: getattr(table, f.name) for f in fields(table)}, found=found, exists=exists)

    def list_pipelines(self, keys: Array, filled: tuple[int, ...] = (0, 1), roomy: bool = False) -> None:
        """As `PipelineTable.of` would list them, those that fill with those that do not."""
        every, mine = self.found.pipelines.rows, np.zeros(len(self.book.keys), dtype=bool)
        mine[keys] = ~self.listed[1, keys]
        if mine.any():
            self.listed |= mine
            assert isinstance(self.pipelines, SharedPipelines)
            here = self.exists & self.found.roomy if roomy else self.exists
            self.pipelines = self.pipelines.with_more(mine[every.key] & here)

    def code(self, rows: Groups) -> Array:
        """What tells rows apart, in whichever table."""
        assert isinstance(self.pipelines, SharedPipelines)
        return self.found.code(rows, self.pipelines.origin[rows.pipeline])

    def tighten_groups(self, index: Array) -> None:
        rows = self.groups.rows.take(index)
        (bound,) = self.found.group_bounds.get(
            self.code(rows), lambda some: self.group_memory_bound(rows.take(some))[None]
        )
        self.groups.bound[index] = np.maximum(self.groups.bound[index], bound)
        self.groups.level[index] = TIGHT
        self.shorten(self.groups, index)

    def row_memory_bound(self, rows: Candidates, uniform: bool) -> Array:
        def find(some: Array) -> Array:
            return Table.row_memory_bound(self, rows.take(some), uniform)[None]

        return self.found.row_bounds[uniform].get(self.code(rows), find)[0]

    def plain_splits(self, rows: Candidates) -> Array:
        return self.found.plain.get(self.code(rows), lambda some: Table.plain_splits(self, rows.take(some)))

    def plain_plan(self, row: Candidates, recomputes: bool) -> Plan:
        of = (int(self.code(row)[0]), recomputes)
        if of not in self.found.plain_plans:
            self.found.plain_plans[of] = Table.plain_plan(self, row, recomputes)
        return self.found.plain_plans[of]

    def solved_plan(self, row: Candidates, longest: float, effort: Effort) -> Plan | None:
        """Whatever was asked before: a cut-off may decide which of equally good assignments is found."""
        of = int(self.code(row)[0])
        if of not in self.found.plans:
            self.found.plans[of] = solved_plan(self.book, row, np.inf, effort)
        plan = self.found.plans[of]
        return None if plan is None or plan.step > longest else plan
