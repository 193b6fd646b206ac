"""What has been written down of the lattice so far, with what is known about it."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner import economics
from planner.economics import Economy
from planner.evaluate import plain_figures
from planner.instance import Instance
from planner.keybook import KeyBook
from planner.search.goal import Goal
from planner.search.pipelines import PipelineTable
from planner.search.rows import Plan, memory_limits
from planner.search.tight import group_memory_bound, row_memory_bound
from planner.space.columns import Candidates, Groups, LayerKeys, families
from planner.space.counting import Places
from planner.space.layouts import Layouts, Multiplicity, expand, microbatch_range, with_microbatches

Array = NDArray[Any]
CELLS = 1 << 19
"""Layouts of layer keys that are looked at together."""
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
        slowest, extra = pipelines.slowest[rows.pipeline], pipelines.extra[rows.pipeline]
        bound = book.bound(rows, slowest, extra) * (1 - 1e-12)
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
        slowest, extra = pipelines.slowest[rows.pipeline], pipelines.extra[rows.pipeline]
        bound = book.bound(rows, slowest, extra) * (1 - 1e-12)
        economy = Economy.of(book.instance, rows)
        never = np.full(len(rows), np.nan)
        return cls(rows, bound, zeros, economy, never, zeros.astype(bool), zeros.astype(bool))

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, slots=True)
class Least:
    """What runs of layer keys or of pipelines take at least."""

    seconds: Array
    dollars: Array
    value: Array
    """Of the goal's first sort key."""
    late: Array
    """Whether that breaks the deadline."""
    dear: Array
    """Whether that breaks the budget."""

    @property
    def within(self) -> Array:
        return ~self.late & ~self.dear


def joined(first: Any, second: Any) -> Any:
    """Two tables of one kind, one below the other."""
    parts = {}
    for f in fields(first):
        a, b = getattr(first, f.name), getattr(second, f.name)
        parts[f.name] = np.concatenate([a, b]) if isinstance(a, np.ndarray) else type(a).concatenate([a, b])
    return type(first)(**parts)


