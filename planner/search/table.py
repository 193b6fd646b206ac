"""What has been written down of the lattice so far, with what is known about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.records import stacked
from planner.chance import margin_of
from planner.evaluate import plain_figures
from planner.hfu import longest_of_plain
from planner.instance import Instance
from planner.keybook import KeyBook
from planner.limits import surely_within
from planner.search.bounded import TIGHT, UNIFORM, GroupTable, RowTable
from planner.search.goal import Effort, Goal
from planner.search.least import Least, PerGpuSecond
from planner.search.outside import Outside
from planner.search.pipelines import PipelineTable
from planner.search.room import Full, short_of
from planner.search.rows import Plan, memory_limits, plain_plan, plainest_plan, solved_plan
from planner.search.shorter import shorten
from planner.search.tight import fitting_variants, group_memory_bound, row_memory_bound
from planner.search.traffic import with_traffic
from planner.space.columns import Candidates, Groups, LayerKeys, families
from planner.space.counting import Counter, Places
from planner.space.layouts import BY_NODE, Layouts, expand
from planner.space.recompute import SELECTIVE

Array = NDArray[Any]


def places_of(instance: Instance, keys: LayerKeys) -> Places:
    """Layouts of layer keys."""
    classes = sorted({(int(p), int(r)) for p, r in zip(keys.pool, keys.tp * keys.cp, strict=True)})
    return {(p, r): Layouts.of(instance, instance.pools[p], r) for p, r in classes}


@dataclass(slots=True)
class Table:
    """The part of an instance's lattice that a goal has been looked for in."""

    book: KeyBook
    goal: Goal
    pipelines: PipelineTable
    groups: GroupTable
    rows: RowTable
    listed: Array
    """(2, keys) whether the pipelines of a layer key are written down that do not fill, and that do."""
    at_least: Array
    """GPUs that the deadline needs at least, by layer key."""
    layouts: Places
    outside: Outside
    counter: Counter
    plans: dict[int, Plan] = field(default_factory=dict)
    """Rows solved exactly."""
    per_gpu_second: PerGpuSecond | None = None
    """What runs of layer keys take at least, found when it is first asked for."""
    known_least: tuple[tuple[int, int], Least] | None = None
    """What pipelines take at least, and how many of them there were and knew memory then."""

    @classmethod
    def of(
        cls,
        instance: Instance,
        goal: Goal,
        recompute: tuple[int, ...],
        check: Callable[[], None] = lambda: None,
    ) -> Table:
        """Nothing but the layer keys of some recompute families. `check`: as in `KeyBook.of`."""
        book = KeyBook.of(instance, recompute, check=check)
        layouts, none = places_of(instance, book.keys), np.empty(0, dtype=np.int64)
        return cls.on(book, goal, PipelineTable.of(book, none, layouts), layouts, Counter(instance, layouts))

    @classmethod
    def on(
        cls, book: KeyBook, goal: Goal, pipelines: PipelineTable, layouts: Places, counter: Counter
    ) -> Table:
        """The same over layer keys and pipelines that are there already."""
        instance = book.instance
        gpu_seconds = instance.tokens * book.gpu_seconds * (1 - 1e-12)
        return cls(
            book=book,
            goal=goal,
            pipelines=pipelines,
            groups=GroupTable.of(book, Groups.empty(), pipelines),
            rows=RowTable.of(book, Candidates.empty(), pipelines),
            listed=np.zeros((2, len(book.keys)), dtype=bool),
            at_least=np.ceil(gpu_seconds / (goal.limits.deadline or np.inf)).astype(np.int64),
            layouts=layouts,
            outside=Outside(counter.many),
            counter=counter,
        )

    def blank(self) -> Table:
        """The same search before anything is written down."""
        none = PipelineTable.of(self.book, np.empty(0, dtype=np.int64), self.layouts)
        return Table.on(self.book, self.goal, none, self.layouts, self.counter)

    def again(self, goal: Goal, instance: Instance | None = None) -> Table:
        """Another goal's search over the same layer keys, with what is known of their pipelines.

        `instance`: another one of the same physics and counts (`search.physics`).
        """
        part, book = self.pipelines, self.book if instance is None else replace(self.book, instance=instance)
        known = {f.name: getattr(part, f.name).copy() for f in fields(part) if f.name != "rows"}
        known |= {"opened": np.full(len(part), -np.inf), "finished": np.zeros(len(part), dtype=bool)}
        pipelines = PipelineTable(rows=part.rows, **known)
        table = Table.on(book, goal, pipelines, self.layouts, self.counter)
        table.listed[:] = self.listed
        return table

    @property
    def instance(self) -> Instance:
        return self.book.instance

    def least(self, key: Array, gpu_seconds: Array) -> Least:
        """What runs of layer keys take at least that spend so many GPU-seconds a token."""
        if self.per_gpu_second is None:
            self.per_gpu_second = PerGpuSecond.of(self.instance, self.goal, self.book.keys, self.at_least)
        return self.per_gpu_second.least(self.goal.limits, key, gpu_seconds)

    def least_of_keys(self, filled: bool = True) -> Least:
        """What layer keys take at least, or their pipelines that do not fill."""
        each = self.book.gpu_seconds if filled else self.book.gpu_seconds_unfilled
        return self.least(np.arange(len(self.book.keys)), each)

    def least_of_pipelines(self) -> Least:
        """What pipelines take at least."""
        part = self.pipelines
        state = (len(part), int(part.known.sum()))
        if self.known_least is None or self.known_least[0] != state:
            of = self.least(part.rows.key, self.gpu_seconds())
            self.known_least = (state, of)
        return self.known_least[1]

    def gpu_seconds(self) -> Array:
        """GPU-seconds a token of pipelines at least, with what ZeRO 2 and 3 move."""
        part = self.pipelines
        index = np.flatnonzero((part.rows.zero > 1) & part.known & np.isfinite(part.slowest))
        if self.instance.assume_mfu is not None or not len(index):
            return part.gpu_seconds
        self.fit_by_node(index)
        return with_traffic(self.book, part, index, self.at_least)

    def fit_by_node(self, index: Array) -> None:
        """Finds which pipelines have room for states that only the ranks of a node share, if any may."""
        part = self.pipelines
        may = self.counter.many.sharing[part.rows.zero[index]] >= BY_NODE
        part.by_node[index[~may]] = np.inf
        part.fit_by_node(self.book, index[may], self.layouts)

    def list_pipelines(self, keys: Array, filled: tuple[int, ...] = (0, 1), roomy: bool = False) -> None:
        """Writes down the pipelines of layer keys; all of them, or if `roomy` those that may fit memory."""
        for fills in filled:
            some = keys[~self.listed[fills, keys]]
            self.listed[fills, some] = True
            if len(some):
                more = PipelineTable.of(self.book, some, self.layouts, (fills,), roomy)
                self.pipelines = stacked([self.pipelines, more])

    def shorten(self, part: GroupTable | RowTable, index: Array) -> None:
        """Takes micro-batches from rows until the bounds on their steps are no longer than required."""
        shorten(self.book, self.pipelines, part, index, self.outside)

    def tighten_groups(self, index: Array) -> None:
        """Gives groups the bound that knows memory."""
        bound = self.group_memory_bound(self.groups.rows.take(index))
        self.groups.bound[index] = np.maximum(self.groups.bound[index], bound)
        self.groups.level[index] = TIGHT
        self.shorten(self.groups, index)

    def group_memory_bound(self, rows: Groups) -> Array:
        """tight.group_memory_bound of groups."""
        return self.book.with_hfu(rows, group_memory_bound(self.book, rows))

    def expand(self, index: Array) -> None:
        """Writes down the candidates of groups that are not written down yet."""
        index = index[~self.groups.expanded[index]]
        self.groups.expanded[index] = True
        rows = self.book.specific(self.groups.rows.take(index))
        fits = fitting_variants(self.book, rows)
        full = rows.take(np.flatnonzero(~fits))
        self.count_full(full, lambda book: ~fitting_variants(book, full))
        self.add(expand(self.instance, rows.take(np.flatnonzero(fits))))

    def count_full(self, rows: Groups, look: Full) -> None:
        """Counts groups without room, by the limit that leaves them none (`room.short_of`)."""
        for limit, which in short_of(self.book, np.ones(len(rows), dtype=bool), look).items():
            self.outside.count(rows, which, limit)

    def add(self, rows: Candidates) -> Array:
        """Appends rows and returns their indices."""
        start = len(self.rows)
        self.rows = stacked([self.rows, RowTable.of(self.book, rows, self.pipelines)])
        index = np.arange(start, len(self.rows))
        self.shorten(self.rows, index)
        return index

    def tighten_rows(self, index: Array) -> None:
        """Gives rows a bound that knows more: memory first, then that recompute is uniform."""
        table = self.rows
        level = int(table.level[index].min())
        index = index[table.level[index] == level]
        of = table.rows.take(index)
        bound = self.row_memory_bound(of, uniform=level == TIGHT)
        table.bound[index] = np.maximum(table.bound[index], bound)
        # Where recompute may differ by stage, or there is none, the first bound is the tightest.
        done = self.instance.per_stage_recompute | (of.family >= SELECTIVE)
        table.level[index] = np.where(done, UNIFORM, level + 1)
        self.shorten(table, index)

    def row_memory_bound(self, rows: Candidates, uniform: bool) -> Array:
        """tight.row_memory_bound of rows."""
        return self.book.with_hfu(rows, row_memory_bound(self.book, rows, uniform))

    def look_at_plain(self, index: Array) -> None:
        """Prices the plain split of rows."""
        step, recomputes = self.plain_splits(self.rows.rows.take(index))
        step = np.where(self.surely_within(index, step), step, np.inf)
        self.rows.plain[index], self.rows.plain_recomputes[index] = step, recomputes.astype(bool)

    def surely_within(self, index: Array, step: Array) -> Array:
        """limits.surely_within of rows whose steps take so long."""
        rows, economy = self.rows.rows.take(index), self.rows.economy.take(index)
        return surely_within(self.instance, self.goal.limits, rows, economy, step)

    def plain_splits(self, rows: Candidates) -> Array:
        """(2, rows): seconds of a step with the plain split, inf if it does not fit; if it recomputes.

        Inf as well where another split may have the HFU that is required.
        """
        found = np.empty((2, len(rows)))
        for _, family, at in families(rows):
            some = rows.take(at)
            figures = plain_figures(self.book, some, family, self.book.rates(some))
            room, longest = memory_limits(self.instance, some.pool), longest_of_plain(self.instance, some)
            found[:, at] = figures.fitting(room, *longest)
        return found

    def plain_plan(self, row: Candidates, recomputes: bool) -> Plan:
        """The plan of a row of which nothing is quicker than the plain split."""
        return plainest_plan(self.book, plain_plan(self.book, row, recomputes))

    def solved_plan(self, row: Candidates, longest: float, effort: Effort) -> Plan | None:
        """rows.solved_plan of a row."""
        return solved_plan(self.book, row, longest, effort)

    def keep(self, index: int, plan: Plan) -> None:
        """A row is solved: its bound is its step from now on."""
        self.plans[index] = plan
        if self.rows.economy.margin is not None:
            self.rows.economy.margin[index] = margin_of(self.instance, plan.row, plan.step)
        self.rows.bound[index], self.rows.exact[index] = plan.step, True
        self.rows.plain[index] = plan.step
