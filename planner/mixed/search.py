"""Plans on two pools, by branch and bound: cells of nodes, layouts, micro-batches, stages.

Every step drops only what a lower bound shows to be no better than what was found so far:

    cells       nodes of each pool, by what both can do at most with the best layer key each
    keys        of a cell, by what both can do at most with that key
    layouts     of a cell and a key: pipelines, replicas, ZeRO stage, by bubble, transfers and memory
    schedules   of a layout: numbers of micro-batches, exactly what is left of them
    stages      of a schedule, by CP-SAT
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.mixed_estimate import estimate_mixed
from planner import economics
from planner.economics import Economy
from planner.instance import Instance
from planner.keybook import KeyBook
from planner.mixed.arrangement import arrangements
from planner.mixed.cells import Cells
from planner.mixed.plan import MixedPlan, mixed_of
from planner.mixed.schedules import Schedules
from planner.mixed.stages import solve_mixed_stages
from planner.mixing import Form
from planner.search.goal import Effort, Goal, OutOfTime
from planner.space.recompute import overlaps, recompute_families

Array = NDArray[Any]
FIRST_CELLS = 64
"""Cells that are looked into first; each further batch is twice as large."""


@dataclass(slots=True)
class MixedSearch:
    """A search with what it looked at; what it looks for is its subclass."""

    instance: Instance
    goal: Goal
    effort: Effort
    cells: int = 0
    """Pairs of numbers of nodes."""
    layouts: int = 0
    """Layouts that were written down."""
    solved: int = 0
    """Stage assignments solved by CP-SAT."""
    complete: bool = False
    """Whether everything that may be better was looked at."""
    least: float = 0.0
    """No plan that was not looked at is better than this in the first sort key."""
    seconds: float = 0.0
    """What it took."""

    def keys(self, economy: Economy, step: Array) -> tuple[Array, ...]:
        """In which order to look at rows, most important first."""
        raise NotImplementedError

    def may_win(self, economy: Economy, step: Array) -> Array:
        """Whether rows with such bounds, or steps, are part of the answer as far as it is known."""
        raise NotImplementedError

    def longest(self, economy: Economy) -> float:
        """A step beyond which the only row of an economy is of no use."""
        raise NotImplementedError

    def keep(self, plan: MixedPlan, economy: Economy) -> None:
        """Takes a plan that may win into the answer."""
        raise NotImplementedError

    def wins(self, economy: Economy, step: Array) -> Array:
        """Indices of rows within the limits that may win, the best bounds first."""
        inside = economics.within(self.goal.limits, economy, step) & self.may_win(economy, step)
        index = np.flatnonzero(inside)
        keys = self.keys(economy, step)
        return index[np.lexsort([key[index] for key in keys[::-1]])]

    def run(self, forms: tuple[Form, ...] | None = None) -> None:
        """Looks everywhere, in these forms or all that the problem asks for, until the time is out."""
        assert self.instance.mixing is not None
        started = monotonic()
        try:
            self._look(self.instance.mixing.forms if forms is None else forms)
        except OutOfTime:
            self.effort.out_of_time = True
        self.seconds = monotonic() - started

    def _look(self, forms: tuple[Form, ...]) -> None:
        # Stages of two pools are not interleaved, which hidden traffic needs.
        shown = tuple(hidden for hidden in overlaps(self.instance) if not hidden)
        families = recompute_families(self.instance, hidden=shown)
        book = KeyBook.of(self.instance, families, apart=True)
        every = [Cells.of(each) for each in arrangements(self.instance, book, forms)]
        self.cells = sum(len(cells.left) for cells in every)
        size = FIRST_CELLS
        while every := [cells for cells in every if cells.open(self)]:
            first = min(every, key=lambda cells: cells.least(self))
            self.least = first.least(self)
            self.effort.check()
            first.advance(self, size)
            size *= 2
        self.complete = True

    def settle(self, some: Schedules) -> None:
        """Solves schedules of one layout or more until none that is left may win."""
        order = self.wins(some.economy, some.bound)
        while len(order):
            self.effort.check()
            self._solve(some, int(order[0]))
            left = order[1:]
            order = left[self.wins(some.economy.take(left), some.bound[left])]

    def _solve(self, some: Schedules, index: int) -> None:
        """One schedule: its best stage assignment, if that is better than the best plan."""
        economy = some.economy.take(np.array([index]))
        problem = some.problem(index)
        self.solved += 1
        try:
            stages = solve_mixed_stages(problem, self.effort.seconds_left, self.longest(economy))
        except TimeoutError:
            self.effort.stop()
        if stages is None:
            return
        row = some.plan(index)
        priced = estimate_mixed(mixed_of(self.instance, row), stages.layers, stages.recomputed)
        step = np.array([priced.step_time])
        if len(self.wins(economy, step)):
            seconds = economy.seconds(step)
            cost = float(economy.total("cost", seconds)[0])
            figures = {"step": priced.step_time, "seconds": float(seconds[0]), "dollars": cost}
            self.keep(replace(row, stages=stages, **figures), economy)