@dataclass(slots=True)
class Table:
    """The part of an instance's lattice that a goal has been looked for in."""

    book: KeyBook
    goal: Goal
    pipelines: PipelineTable
    groups: GroupTable
    rows: RowTable
    listed: Array
    """By layer key: whether its pipelines are written down."""
    gpus: Array
    """By pool: the most GPUs there are."""
    at_least: Array
    """GPUs that the deadline needs at least, by layer key."""
    layouts: Places
    outside: dict[str, int]
    """Candidates of layouts whose bound was outside a limit when they were looked at."""
    plans: dict[int, Plan] = field(default_factory=dict)
    """Rows solved exactly."""

    @classmethod
    def of(cls, instance: Instance, goal: Goal, recompute: tuple[int, ...]) -> Table:
        """Nothing but the layer keys of some recompute families."""
        book = KeyBook.of(instance, recompute)
        keys, pools = book.keys, instance.pools
        classes = sorted({(int(p), int(r)) for p, r in zip(keys.pool, keys.tp * keys.cp, strict=True)})
        layouts = {(p, r): Layouts.of(instance, pools[p], r) for p, r in classes}
        pipelines = PipelineTable.of(book, np.empty(0, dtype=np.int64), layouts)
        empty = Candidates(**{f.name: np.empty(0, dtype=np.int64) for f in fields(Candidates)})
        none = Groups(**{f.name: np.empty(0, dtype=np.int64) for f in fields(Groups)})
        gpu_seconds = instance.tokens * book.gpu_seconds * (1 - 1e-12)
        return cls(
            book=book,
            goal=goal,
            pipelines=pipelines,
            groups=GroupTable.of(book, none, pipelines),
            rows=RowTable.of(book, empty, pipelines),
            listed=np.zeros(len(keys), dtype=bool),
            gpus=np.array([pool.max_nodes * pool.fabric.gpus_per_node for pool in pools]),
            at_least=np.ceil(gpu_seconds / (goal.limits.deadline or np.inf)).astype(np.int64),
            layouts=layouts,
            outside={},
        )

    @property
    def instance(self) -> Instance:
        return self.book.instance

    def least(self, keys: LayerKeys, gpu_seconds: Array) -> Least:
        """What runs take at least that spend so many GPU-seconds a token."""
        total = self.instance.tokens * gpu_seconds * (1 - 1e-12)
        price = np.array([pool.price for pool in self.instance.pools])[keys.pool]
        seconds, cost = total / self.gpus[keys.pool], total / 3600 * price
        late, dear = economics.outside(self.goal.limits, seconds, cost)
        return Least(seconds, cost, self.goal.key_bound(seconds, cost), late, dear)

    def least_of_keys(self) -> Least:
        """What layer keys take at least."""
        return self.least(self.book.keys, self.book.gpu_seconds)

    def least_of_pipelines(self, index: Array | None = None) -> Least:
        """What pipelines take at least."""
        index = np.arange(len(self.pipelines)) if index is None else index
        rows = self.pipelines.rows.take(index)
        return self.least(rows, self.pipelines.gpu_seconds(self.book, index))

    def list_pipelines(self, keys: Array) -> None:
        """Writes down the pipelines of layer keys."""
        keys = keys[~self.listed[keys]]
        self.listed[keys] = True
        self.pipelines = joined(self.pipelines, PipelineTable.of(self.book, keys, self.layouts))

    def open(self, index: Array, ceiling: float) -> None:
        """Writes down the layouts of pipelines up to a ceiling of the goal."""
        table = self.pipelines
        index = index[(table.opened[index] < ceiling) & ~table.finished[index]]
        parts, ranks = [self.groups.rows.take(slice(0))], table.rows.tp * table.rows.cp
        for (pool, size), layout in self.layouts.items():
            of = index[(table.rows.pool[index] == pool) & (ranks[index] == size)]
            cells = np.cumsum(layout.start[table.rows.pp[of] + 1] - layout.start[table.rows.pp[of]])
            for block in np.split(of, np.searchsorted(cells, np.arange(CELLS, cells.max(initial=0), CELLS))):
                parts.append(self._layouts_of(block, pool, layout, ceiling))
        table.opened[index] = ceiling
        rows = with_microbatches(self.instance, Groups.concatenate(parts))
        self.groups = joined(self.groups, GroupTable.of(self.book, rows, table))

    def _layouts_of(self, of: Array, pool: int, layout: Layouts, ceiling: float) -> Groups:
        """Layouts of some pipelines between what is open and the ceiling."""
        instance, table = self.instance, self.pipelines
        which, place = layout.cells(table.rows.pp[of])
        at = of[which]
        rows, dp = table.rows.take(at), layout.dp[place]
        low, high = microbatch_range(instance, rows.micro_batch, dp)
        valid = (low <= high) & (layout.num_gpus[place] >= self.at_least[rows.key])
        valid &= (rows.tp * rows.cp * dp) % (rows.ep * rows.etp) == 0
        valid &= (rows.zero == 0) | (rows.cp * dp > 1)
        columns = {f.name: getattr(rows, f.name) for f in fields(rows)}
        groups = Groups(**columns, pipeline=at, dp=dp, m_low=low, m_high=np.maximum(high, 1))
        step = self.book.bound(groups, table.slowest[at], table.extra[at])
        economy = Economy.of(instance, groups)
        seconds, cost = economy.seconds(step) * (1 - 1e-12), economy.dollars(step) * (1 - 1e-12)
        late, dear = economics.outside(self.goal.limits, seconds, cost)
        first = np.isneginf(table.opened[at])
        self._count_outside(groups, valid & first & late, "deadline")
        self._count_outside(groups, valid & first & dear & ~late, "budget")
        value = self.goal.key_bound(seconds, cost)
        valid &= ~(late | dear) & (value > table.opened[at])
        table.finished[of] = ~np.bincount(which, valid & (value > ceiling), minlength=len(of)).astype(bool)
        return groups.take(np.flatnonzero(valid & (value <= ceiling)))

    def _count_outside(self, groups: Groups, which: Array, limit: str) -> None:
        if which.any():
            number = int(Multiplicity.of(self.instance).of_rows(groups.take(np.flatnonzero(which))).sum())
            self.outside[limit] = self.outside.get(limit, 0) + number

    def tighten_groups(self, index: Array) -> None:
        """Gives groups the bound that knows memory."""
        bound = group_memory_bound(self.book, self.groups.rows.take(index))
        self.groups.bound[index] = np.maximum(self.groups.bound[index], bound)
        self.groups.level[index] = TIGHT

    def expand(self, index: Array) -> None:
        """Writes down the candidates of groups that are not written down yet."""
        index = index[~self.groups.expanded[index]]
        self.groups.expanded[index] = True
        self.add(expand(self.instance, self.groups.rows.take(index)))

    def add(self, rows: Candidates) -> Array:
        """Appends rows and returns their indices."""
        start = len(self.rows)
        self.rows = joined(self.rows, RowTable.of(self.book, rows, self.pipelines))
        return np.arange(start, len(self.rows))

    def tighten_rows(self, index: Array) -> None:
        """Gives rows a bound that knows more: memory first, then that recompute is uniform."""
        table = self.rows
        level = int(table.level[index].min())
        index = index[table.level[index] == level]
        of = table.rows.take(index)
        bound = row_memory_bound(self.book, of, uniform=level == TIGHT)
        table.bound[index] = np.maximum(table.bound[index], bound)
        # Where recompute may differ by stage, or there is none, the first bound is the tightest.
        done = self.instance.per_stage_recompute | (of.selective == 1)
        table.level[index] = np.where(done, UNIFORM, level + 1)

    def look_at_plain(self, index: Array) -> None:
        """Prices the plain split of rows."""
        for pool, family, at in families(self.rows.rows.take(index)):
            some = index[at]
            rows = self.rows.rows.take(some)
            figures = plain_figures(self.book, rows, family, self.book.rates(rows, pool, family))
            limit = memory_limits(self.instance, rows.pool)
            self.rows.plain[some], self.rows.plain_recomputes[some] = figures.fitting(limit)

    def keep(self, index: int, plan: Plan) -> None:
        """A row is solved: its bound is its step from now on."""
        self.plans[index] = plan
        self.rows.bound[index], self.rows.exact[index] = plan.step, True
        self.rows.plain[index] = plan.step
