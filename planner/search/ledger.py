"""What became of every candidate: each is counted once, by the first rule that excluded it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.limits import broken_by
from planner.search.bounded import LOOSE, GroupTable, RowTable
from planner.search.table import Table
from planner.space.counting import Counter


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

    @classmethod
    def of(cls, table: Table, recompute: tuple[int, ...]) -> Ledger:
        """After a search through all candidates of these recompute families."""
        keys, counter = table.book.keys, table.counter
        some = np.flatnonzero(np.isin(keys.family, recompute))
        valid, few = counter.keys(keys.take(some), table.at_least[some])
        least, rejected = table.least_of_keys(), dict(table.outside.by_limit)
        _count(rejected, "deadline", few.sum())
        # Pipelines of keys that are listed are counted one by one.
        left = ~table.listed[1, some]
        for limit, over in ({"budget": least.dear} | least.beyond).items():
            _count(rejected, limit, (valid - few)[left & over[some]].sum())
            left &= ~over[some]
        apart = some[table.listed[1, some] & ~table.listed[0, some]]
        waiting = np.subtract(*counter.keys(keys.take(apart), table.at_least[apart], filled=0)).sum()
        every = int((valid - few)[table.listed[1, some]].sum() - waiting)
        _pipelines(table, counter, recompute, rejected, every)
        bounded, groups = 0, table.groups
        for part, of in ((groups, ~groups.expanded), (table.rows, ~table.rows.exact)):
            bounded += _tight(table, part, np.flatnonzero(of & (part.level > LOOSE)), rejected)
        exact = table.rows.rows.take(np.flatnonzero(table.rows.exact))
        solved = int(table.counter.many.of_rows(exact).sum())
        screened = int(valid.sum()) - sum(rejected.values()) - bounded - solved
        return cls(int(valid.sum()), rejected, screened, bounded, solved)


def _count(rejected: dict[str, int], limit: str, number: int) -> None:
    if number:
        rejected[limit] = rejected.get(limit, 0) + int(number)


def _pipelines(
    table: Table, counter: Counter, recompute: tuple[int, ...], rejected: dict[str, int], every: int
) -> None:
    """Pipelines that were never opened to layouts because nothing of theirs is within the limits.

    Of `every` candidate of what is listed of the keys, what is not listed itself has no room.
    """
    part, least = table.pipelines, table.least_of_pipelines()
    mine = np.isin(part.rows.family, recompute)
    listed = part.rows.take(np.flatnonzero(mine))
    _count(rejected, "memory", every - counter.pipelines(listed, table.at_least[listed.key]).sum())
    closed = np.isneginf(part.opened) & mine
    full = np.isinf(part.slowest)
    broken = {"memory": full, "deadline": least.late, "budget": least.dear} | least.beyond
    index = np.flatnonzero(closed & np.logical_or.reduce(list(broken.values())))
    rows = part.rows.take(index)
    number, left = counter.pipelines(rows, table.at_least[rows.key]), np.ones(len(index), dtype=bool)
    for limit, over in broken.items():
        _count(rejected, limit, number[left & over[index]].sum())
        left &= ~over[index]


def _tight(
    table: Table, part: GroupTable | RowTable, index: NDArray[np.int64], rejected: dict[str, int]
) -> int:
    """Adds what the bound with memory puts outside a limit to `rejected`, and counts the others."""
    number = table.counter.many.of_rows(part.rows.take(index))
    economy, bound = part.economy.take(index), part.bound[index]
    full = np.isinf(bound)
    finite = np.where(full, 0.0, bound)
    seconds, limits, left = economy.seconds(finite), table.goal.limits, np.ones(len(index), dtype=bool)
    broken = {"memory": full} | broken_by(limits, economy, seconds, economy.total("cost", seconds))
    for limit, over in broken.items():
        _count(rejected, limit, number[left & over].sum())
        left &= ~over
    return int(number[left].sum())
