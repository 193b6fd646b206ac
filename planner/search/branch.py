"""The loop that all searches share: open layer keys, tighten, expand, solve, until nothing open can win.

What a search looks for is its target: which rows may still be part of the answer, and which of them to
look at first. Groups and rows leave when their bound cannot, and whatever leaves never comes back.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from planner.required import longest_step
from planner.search.bounded import LOOSE, UNIFORM, GroupTable, RowTable
from planner.search.goal import Effort
from planner.search.opening import Promising, open_pipelines
from planner.search.rows import Plan, next_fewer_microbatches, one_microbatch_count
from planner.search.table import Table
from planner.space.columns import Candidates, LayerKeys

Array = NDArray[Any]
EXPANDED = 64
"""Groups that are expanded first (for each question); each further batch is twice as large."""
TIGHTENED = 512
"""Groups or rows whose bound is tightened at once, at least."""
LOOKED_AT = 16
"""Rows whose bound is the tightest and whose plain split is known before any of them is solved."""


class Target(Protocol):
    """What a search looks for."""

    share: int
    """How many questions share what is looked at together."""

    def wanted(self, rows: LayerKeys, value: Array) -> Array:
        """Which layer keys or pipelines may hold a part of the answer, by a bound on the goal's first key."""
        ...

    @property
    def promising(self) -> Promising | None:
        """Which layouts may be part of the answer, where that is no question of the goal's value."""
        ...

    def front(
        self, part: GroupTable | RowTable, index: Array, ceiling: float, sizes: tuple[int, ...]
    ) -> list[Array]:
        """Of `index`, what may be part of the answer; and of that, so many to look at first, best first.

        The lists hold indices of the table. What is beyond the ceiling waits: better may not be open yet.
        """
        ...

    def achieved(self, index: Array) -> None:
        """Rows whose plain split is known."""
        ...

    def solved(self, index: int, plan: Plan) -> None:
        """A row is solved."""
        ...

    def picks(self, index: Array) -> Array:
        """Rows to solve next among the best ones, none if all that matter are solved."""
        ...

    def longest(self, index: int) -> float:
        """A step beyond which a row is of no use."""
        ...

    def ceiling(self, last: float) -> float | None:
        """Up to which value of the goal layouts are written down next; None if nothing beyond can win."""
        ...


def run(table: Table, target: Target, effort: Effort) -> None:
    """Searches until the target has its answer. Raises OutOfTime."""
    ceiling, complete = -np.inf, False
    while not complete:
        effort.check()
        higher = target.ceiling(ceiling)
        if higher is None:
            return
        ceiling = higher
        complete = open_to(table, target, ceiling, effort)
        # With everything open nothing has to wait.
        close(table, target, np.inf if complete else ceiling, effort)


def open_to(table: Table, target: Target, ceiling: float, effort: Effort) -> bool:
    """Writes down all layouts up to a ceiling that may be part of the answer; False if others are beyond."""
    complete = True
    for filled in (1, 0):
        keys = table.least_of_keys(filled == 1)
        wanted = keys.within & target.wanted(table.book.keys, keys.value)
        table.list_pipelines(np.flatnonzero(wanted & (keys.value <= ceiling)), (filled,), roomy=True)
        complete &= not (wanted & (keys.value > ceiling)).any()
        effort.check()
    for know_memory in (True, False):
        least = table.least_of_pipelines()
        # What fits no memory takes forever.
        wanted = least.within & np.isfinite(least.value) & target.wanted(table.pipelines.rows, least.value)
        index = np.flatnonzero(wanted & (least.value <= ceiling))
        if know_memory:
            for some in effort.pieces(index[~table.pipelines.known[index]]):
                table.pipelines.fit(table.book, some, table.layouts)
        else:
            open_pipelines(table, index, ceiling, target.promising)
            finished = table.pipelines.finished | (np.isinf(table.pipelines.slowest))
            complete &= bool(finished[np.flatnonzero(wanted)].all())
    return complete


