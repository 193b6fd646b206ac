"""The target that wants the best plan, or the best one for each of several questions at once.

Questions share goal and table and differ in what they let through (a mask): why TP 4 and not another
value is the best plan with another value. Asked together they share every bound and every solved row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner import economics
from planner.limits import most_of, within
from planner.search.bounded import GroupTable, RowTable
from planner.search.branch import run
from planner.search.choice import CHOICE, chosen
from planner.search.goal import Effort, Mask, OutOfTime
from planner.search.rows import Plan, plain_plan
from planner.search.table import Table
from planner.space.columns import Candidates, LayerKeys, values_of
from planner.space.recompute import ALL, HIDDEN_SELECTIVE, SELECTIVE, VARIANTS

Array = NDArray[Any]
Keys = tuple[Array, ...]
FIRST_CEILING = 1.15
"""Layouts are first written down to this many times the best bound of a layer key."""
AHEAD, NEARER, MOST = 1.02, 1.02, 1e6
"""The next ceiling is so many times the best bound beyond the last one; of the last one at least, and by
more each time, up to the most."""
MOST_CHUNKS = 1 << 20
"""More than any rank holds."""
REACHED = 1e-8
"""Relative room for rounding where a value is known that a plan reaches."""


def best(
    table: Table, mask: Mask | None = None, effort: Effort | None = None, reach: float = np.inf
) -> Plan | None:
    """The best plan among what `mask` lets through, or None if none is within the limits.

    `reach`: a value of the objective's first term that a plan is known to have; nothing worse is looked at.
    Out of time, it is the best one that was found, and `effort.gap` says how far it may be from the best.
    """
    return best_each(table, [mask], effort, reach)[0]


def best_each(
    table: Table, masks: Sequence[Mask | None], effort: Effort | None = None, reach: float = np.inf
) -> list[Plan | None]:
    """The best plan of each mask."""
    effort = effort if effort is not None else Effort()
    target = Choices(table, masks, reach)
    try:
        run(table, target, effort)
    except OutOfTime:
        effort.gap = target.gap()
        target.settle_for_plain()
    return target.plans


class Choices:
    """Which rows may still be the best of a question, by incumbents."""

    def __init__(self, table: Table, masks: Sequence[Mask | None], reach: float = np.inf) -> None:
        self.table = table
        self.masks = masks
        self.share = len(masks)
        self.plans: list[Plan | None] = [None] * len(masks)
        self.incumbents: list[Keys | None] = [reached(table, reach)] * len(masks)
        """Sort keys of the best that is achieved: a plan, or a plain split that fits."""
        self.growth, self.nearer = FIRST_CEILING, NEARER
        self.plain: list[int | None] = [None] * len(masks)
        """The row of the best plain split, where that is the incumbent."""
        self.tried = 1
        """Rows of each question that are solved at once: more of them the longer none is a plan."""
        self.allowed = {
            GroupTable: np.empty((len(masks), 0), dtype=bool),
            RowTable: np.empty((len(masks), 0), dtype=bool),
        }
        for index, plan in table.plans.items():
            self.solved(index, plan)
        self.achieved(np.flatnonzero(np.isfinite(table.rows.plain)))

    def _asked(self, rows: LayerKeys) -> Array:
        """Which rows each question lets through: (questions, rows)."""
        every = np.ones(len(rows), dtype=bool)
        return np.array([every if mask is None else every & mask(rows) for mask in self.masks])

    def _of(self, part: GroupTable | RowTable) -> Array:
        """The same of all groups or candidates that are written down."""
        known = self.allowed[type(part)]
        if known.shape[1] < len(part):
            new = part.rows.take(slice(known.shape[1], None))
            self.allowed[type(part)] = known = np.concatenate([known, self._asked(new)], axis=1)
        return known

    def wanted(self, rows: LayerKeys, value: Array) -> Array:
        """Rows whose bound is no worse than the incumbent of a question that lets them through."""
        worst = [np.inf if of is None else float(of[0][0]) * (1 + 1e-9) for of in self.incumbents]
        return np.asarray((self._asked(rows) & (value <= np.array(worst)[:, None])).any(axis=0))

    promising = None

    def front(
        self, part: GroupTable | RowTable, index: Array, ceiling: float, sizes: tuple[int, ...]
    ) -> list[Array]:
        """Rows whose bound is no worse than the incumbent of a question, and the best of each question."""
        goal, allowed = self.table.goal, self._of(part)
        economy, bound = part.economy.take(index), part.bound[index]
        keys = goal.keys(economy, bound)
        inside = within(goal.limits, economy, bound)
        inside &= keys[0] <= ceiling
        if all(of is not None for of in self.incumbents):
            worst = max(float(of[0][0]) for of in self.incumbents if of is not None)
            inside &= keys[0] <= worst * (1 + 1e-9)
        some = np.flatnonzero(inside)
        index, keys = index[some], tuple(key[some] for key in keys)
        alive = allowed[:, index]
        for of, row in zip(self.incumbents, alive, strict=True):
            if of is not None:
                row &= economics.no_worse(keys, of)
        kept = np.flatnonzero(alive.any(axis=0))
        exact = part.exact[index] if isinstance(part, RowTable) else None
        return [index[kept], *(index[first_of_each(alive, keys, exact, size)] for size in sizes)]

    def achieved(self, index: Array) -> None:
        """Plain splits that fit are incumbents, where they beat those there are."""
        table = self.table
        if not len(index):
            return
        economy, step = table.rows.economy.take(index), table.rows.plain[index]
        keys = table.goal.keys(economy, step)
        ok = within(table.goal.limits, economy, step)
        for question, allowed in enumerate(self._of(table.rows)[:, index]):
            these = np.flatnonzero(allowed & ok)
            if len(these):
                first = these[np.lexsort([key[these] for key in keys[::-1]])[:1]]
                self._offer(question, tuple(key[first] for key in keys), int(index[first[0]]), None)

    def solved(self, index: int, plan: Plan) -> None:
        """A plan within the limits is an incumbent where it beats those there are."""
        economy, step = self.table.rows.economy.take(np.array([index])), np.array([plan.step])
        if not within(self.table.goal.limits, economy, step)[0]:
            return
        keys, self.tried = self.table.goal.keys(economy, step), 1
        for question in np.flatnonzero(self._of(self.table.rows)[:, index]).tolist():
            self._offer(question, keys, None, plan)

    def _offer(self, question: int, keys: Keys, plain: int | None, plan: Plan | None) -> None:
        old = self.incumbents[question]
        if old is not None and not economics.no_worse(keys, old)[0]:
            return
        self.incumbents[question], self.plain[question] = keys, plain
        self.plans[question] = plan if plain is None else self.plans[question]

    def picks(self, index: Array) -> Array:
        """The best rows of each question that is not answered yet; a single question's by CP-SAT."""
        table, found = self.table, []
        keys = table.goal.keys(table.rows.economy.take(index), table.rows.bound[index])
        order = np.lexsort(
            (~table.rows.exact[index], plainness(table.rows.rows.take(index)), economics.ranks(keys))
        )
        allowed = self._of(table.rows)[:, index]
        for question in range(len(self.masks)):
            mine = index[order[allowed[question][order]]]
            if not len(mine):
                continue
            exact = np.flatnonzero(table.rows.exact[mine])
            first = int(exact[0]) if len(exact) else len(mine)
            if first == 0 and len(self.masks) == 1:
                mine = np.array([self._chosen()])
                first = int(not table.rows.exact[mine[0]])
            if first == 0:
                self.plans[question] = table.plans[int(mine[0])]
            found += mine[: min(first, self.tried)].tolist()
        self.tried *= 2
        return np.array(sorted(set(found)), dtype=np.int64)

    def _chosen(self) -> int:
        """The row that CP-SAT chooses among solved plans and open bounds; every decision is a variable."""
        table = self.table
        every = np.arange(len(table.rows))
        index = self.front(table.rows, every, np.inf, (CHOICE,))[1]
        economy, step = table.rows.economy.take(index), table.rows.bound[index]
        # An exact row goes before bounds that only equal it, unless these are plainer plans.
        rank = economics.ranks(table.goal.keys(economy, step))
        order = np.lexsort((~table.rows.exact[index], plainness(table.rows.rows.take(index)), rank))
        rows = table.rows.rows.take(index[order])
        return int(index[order[chosen(rows, economy.take(order), step[order], table.goal.limits)]])

    def longest(self, index: int) -> float:
        """A step beyond which a row is outside the limits or worse than every incumbent it competes with."""
        table, goal = self.table, self.table.goal
        economy = table.rows.economy.take(np.array([index]))
        most, first = most_of(goal.limits), goal.objective[0][0]
        # A committed window makes the cost flat, so that plans with the same cost may differ in time.
        flat = first == "cost" and any(pool.committed for pool in table.instance.pools)
        asked = [self.incumbents[q] for q in np.flatnonzero(self._of(table.rows)[:, index])]
        if goal.lexicographic and not flat and all(of is not None for of in asked):
            value = max(float(of[0][0]) for of in asked if of is not None)
            most[first] = min(most[first], value)
        longest = economy.longest(*most.values())
        if economy.margin is not None:
            limits = most_of(goal.limits)
            longest = np.minimum(longest, economy.surely.longest(limits["time"], limits["cost"]))
        return float(economy.later(longest, 1e-9)[0])

    def ceiling(self, last: float) -> float | None:
        """First a little above the best bound; then what the worst incumbent, or a missing one, asks for."""
        values = [None if of is None else float(of[0][0]) for of in self.incumbents]
        if np.isneginf(last) and None in values:
            keys = self.table.least_of_keys()
            known = keys.value[keys.within & self.wanted(self.table.book.keys, keys.value)]
            return FIRST_CEILING * float(known.min()) if len(known) else None
        self.growth, self.nearer = min(self.growth**1.25, MOST), min(self.nearer**1.25, MOST)
        wanted = [
            min(self.growth * last if value is None else value * (1 + 1e-8), max(ahead, self.nearer * last))
            for value, ahead in zip(values, self._ahead(), strict=True)
            if value is None or value * (1 + 1e-9) > last
        ]
        if not wanted:
            return None
        return max(wanted) if max(wanted) < self._largest() else np.inf

    def _ahead(self) -> list[float]:
        """A little above the best bound of each question beyond the ceiling: there its answer may be."""
        least = np.full(len(self.masks), np.inf)
        for part, open_rows in (
            (self.table.groups, ~self.table.groups.expanded),
            (self.table.rows, ~self.table.rows.exact),
        ):
            index = self.front(part, np.flatnonzero(open_rows), np.inf, ())[0]
            value = self.table.goal.keys(part.economy.take(index), part.bound[index])[0]
            of = np.where(self._of(part)[:, index], value, np.inf)
            least = np.minimum(least, of.min(axis=1, initial=np.inf))
        return (AHEAD * least).tolist()

    def _largest(self) -> float:
        """No plan within the limits has a larger value, where a limit says so."""
        goal = self.table.goal
        bound = most_of(goal.limits)[goal.objective[0][0]] if goal.lexicographic else np.inf
        usual = 1e4 * float(self.table.least_of_keys().value.min(initial=np.inf))
        return bound if np.isfinite(bound) else usual

    def gap(self) -> float:
        """How far the first question's incumbent may be from the best there is, by all that is open."""
        of, table = self.incumbents[0], self.table
        if of is None:
            return 0.0
        value = float(of[0][0])
        keys, pipelines = table.least_of_keys(), table.least_of_pipelines()
        unlisted = keys.within & ~table.listed.all(axis=0) & self.wanted(table.book.keys, keys.value)
        unopened = pipelines.within & ~table.pipelines.finished
        unopened &= self.wanted(table.pipelines.rows, pipelines.value)
        beyond = np.maximum(pipelines.value, table.pipelines.opened)[unopened]
        least = [value, *keys.value[unlisted].tolist(), *beyond.tolist()]
        for part, index in (
            (table.groups, np.flatnonzero(~table.groups.expanded)),
            (table.rows, np.arange(len(table.rows))),
        ):
            left = self.front(part, index, np.inf, ())[0]
            least += table.goal.keys(part.economy.take(left), part.bound[left])[0].tolist()
        return economics.gap(value, min(least))

    def settle_for_plain(self) -> None:
        """Takes the plain split that is the incumbent for the plan: out of time."""
        rows = self.table.rows
        for question, index in enumerate(self.plain):
            if index is not None:
                row = rows.rows.take(np.array([index]))
                again = bool(rows.plain_recomputes[index])
                self.plans[question] = plain_plan(self.table.book, row, again)


