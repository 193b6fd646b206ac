"""What became of every candidate: each is counted once, by the first rule that excluded it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.keybook import KeyBook
from planner.limits import beyond, outside
from planner.search.bounded import LOOSE, TIGHT, GroupTable, RowTable
from planner.search.goal import Effort, OutOfTime
from planner.search.least import Least
from planner.search.pipelines import pipelines_of
from planner.search.room import MEMORY, full_pipelines, own_memory, short_of
from planner.search.table import Table
from planner.search.tight import group_memory_bound, row_memory_bound
from planner.space.columns import Candidates, Groups, Pipelines

Array = NDArray[Any]
EXTRA = 0.5
"""Seconds that counting may take beyond the time limit."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """Counts of candidates; `valid` is the sum of all others."""

    valid: int
    rejected: dict[str, int]
    """By the limit that their bound breaks."""
    screened: int
    """Their bound without memory cannot beat the plan."""
    bounded: int
    """Their bound with memory cannot beat the plan."""
    solved: int
    """Their stages were assigned exactly."""

    @property
    def feasible(self) -> int:
        """What no limit excludes by its bound."""
        return self.valid - sum(self.rejected.values())

    def counts(self) -> dict[str, int | dict[str, int]]:
        """All of them, by the names that the proof has."""
        names = ("valid", "feasible", "screened", "bounded", "solved", "rejected")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def in_time(cls, table: Table | None, recompute: tuple[int, ...], effort: Effort) -> Ledger | None:
        """The counts after a search; None without a table, or if they take more than `EXTRA` too long."""
        if table is None:
            return None
        counting = Effort(until=None if effort.until is None else effort.until + EXTRA)
        try:
            return cls.of(table, recompute, counting.check)
        except OutOfTime:
            return None

    @classmethod
    def of(cls, table: Table, recompute: tuple[int, ...], check: Callable[[], None] = lambda: None) -> Ledger:
        """After a search through all candidates of these recompute families.

        `check` is called between pieces of work, and may raise.
        """
        keys, counter = table.book.keys, table.counter
        some = np.flatnonzero(np.isin(keys.family, recompute))
        valid, few = counter.keys(keys.take(some), table.at_least[some], check=check)
        least, rejected = table.least_of_keys(), dict(table.outside.by_limit)
        _count(rejected, "deadline", few.sum())
        # Pipelines of keys that are listed are counted one by one, those that do not fill apart.
        unlisted = some[~table.listed[1, some]]
        _beyond(rejected, least, unlisted, (valid - few)[~table.listed[1, some]])
        apart = some[table.listed[1, some] & ~table.listed[0, some]]
        waiting = np.subtract(*counter.keys(keys.take(apart), table.at_least[apart], 0, check))
        _beyond(rejected, table.least_of_keys(filled=False), apart, waiting)
        every = int((valid - few)[table.listed[1, some]].sum() - waiting.sum())
        _pipelines(table, recompute, rejected, every, check)
        bounded, groups = 0, table.groups
        for part, of in ((groups, ~groups.expanded), (table.rows, ~table.rows.exact)):
            check()
            bounded += _written(table, part, np.flatnonzero(of & (part.level > LOOSE)), rejected)
            _written(table, part, np.flatnonzero(of & (part.level == LOOSE)), rejected)
        exact = table.rows.rows.take(np.flatnonzero(table.rows.exact))
        solved = int(table.counter.many.of_rows(exact).sum())
        screened = int(valid.sum()) - sum(rejected.values()) - bounded - solved
        return cls(int(valid.sum()), rejected, screened, bounded, solved)


def _count(rejected: dict[str, int], limit: str, number: int) -> None:
    if number:
        rejected[limit] = rejected.get(limit, 0) + int(number)


def _by_first(rejected: dict[str, int], number: Array, broken: dict[str, Array]) -> Array:
    """Counts candidates of rows by the first limit that is broken; which rows break none."""
    left = np.ones(len(number), dtype=bool)
    for limit, over in broken.items():
        _count(rejected, limit, number[left & over].sum())
        left &= ~over
    return left


def _beyond(rejected: dict[str, int], least: Least, keys: Array, number: Array) -> None:
    """Counts candidates of layer keys by the limit that what they take at least breaks."""
    broken = {"deadline": least.late, "budget": least.dear} | least.beyond
    _by_first(rejected, number, {limit: over[keys] for limit, over in broken.items()})


def _pipelines(
    table: Table, recompute: tuple[int, ...], rejected: dict[str, int], every: int, check: Callable[[], None]
) -> None:
    """Pipelines that were never opened to layouts because nothing of theirs is within the limits.

    Of `every` candidate of what is listed of the keys, what is not listed itself has no room.
    """
    part, least, book = table.pipelines, table.least_of_pipelines(), table.book

    def number_of(rows: Pipelines) -> Array:
        return table.counter.pipelines(rows, table.at_least[rows.key], check)

    def short(rows: Pipelines, full: Array) -> dict[str, Array]:
        some = rows.take(np.flatnonzero(full))
        return short_of(book, full, lambda of: full_pipelines(of, some, table.layouts))

    mine = np.isin(part.rows.family, recompute)
    if own_memory(book) is None:
        listed = number_of(part.rows.take(np.flatnonzero(mine)))
        _count(rejected, MEMORY, every - listed.sum())
    else:
        rows = _unlisted(table, recompute)
        _by_first(rejected, number_of(rows), short(rows, np.ones(len(rows), dtype=bool)))
    closed = np.isneginf(part.opened) & mine
    no_room = np.isinf(part.slowest)
    beyond = {"deadline": least.late, "budget": least.dear} | least.beyond
    index = np.flatnonzero(closed & np.logical_or.reduce([no_room, *beyond.values()]))
    rows = part.rows.take(index)
    broken = short(rows, no_room[index]) | {name: of[index] for name, of in beyond.items()}
    _by_first(rejected, number_of(rows), broken)


def _unlisted(table: Table, recompute: tuple[int, ...]) -> Pipelines:
    """Pipelines of the keys that were looked at together and not written down, as none has room."""
    parts, keys = [Pipelines.empty()], table.book.keys
    known = _codes(table.pipelines.rows)
    for filled in (0, 1):
        some = np.flatnonzero(table.listed[filled] & np.isin(keys.family, recompute))
        rows = pipelines_of(table.book, some, table.layouts, (filled,), roomy=False)
        parts.append(rows.take(np.flatnonzero(~np.isin(_codes(rows), known))))
    return Pipelines.concatenate(parts)


def _codes(rows: Pipelines) -> Array:
    """A number for each pipeline that no other one has."""
    return ((rows.key * (1 << 20) + rows.pp) * 4 + rows.zero) * 2 + rows.filled


def _written(table: Table, part: GroupTable | RowTable, index: Array, rejected: dict[str, int]) -> int:
    """Adds what bounds of rows put outside a limit to `rejected`, and counts the others."""
    rows = part.rows.take(index)
    number = table.counter.many.of_rows(rows)
    economy, bound = part.economy.take(index), part.bound[index]
    full = np.isinf(bound)
    finite = np.where(full, 0.0, bound)

    def still_full(of: KeyBook) -> Array:
        return np.isinf(_with_memory(of, rows.take(np.flatnonzero(full)), part.level[index][full]))

    seconds, surely = economy.seconds(finite), economy.surely.seconds(finite)
    limits = table.goal.limits
    late, dear = outside(limits, surely, economy.total("cost", surely))
    broken = short_of(table.book, full, still_full) | {"deadline": late, "budget": dear}
    return int(number[_by_first(rejected, number, broken | beyond(limits, economy, seconds))].sum())


def _with_memory(book: KeyBook, rows: Groups, level: Array) -> Array:
    """The bounds with memory of groups, or of candidates at the level of theirs."""
    if not isinstance(rows, Candidates):
        return group_memory_bound(book, rows)
    bound = row_memory_bound(book, rows, uniform=False)
    some = np.flatnonzero(level > TIGHT)
    bound[some] = np.maximum(bound[some], row_memory_bound(book, rows.take(some), uniform=True))
    return bound
