"""What what-ifs share that change only limits, prices, committed windows, the objective, tokens or counts.

Nothing of that changes what a layer costs or what a step takes: the costs of layer keys, what memory leaves
of pipelines, tight bounds, plain splits and assigned stages are found once, for whichever what-if asks first,
and kept by the identity of their row. What memory leaves of pipelines is found for the widest counts of all
what-ifs, which bounds narrower ones as well.

Every what-if goes the way that it would go alone: it only finds answers faster. So its plan and its counts
do not depend on which others were asked before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.economics import Economy
from planner.instance import Instance, Limits, Pool, Term
from planner.keybook import KeyBook
from planner.limits import within
from planner.narrowing import ZERO_SCOPES
from planner.search.best import best
from planner.search.goal import Effort, Goal, Mask, goal_of
from planner.search.memo import Memo
from planner.search.physics import Counts, counts_of, physics_of, widest
from planner.search.pipelines import PipelineTable, pipelines_of
from planner.search.rows import Plan
from planner.search.table import Table, places_of
from planner.search.what_if import WhatIf, columns_of
from planner.space.columns import Candidates, Groups, Pipelines
from planner.space.counting import Counter, Places
from planner.space.layouts import Layouts
from planner.space.recompute import VARIANTS, family_variants
from planner.space.totals import LookedUp, Totals

Array = NDArray[Any]
SEARCHES = 6
"""Answers that are kept, with their tables."""
LISTINGS = 8
"""Lists of pipelines that are kept."""
MOST_CODES = 1 << 62
"""Identities of rows are whole numbers below this."""


@cache
def first_batches(max_batch: int) -> Array:
    """By dp, the number of the first (dp, micro-batches): their product is within the batch."""
    return np.concatenate([[0, 0], np.cumsum(max_batch // np.arange(1, max_batch + 1) + 1)])


@dataclass(slots=True)
class Evaluation:
    """What is known of an instance whatever its limits, prices, objective and tokens, on no more nodes."""

    book: KeyBook
    physics: Instance
    recompute: tuple[int, ...]
    pipelines: PipelineTable
    """Of all layer keys, within memory where any what-if asked for it."""
    layouts: Places
    loose: PipelineTable
    """The same as long as nobody asks what memory leaves of them."""
    totals: Totals | None
    roomy: Array
    """Which pipelines a search that knows memory writes down."""
    places: dict[Counts, tuple[Places, Counter, Array]] = field(default_factory=dict)
    searches: list[tuple[Instance, Goal, Plan | None, Table]] = field(default_factory=list)
    """The last ones."""
    optima: dict[Any, list[tuple[tuple[Pool, ...], Plan | None]]] = field(default_factory=dict)
    listings: dict[tuple[bytes, bytes], tuple[Array, Pipelines]] = field(default_factory=dict)
    group_bounds: Memo = field(default_factory=lambda: Memo.of(1))
    row_bounds: tuple[Memo, Memo] = field(default_factory=lambda: (Memo.of(1), Memo.of(1)))
    plain: Memo = field(default_factory=lambda: Memo.of(2))
    plans: dict[int, Plan | None] = field(default_factory=dict)
    plain_plans: dict[tuple[int, bool], Plan] = field(default_factory=dict)

    @classmethod
    def of(cls, instance: Instance, recompute: tuple[int, ...]) -> Evaluation:
        """Of an instance with counts that hold those of all what-ifs."""
        book = KeyBook.of(instance, recompute)
        layouts = places_of(instance, book.keys)
        keys = np.arange(len(book.keys))
        pipelines = PipelineTable.of(book, keys, layouts)
        roomy = np.isin(_codes(pipelines.rows), _codes(pipelines_of(book, keys, layouts, (0, 1), roomy=True)))
        copies = {name: of.copy() for name, of in columns_of(pipelines).items()}
        loose = PipelineTable(rows=pipelines.rows, **copies)
        totals = Totals.of(Counter(instance, layouts), book.keys)
        return cls(book, physics_of(instance), recompute, pipelines, layouts, loose, totals, roomy)

    def holds(self, instance: Instance) -> bool:
        """Whether a what-if can be answered from it."""
        wide = counts_of(self.book.instance)
        if self.identities >= MOST_CODES:
            return False
        return physics_of(instance) == self.physics and widest([wide, counts_of(instance)]) == wide

    def table(self, instance: Instance, goal: Goal, recompute: tuple[int, ...]) -> Table:
        """A what-if's table, as `Table.of` makes one."""
        if recompute != self.recompute or not self.holds(instance):
            return Table.of(instance, goal, recompute)
        book = replace(self.book, instance=instance)
        return WhatIf.on(self, book, goal, *self.places_of(instance))

    def answer(self, instance: Instance, effort: Effort) -> tuple[Plan | None, Table]:
        """The best plan of a what-if, and the table that proves it."""
        goal = goal_of(instance)
        loose = without_decided_limit(goal)
        if effort.until is not None:
            table = self.table(instance, goal, self.recompute)
            return best(table, effort=effort), table
        plan, table = self.searched(instance, loose, effort)
        if plan is not None:
            economy, step = Economy.of(instance, plan.row), np.array([plan.step])
            plan = plan if within(goal.limits, economy, step).all() else None
        return plan, replace(table, goal=goal, known_least=None)

    def searched(self, instance: Instance, goal: Goal, effort: Effort) -> tuple[Plan | None, Table]:
        """The best plan of a goal and the table it was found in; neighbouring what-ifs ask for the same.

        Raises OutOfTime where that is not proved in time.
        """
        instance = replace(instance, limits=goal.limits)
        for index, (asked, of, plan, table) in enumerate(self.searches):
            if of == goal and asked.tokens == instance.tokens and asked.pools == instance.pools:
                self.searches.append(self.searches.pop(index))
                return plan, table
        table = self.table(instance, goal, self.recompute)
        plan = best(table, effort=effort)
        effort.conclude()
        self.searches[:] = [*self.searches, (instance, goal, plan, table)][-SEARCHES:]
        return plan, table

    def optimum(
        self,
        instance: Instance,
        limits: Limits,
        objective: Term,
        mask: Mask | None = None,
        until: float | None = None,
    ) -> Plan | None:
        """`relaxed.optimum`, which what-ifs that nothing fits ask for again and again."""
        assert mask is None
        goal = goal_of(instance, limits, objective)
        counted = tuple((p.min_nodes, p.max_nodes, p.price, p.committed) for p in instance.pools)
        known = self.optima.setdefault((goal, instance.tokens, counted), [])
        for pools, plan in known:
            if pools == instance.pools:
                return plan
        plan, _ = self.searched(instance, goal, Effort(until=until))
        known.append((instance.pools, plan))
        return plan

    def places_of(self, instance: Instance) -> tuple[Places, Counter, Array]:
        """Layouts of an instance with these counts or fewer, what counts them, which pipelines have any."""
        counts = counts_of(instance)
        if counts not in self.places:
            layouts = {of: fewer(part, instance, of[0]) for of, part in self.layouts.items()}
            counter = Counter(instance, layouts)
            if self.totals is not None:
                counter = LookedUp(instance, layouts, self.totals)
            self.places[counts] = layouts, counter, self.exists(layouts)
        return self.places[counts]

    def exists(self, layouts: Places) -> Array:
        """(pipelines,) whether they have any layout among these."""
        rows = self.pipelines.rows
        found, ranks = np.zeros(len(rows), dtype=bool), rows.tp * rows.cp
        for (pool, size), layout in layouts.items():
            some = np.flatnonzero((rows.pool == pool) & (ranks == size))
            found[some] = layout.start[rows.pp[some] + 1] > layout.start[rows.pp[some]]
        return found

    def listing(self, before: Array, asked: Array) -> tuple[Array, Pipelines]:
        """Rows of pipelines that are listed one after the other: those before, then those asked for.

        Neighbouring what-ifs list the same ones.
        """
        of = (before.tobytes(), asked.tobytes())
        if of not in self.listings:
            origin = np.concatenate([before, np.flatnonzero(asked)])
            self.listings[of] = origin, self.loose.rows.take(origin)
            if len(self.listings) > LISTINGS:
                self.listings.pop(next(iter(self.listings)))
        return self.listings[of]

    def code(self, rows: Groups, origin: Array) -> Array:
        """What tells rows of the evaluation apart."""
        instance, first = self.book.instance, first_batches(self.book.instance.max_batch)
        code = origin * int(first[-1]) + first[rows.dp] + rows.m_high
        code = (code * (instance.max_batch + 1) + rows.m_low) * len(ZERO_SCOPES) + rows.zero_scope
        if not isinstance(rows, Candidates):
            return code
        order = np.zeros(VARIANTS, dtype=np.int64)
        order[list(self.variants)] = np.arange(len(self.variants))
        code = code * (instance.architecture.layers + 1) + rows.vpp
        return code * len(self.variants) + order[rows.variant]

    @property
    def variants(self) -> tuple[int, ...]:
        """All that candidates may have."""
        of = self.book.instance
        return tuple(sorted({v for family in self.recompute for v in family_variants(of, family)}))

    @property
    def identities(self) -> int:
        """No identity of a row is as large as this."""
        instance = self.book.instance
        batches = int(first_batches(instance.max_batch)[-1])
        schedules = (instance.max_batch + 1) * len(ZERO_SCOPES) * (instance.architecture.layers + 1)
        schedules *= len(self.variants)
        return len(self.pipelines) * batches * schedules


def _codes(rows: Pipelines) -> Array:
    """What tells pipelines apart."""
    return ((rows.key * (1 << 20) + rows.pp) * 4 + rows.zero) * 2 + rows.filled


def fewer(layout: Layouts, instance: Instance, pool: int) -> Layouts:
    """The layouts that a pool of fewer nodes can hold."""
    of = instance.pools[pool]
    node = of.fabric.gpus_per_node
    held = (layout.num_gpus >= of.min_nodes * node) & (layout.num_gpus <= of.max_nodes * node)
    pp = layout.pp[held]
    start = np.searchsorted(pp, np.arange(len(layout.start)))
    return Layouts(pp, layout.dp[held], layout.num_gpus[held], start)


def without_decided_limit(goal: Goal) -> Goal:
    """The goal without a limit that its own objective decides.

    The cheapest plan is within the budget, or no plan is, so that what-ifs that differ only in the budget
    share one search; and likewise the quickest plan and the deadline. With a confidence limits are about
    something else than the objective.
    """
    limit = {"cost": "budget", "time": "deadline"}.get(goal.objective[0][0])
    if limit is None or not goal.lexicographic or goal.limits.confidence is not None:
        return goal
    return replace(goal, limits=replace(goal.limits, **{limit: None}))