def close(table: Table, target: Target, ceiling: float, effort: Effort) -> None:
    """Branches and bounds until nothing that is written down and below the ceiling can win."""
    left, batch = np.flatnonzero(~table.groups.expanded), max(EXPANDED // target.share, 16)
    resolve(table, target, ceiling, effort)
    while True:
        left, first = tighten_groups(table, target, left, batch, ceiling, effort)
        if not len(left):
            return
        table.expand(first)
        left, batch = left[~table.groups.expanded[left]], batch * 2
        resolve(table, target, ceiling, effort)
        effort.progress(
            f"{len(table.rows):,} candidates written down, {effort.solved} solved, {len(left):,} groups left"
        )


def tighten_groups(
    table: Table, target: Target, left: Array, batch: int, ceiling: float, effort: Effort
) -> tuple[Array, Array]:
    """Groups that may still win, and the first of them, with bounds that know memory.

    Each round tightens twice as many: where bounds without memory say little, few rounds reach what does.
    """
    size = max(TIGHTENED // target.share, 128, 2 * batch)
    while True:
        effort.check()
        left, first, wide = target.front(table.groups, left, ceiling, (batch, size))
        if not (table.groups.level[first] == LOOSE).any():
            return left, first
        for some in effort.pieces(wide[table.groups.level[wide] == LOOSE]):
            table.tighten_groups(some)
        size *= 2


def resolve(table: Table, target: Target, ceiling: float, effort: Effort) -> None:
    """Solves rows until no bound of a row that is written down is better than what is exact."""
    index = np.arange(len(table.rows))
    look, size = max(LOOKED_AT // target.share, 4), max(TIGHTENED // target.share, 128)
    while True:
        effort.check()
        index, first, wide = target.front(table.rows, index, ceiling, (look, max(look, size)))
        if not len(index):
            return
        rows = table.rows
        if ((rows.level[first] < UNIFORM) & ~rows.exact[first]).any():
            open_rows = wide[(rows.level[wide] < UNIFORM) & ~rows.exact[wide]]
            table.tighten_rows(open_rows)
            size *= 2
            continue
        unseen = first[np.isnan(rows.plain[first])]
        if len(unseen):
            table.look_at_plain(unseen)
            target.achieved(unseen)
            look *= 2
            continue
        picks = target.picks(first)
        if not len(picks):
            return
        for place, pick in enumerate(picks.tolist()):
            # What was solved just before may leave a row of no use.
            if place == 0 or table.rows.bound[pick] <= target.longest(pick):
                index = np.concatenate([index, solve(table, target, pick, effort)])


def solve(table: Table, target: Target, index: int, effort: Effort) -> Array:
    """Solves a row, and returns rows that stand for fewer micro-batches of it."""
    rows = table.rows
    row = rows.rows.take(np.array([index]))
    bound = rows.bound[index]
    if rows.plain[index] <= bound * (1 + 1e-9):
        plan: Plan | None = table.plain_plan(row, bool(rows.plain_recomputes[index]))
        longest = np.inf
    else:
        longest = target.longest(index)
        plan = table.solved_plan(row, longest, effort)
    if plan is not None:
        table.keep(index, plan)
        target.solved(index, plan)
    else:
        # None below `longest`: a little more than that tells it from what just equals it.
        economy = rows.economy.take(np.array([index]))
        rows.bound[index] = max(bound, float(economy.later(np.array([longest]), 1e-8)[0]))
    # A plan that meets the bound of all its numbers of micro-batches leaves nothing to the others, unless it
    # is less sure than limits ask for: then any smaller number may be surer.
    unsure = plan is not None and not table.surely_within(np.array([index]), np.array([plan.step]))[0]
    met = plan is not None and not unsure and plan.step <= bound * (1 + 1e-9)
    # Where it is the step that was too long, any smaller number may do.
    long = plan is None and np.isfinite(longest) and longest >= longest_step(table.instance)
    return np.empty(0, dtype=np.int64) if met else fewer(table, index, row, every=unsure or long)


def fewer(table: Table, index: int, row: Candidates, every: bool = False) -> Array:
    """Rows for fewer micro-batches: those that may be better because they need less memory, or every one."""
    most, low = next_fewer_microbatches(row, every), int(row.m_low[0])
    if most < low:
        return np.empty(0, dtype=np.int64)
    child = one_microbatch_count(row, most)
    child.m_low[:] = low
    # The row itself now stands for its largest number only.
    table.rows.rows.m_low[index] = row.m_high[0]
    return table.add(child)