def plainness(rows: Candidates) -> Array:
    """The plainer of rows that are equally good: none recomputes modules for nothing, nor interleaves."""
    again = np.isin(rows.family, (ALL, SELECTIVE, HIDDEN_SELECTIVE))
    return (again * VARIANTS + rows.hidden) * MOST_CHUNKS + rows.vpp


def reached(table: Table, value: float) -> Keys | None:
    """Sort keys just behind all plans that have a value of the objective's first term; None for no value."""
    if np.isinf(value):
        return None
    nothing = table.rows.economy.take(np.empty(0, dtype=np.int64))
    terms = len(table.goal.keys(nothing, np.empty(0)))
    return (np.array([value * (1 + REACHED)]), *([np.array([np.inf])] * (terms - 1)))


def first_of_each(alive: Array, keys: Keys, exact: Array | None, size: int) -> Array:
    """Indices of the `size` best rows of each question, in order, exact before equal bounds."""
    found = []
    for mine in alive:
        at = np.flatnonzero(mine)
        if len(at) > size:
            last = np.partition(keys[0][at], size)[size]
            at = at[keys[0][at] <= last * (1 + 1e-9)]
        if len(at) > size:  # what ties in the first key is told apart by the others
            at = at[np.argsort(economics.ranks(tuple(key[at] for key in keys)), kind="stable")[:size]]
        found.append(at)
    index = np.array(values_of(np.concatenate(found)), dtype=np.int64) if len(found) > 1 else found[0]
    columns = [key[index] for key in keys[::-1]]
    if exact is not None:
        columns.insert(0, ~exact[index])
    return index[np.lexsort(columns)]
