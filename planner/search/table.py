"""What has been written down of the lattice so far, with what is known about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.records import stacked
from planner import economics
from planner.chance import margin_of
from planner.economics import Economy
from planner.evaluate import plain_figures
from planner.instance import Instance, Term
from planner.keybook import KeyBook
from planner.limits import broken_by, outside, surely_within
from planner.required import fewer_microbatches, longest_step, step_requirement, too_slow
from planner.running import Running
from planner.search.goal import Effort, Goal
from planner.search.pipelines import PipelineTable, moving_states
from planner.search.rows import Plan, memory_limits, plain_plan, solved_plan
from planner.search.tight import fitting_variants, group_memory_bound, row_memory_bound
from planner.space.columns import FULL, NODE, Candidates, Groups, LayerKeys, Pipelines, families
from planner.space.counting import Counter, Places
from planner.space.layouts import (
    BY_NODE,
    Layouts,
    expand,
    fills_nodes,
    microbatch_range_filled,
    with_microbatches,
)
from planner.space.recompute import SELECTIVE

Array = NDArray[Any]
Promising = Callable[[Array, Array], Array]
"""Which runs may be part of an answer, by the least seconds and dollars that they take."""
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

    beyond: dict[str, Array]
    """Whether that breaks another limit, by its name."""

    @property
    def within(self) -> Array:
        return ~np.logical_or.reduce([self.late, self.dear, *self.beyond.values()])


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
    outside: dict[str, int]
    """Candidates of layouts whose bound was outside a limit when they were looked at."""
    counter: Counter
    plans: dict[int, Plan] = field(default_factory=dict)
    """Rows solved exactly."""
    per_gpu_second: tuple[dict[Term, Array], Array] | None = None
    known_least: tuple[tuple[int, int], Least] | None = None
    """What pipelines take at least, and how many of them there were and knew memory then."""

    @classmethod
    def of(cls, instance: Instance, goal: Goal, recompute: tuple[int, ...]) -> Table:
        """Nothing but the layer keys of some recompute families."""
        book = KeyBook.of(instance, recompute)
        layouts, none = places_of(instance, book.keys), np.empty(0, dtype=np.int64)
        return cls.on(book, goal, PipelineTable.of(book, none, layouts), layouts, Counter(instance, layouts))

    @classmethod
    def on(
        cls, book: KeyBook, goal: Goal, pipelines: PipelineTable, layouts: Places, counter: Counter
    ) -> Table:
        """The same over layer keys and pipelines that are there already."""
        instance = book.instance
        empty = Candidates(**{f.name: np.empty(0, dtype=np.int64) for f in fields(Candidates)})
        none = Groups(**{f.name: np.empty(0, dtype=np.int64) for f in fields(Groups)})
        gpu_seconds = instance.tokens * book.gpu_seconds * (1 - 1e-12)
        return cls(
            book=book,
            goal=goal,
            pipelines=pipelines,
            groups=GroupTable.of(book, none, pipelines),
            rows=RowTable.of(book, empty, pipelines),
            listed=np.zeros((2, len(book.keys)), dtype=bool),
            at_least=np.ceil(gpu_seconds / (goal.limits.deadline or np.inf)).astype(np.int64),
            layouts=layouts,
            outside={},
            counter=counter,
        )

    def blank(self) -> Table:
        """The same search before anything is written down."""
        none = PipelineTable.of(self.book, np.empty(0, dtype=np.int64), self.layouts)
        return Table.on(self.book, self.goal, none, self.layouts, self.counter)

    def again(self, goal: Goal) -> Table:
        """Another goal's search over the same layer keys, with what is known of their pipelines."""
        part = self.pipelines
        known = {f.name: getattr(part, f.name).copy() for f in fields(part) if f.name != "rows"}
        known |= {"opened": np.full(len(part), -np.inf), "finished": np.zeros(len(part), dtype=bool)}
        pipelines = PipelineTable(rows=part.rows, **known)
        table = Table.on(self.book, goal, pipelines, self.layouts, self.counter)
        table.listed[:] = self.listed
        return table

    @property
    def instance(self) -> Instance:
        return self.book.instance

    def _per_gpu_second(self) -> tuple[dict[Term, Array], Array]:
        """By layer key, for each GPU-second of steps at the least: what a run takes, and its first key."""
        if self.per_gpu_second is None:
            running, pool = Running.of(self.instance), self.book.keys.pool
            columns = running.per_gpu_second()
            first = running.at_least(self.goal.key_bound(columns), pool, self.at_least)
            least: dict[Term, Array] = {
                term: running.at_least(of, pool, self.at_least) for term, of in columns.items()
            }
            self.per_gpu_second = (least, first)
        return self.per_gpu_second

    def least(self, key: Array, gpu_seconds: Array) -> Least:
        """What runs of layer keys take at least that spend so many GPU-seconds a token."""
        total = self.instance.tokens * gpu_seconds * (1 - 1e-12)
        of, first = self._per_gpu_second()
        seconds, cost, value = (
            economics.at_rate(total, each[key]) for each in (of["time"], of["cost"], first)
        )
        limits = self.goal.limits
        late, dear = outside(limits, seconds, cost)
        beyond = {}
        if limits.energy is not None:
            beyond["energy"] = economics.at_rate(total, of["energy"][key]) > limits.energy
        if limits.carbon is not None:
            beyond["carbon"] = economics.at_rate(total, of["carbon"][key]) > limits.carbon
        beyond |= too_slow(self.instance, self.book.keys.pool[key], gpu_seconds * (1 - 1e-12))
        return Least(seconds, cost, value, late, dear, beyond)

    def least_of_keys(self, filled: bool = True) -> Least:
        """What layer keys take at least, or their pipelines that do not fill."""
        each = self.book.gpu_seconds if filled else self.book.gpu_seconds_unfilled
        return self.least(np.arange(len(self.book.keys)), each)

    def least_of_pipelines(self) -> Least:
        """What pipelines take at least."""
        part = self.pipelines
        state = (len(part), int(part.known.sum()))
        if self.known_least is None or self.known_least[0] != state:
            of = self.least(part.rows.key, self._with_traffic())
            self.known_least = (state, of)
        return self.known_least[1]

    def _with_traffic(self) -> Array:
        """GPU-seconds a token of pipelines, with what ZeRO 2 and 3 move on what the deadline needs."""
        part = self.pipelines
        index = np.flatnonzero((part.rows.zero > 1) & part.known & np.isfinite(part.slowest))
        if self.instance.assume_mfu is not None or not len(index):
            return part.gpu_seconds
        self._fit_by_node(index)
        # Within nodes next to nothing is moved.
        index = index[np.isinf(part.by_node[index])]
        rows = part.rows.take(index)
        ranks = rows.tp * rows.cp
        fewest = np.maximum(-(-self.at_least[rows.key] // (ranks * rows.pp)), -(-rows.ep * rows.etp // ranks))
        each = part.gpu_seconds.copy()
        each[index] = moving_states(self.book, part, index, np.maximum(fewest, 1))
        return each

    def _fit_by_node(self, index: Array) -> None:
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

    def open(self, index: Array, ceiling: float, promising: Promising | None = None) -> None:
        """Writes down the layouts of pipelines up to a ceiling of the goal, or the promising ones of them."""
        table = self.pipelines
        index = index[(table.opened[index] < ceiling) & ~table.finished[index]]
        # Until a layout beyond the ceiling is seen.
        table.finished[index] = True
        self._fit_by_node(index[table.known[index]])
        parts, (at, dp) = [self.groups.rows.take(slice(0))], self._cells(index)
        for start in range(0, len(at), CELLS):
            some = slice(start, start + CELLS)
            parts.append(self._layouts_of(at[some], dp[some], ceiling, promising))
        table.opened[index] = ceiling
        rows = with_microbatches(self.instance, Groups.concatenate(parts))
        self.groups = stacked([self.groups, GroupTable.of(self.book, rows, table)])

    def _cells(self, index: Array) -> tuple[Array, Array]:
        """Pipelines and the replicas of each of their layouts that the deadline leaves."""
        rows, none = self.pipelines.rows, np.empty(0, dtype=np.int64)
        least = self.at_least[rows.key[index]]
        pool, pp, ranks = rows.pool[index], rows.pp[index], rows.tp[index] * rows.cp[index]
        at, replicas = [none], [none]
        for (number, size), layout in self.layouts.items():
            of = np.flatnonzero((pool == number) & (ranks == size))
            which, place = layout.cells(pp[of])
            enough = np.flatnonzero(layout.num_gpus[place] >= least[of][which])
            at.append(index[of[which[enough]]])
            replicas.append(layout.dp[place[enough]])
        return np.concatenate(at), np.concatenate(replicas)

    def _layouts_of(self, at: Array, dp: Array, ceiling: float, promising: Promising | None) -> Groups:
        """Layouts of some pipelines between what is open and the ceiling."""
        instance, table = self.instance, self.pipelines
        at, dp = self._near(*self._whole(at, dp), ceiling, promising)
        rows = table.rows.take(at)
        low, high = microbatch_range_filled(instance, rows, dp)
        valid = low <= high
        everywhere, nodes = self._scopes(rows, dp)
        valid &= everywhere | nodes
        columns = {f.name: getattr(rows, f.name) for f in fields(rows)}
        high = np.maximum(high, 1)
        groups = Groups(**columns, pipeline=at, dp=dp, zero_scope=FULL + 0 * dp, m_low=low, m_high=high)
        first, every = np.isneginf(table.opened[at]), groups
        full = nodes & np.isinf(table.by_node[at])
        self._count_outside(groups, valid & first & full, "memory")
        nodes &= ~full
        groups, step = self._short(groups, self.book.bound(groups, table.slowest[at], table.extra[at]))
        for scoped in (everywhere, nodes):
            self._count_shorter(every.take(valid & first & scoped), groups.take(valid & first & scoped))
        economy = Economy.of(instance, groups, surely=False)
        seconds = economy.seconds(step) * (1 - 1e-12)
        totals = economics.totals(self.goal.objective, economy, seconds)
        totals["cost"] = economy.total("cost", seconds) * (1 - 1e-12)
        broken = broken_by(self.goal.limits, economy, seconds, totals["cost"])
        for limit, over in broken.items():
            for scoped in (everywhere, nodes):
                self._count_outside(groups, valid & first & over & scoped, limit)
            valid &= ~over
        value = self.goal.key_bound(totals)
        valid &= value > table.opened[at]
        table.finished[at[valid & (value > ceiling)]] = False
        valid &= value <= ceiling
        near = groups.take(np.flatnonzero(valid & nodes))
        near = replace(near, zero_scope=np.full(len(near), NODE))
        return Groups.concatenate([groups.take(np.flatnonzero(valid & everywhere)), near])

    def _whole(self, at: Array, dp: Array) -> tuple[Array, Array]:
        """Layouts whose ranks the groups of experts divide."""
        rows = self.pipelines.rows
        whole = np.flatnonzero(((rows.tp * rows.cp)[at] * dp) % (rows.ep * rows.etp)[at] == 0)
        return at[whole], dp[whole]

    def _near(self, at: Array, dp: Array, ceiling: float, promising: Promising | None) -> tuple[Array, Array]:
        """Layouts without those that their pipelines' bounds leave out: beyond the ceiling, or not promising.

        What breaks a limit stays, to be counted, unless it is what promises that is asked.
        """
        if np.isinf(ceiling) and promising is None:
            return at, dp
        table, running, rows = self.pipelines, Running.of(self.instance), self.pipelines.rows
        num_gpus = (rows.tp * rows.cp * rows.pp)[at] * dp
        place = running.place(rows.pool[at], num_gpus)
        scale = self.instance.tokens * (1 - 1e-12) * self.book.stragglers(running.num_gpus)
        spent = table.gpu_seconds[at]
        totals: dict[Term, Array] = {
            term: spent * (each * scale)[place] for term, each in running.per_gpu_second().items()
        }
        seconds = totals["time"]
        late, dear = outside(self.goal.limits, seconds, totals["cost"])
        within = ~(late | dear)
        far = within & (self.goal.key_bound(totals) > ceiling)
        table.finished[at[far]] = False
        near = ~far if promising is None else within & ~far & promising(seconds, totals["cost"])
        return at[near], dp[near]

    def _scopes(self, rows: Pipelines, dp: Array) -> tuple[Array, Array]:
        """Whether layouts share their states over all ranks, or have none to share; and within nodes.

        So far nothing tells the two apart: bounds of pipelines know no traffic, and take states as small as
        they can be.
        """
        many = self.counter.many
        sharing, ranks = many.sharing[rows.zero], rows.tp * rows.cp
        everywhere = many.shares(rows.pool, sharing, ranks, rows.pp, rows.cp * dp)
        if (sharing < BY_NODE).all():
            return everywhere, np.zeros(len(dp), dtype=bool)
        domain = np.array([pool.fabric.domain for pool in self.instance.pools])[rows.pool]
        nodes = fills_nodes(domain, rows.tp, rows.cp, rows.ep * rows.etp, dp)
        return everywhere, many.shared_by_node(sharing, nodes)

    def _short(self, groups: Groups, step: Array) -> tuple[Groups, Array]:
        """Layouts with no more micro-batches than a required step allows, and the bounds on their steps."""
        longest, index, table = longest_step(self.instance), np.arange(len(groups)), self.pipelines
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
            step[index] = self.book.bound(rows, table.slowest[rows.pipeline], table.extra[rows.pipeline])
        return groups, step

    def shorten(self, part: GroupTable | RowTable, index: Array) -> None:
        """Takes micro-batches from rows until the bounds on their steps are no longer than required."""
        longest = longest_step(self.instance)
        while np.isfinite(longest) and len(index):
            index = index[(part.bound[index] > longest) & np.isfinite(part.bound[index])]
            if isinstance(part, RowTable):
                index = index[~part.exact[index]]
            most = fewer_microbatches(part.rows.take(index), part.bound[index], longest)
            enough = most >= part.rows.m_low[index]
            index, most = index[enough], most[enough]
            self._with_fewer(part, index, most)

    def _with_fewer(self, part: GroupTable | RowTable, index: Array, most: Array) -> None:
        """Rows with fewer micro-batches, of which nothing but their first bound is known."""
        if not len(index):
            return
        before = part.rows.take(index)
        after = replace(before, m_high=most)
        self._count_shorter(before, after)
        anew: Any = type(part).of
        fresh: GroupTable | RowTable = anew(self.book, after, self.pipelines)
        bound = np.maximum(fresh.bound, part.bound[index] * most / before.m_high * (1 - 1e-12))
        part.rows.m_high[index], part.bound[index], part.level[index] = most, bound, LOOSE
        for f in fields(Economy):
            if (column := getattr(part.economy, f.name)) is not None:
                column[index] = getattr(fresh.economy, f.name)
        if isinstance(part, RowTable):
            part.plain[index], part.plain_recomputes[index] = np.nan, False

    def _count_shorter(self, before: Groups, after: Groups) -> None:
        """Counts the numbers of micro-batches that rows have lost to a required step."""
        of, many = step_requirement(self.instance), self.counter.many
        if of is not None:
            self._add_outside(of.text, int((many.of_rows(before) - many.of_rows(after)).sum()))

    def _add_outside(self, limit: str, number: int) -> None:
        if number:
            self.outside[limit] = self.outside.get(limit, 0) + number

    def _count_outside(self, groups: Groups, which: Array, limit: str) -> None:
        if which.any():
            number = int(self.counter.many.of_rows(groups.take(np.flatnonzero(which))).sum())
            self._add_outside(limit, number)

    def tighten_groups(self, index: Array) -> None:
        """Gives groups the bound that knows memory."""
        bound = group_memory_bound(self.book, self.groups.rows.take(index))
        self.groups.bound[index] = np.maximum(self.groups.bound[index], bound)
        self.groups.level[index] = TIGHT
        self.shorten(self.groups, index)

    def expand(self, index: Array) -> None:
        """Writes down the candidates of groups that are not written down yet."""
        index = index[~self.groups.expanded[index]]
        self.groups.expanded[index] = True
        rows = self.book.specific(self.groups.rows.take(index))
        fits = fitting_variants(self.book, rows)
        self._count_outside(rows, ~fits, "memory")
        self.add(expand(self.instance, rows.take(np.flatnonzero(fits))))

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
        return row_memory_bound(self.book, rows, uniform)

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
        """(2, rows): seconds of a step with the plain split, inf if it does not fit; if it recomputes."""
        found = np.empty((2, len(rows)))
        for _, family, at in families(rows):
            some = rows.take(at)
            figures = plain_figures(self.book, some, family, self.book.rates(some))
            found[:, at] = figures.fitting(memory_limits(self.instance, some.pool))
        return found

    def plain_plan(self, row: Candidates, recomputes: bool) -> Plan:
        """rows.plain_plan of a row."""
        return plain_plan(self.book, row, recomputes)

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
