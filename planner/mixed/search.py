"""The best plan on two pools, by branch and bound: cells of nodes, layouts, micro-batches, stages.

Every step drops only what a lower bound shows to be no better than the best plan found so far:

    cells       nodes of each pool, by what both can do at most with the best layer key each
    keys        of a cell, by what both can do at most with that key
    layouts     of a cell and a key: pipelines, replicas, ZeRO stage, by bubble, transfers and memory
    schedules   of a layout: numbers of micro-batches, exactly what is left of them
    stages      of a schedule, by CP-SAT
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.mixed import estimate_mixed
from planner import economics
from planner.economics import Economy
from planner.instance import Instance
from planner.keybook import KeyBook
from planner.mixed.arrangement import Arrangement, arrangements
from planner.mixed.economy import PairEconomy, Running
from planner.mixed.layouts import cells_of, layouts
from planner.mixed.plan import MixedPlan, mixed_of
from planner.mixed.schedules import Schedules, Views, loosely
from planner.mixed.stages import solve_mixed_stages
from planner.mixing import Form
from planner.search.best import most_of
from planner.search.goal import Effort, Goal, OutOfTime, goal_of
from planner.space.values import recompute_families

Array = NDArray[Any]
FIRST_CELLS = 64
"""Cells that are looked into first; each further batch is twice as large."""
SURE = 1 - 1e-9
"""Bounds are lowered by this share, so that rounding drops nothing."""


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
    least: float = float("inf")
    """No plan that was not looked at is better than this in the first sort key."""

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

    def run(self, forms: tuple[Form, ...]) -> None:
        """Looks everywhere. Raises OutOfTime."""
        families = recompute_families(self.instance)
        book = KeyBook.of(self.instance, families)
        fronts = [_Front.of(self, each) for each in arrangements(self.instance, book, forms)]
        self.cells = sum(front.running.num_gpus.shape[1] for front in fronts)
        size = FIRST_CELLS
        while fronts:
            self.effort.check()
            fronts = [front for front in fronts if front.open(self)]
            if fronts:
                first = min(fronts, key=lambda front: front.least(self))
                self.least = first.least(self)
                first.advance(self, size)
                size *= 2
        self.complete = True


@dataclass(slots=True)
class BestOfPairs(MixedSearch):
    """Looks for the best plan."""

    best: MixedPlan | None = None
    achieved: tuple[Array, ...] | None = None
    """Its sort keys."""

    def keys(self, economy: Economy, step: Array) -> tuple[Array, ...]:
        """Those of the goal."""
        return self.goal.keys(economy, step)

    def may_win(self, economy: Economy, step: Array) -> Array:
        """Whether rows do not come after the best plan."""
        if self.achieved is None:
            return np.ones(len(step), dtype=bool)
        return economics.no_worse(self.keys(economy, step), self.achieved)

    def longest(self, economy: Economy) -> float:
        """A step beyond which a limit is broken, or the best plan is better."""
        most, first = most_of(self.goal.limits), self.goal.objective[0][0]
        flat = first == "cost" and any(pool.committed for pool in self.instance.pools)
        if self.goal.lexicographic and not flat and self.achieved is not None:
            most[first] = min(most[first], float(self.achieved[0][0]))
        return float(economy.later(economy.longest(*most.values()), 1e-9)[0])

    def keep(self, plan: MixedPlan, economy: Economy) -> None:
        """The plan is the best one now."""
        self.best, self.achieved = plan, self.keys(economy, np.array([plan.step]))

    @property
    def gap(self) -> float:
        """How far the best plan may be from the best there is."""
        if self.complete or self.achieved is None:
            return 0.0
        value = float(self.achieved[0][0])
        return max(0.0, (value - self.least) / value)


@dataclass(slots=True)
class FrontOfPairs(MixedSearch):
    """Looks for every plan that no other beats in both days and dollars, nor any of some known ones."""

    known: tuple[tuple[float, float], ...] = ()
    """(seconds, dollars) of plans on single pools."""
    plans: list[MixedPlan] = field(default_factory=list[MixedPlan])

    def _achieved(self) -> tuple[Array, Array]:
        """Seconds in order, and the least dollars of plans that take so many or fewer."""
        points = np.array([*self.known, *((of.seconds, of.dollars) for of in self.plans)]).reshape(-1, 2)
        points = points[np.lexsort((points[:, 1], points[:, 0]))]
        return points[:, 0], np.minimum.accumulate(points[:, 1])

    def keys(self, economy: Economy, step: Array) -> tuple[Array, ...]:
        """Days times dollars: what lies near the corner dominates most."""
        seconds = economy.seconds(step)
        return (seconds * economy.total("cost", seconds),)

    def may_win(self, economy: Economy, step: Array) -> Array:
        """Whether no plan is as quick and as cheap."""
        time, least = self._achieved()
        seconds = economy.seconds(step)
        place = np.searchsorted(time, seconds * (1 + 1e-9), side="right")
        least = np.concatenate([[np.inf], least])[place]
        return least > economy.total("cost", seconds) * (1 + 1e-9)

    def longest(self, economy: Economy) -> float:
        """A step beyond which a limit is broken, or some plan is as quick and as cheap."""
        most = economy.longest(*most_of(self.goal.limits).values())
        for seconds, dollars in zip(*self._achieved(), strict=True):
            either = np.maximum(economy.longest(seconds, np.inf), economy.longest(np.inf, dollars))
            most = np.minimum(most, either)
        return float(economy.later(most, 1e-9)[0])

    def keep(self, plan: MixedPlan, economy: Economy) -> None:
        """The plan is on the frontier now, and those that it dominates are not."""
        self.plans = [of for of in self.plans if of.seconds < plan.seconds or of.dollars < plan.dollars] + [
            plan
        ]


@dataclass(slots=True)
class _Front:
    """The cells of one arrangement that are still open, the best bounds first."""

    arranged: Arrangement
    running: Running
    bound: Array
    """Seconds a step of the largest batch, by cell."""
    economy: PairEconomy
    left: Array

    @classmethod
    def of(cls, search: MixedSearch, of: Arrangement) -> _Front:
        instance = search.instance
        running = Running.of(instance, of.both, cells_of(instance, of))
        cells = running.num_gpus.shape[1]
        economy = running.economy(instance, of.both, np.full(cells, _tokens(instance)))
        keys = of.keys
        # Rank-seconds a sequence, of the best key of each pool by itself.
        each = of.seconds * keys.tp * keys.cp / keys.micro_batch
        rate = (running.num_gpus / each.min(axis=1)[:, None]).sum(axis=0) / of.favour.min()
        bound = instance.max_batch / rate * of.book.stragglers(running.num_gpus.sum(axis=0)) * SURE
        return cls(of, running, bound, loosely(instance, economy), np.arange(cells))

    def open(self, search: MixedSearch) -> bool:
        """Whether any cell may hold something better; drops those that cannot."""
        order = search.wins(self.economy.take(self.left), self.bound[self.left])
        self.left = self.left[order]
        return len(self.left) > 0

    def least(self, search: MixedSearch) -> float:
        """The first sort key of the best open cell; `open` has put them in order."""
        first = self.left[:1]
        return float(search.keys(self.economy.take(first), self.bound[first])[0][0])

    def advance(self, search: MixedSearch, size: int) -> None:
        """Looks into the first cells."""
        cells, self.left = self.left[:size], self.left[size:]
        at, key = self._keys(search, cells)
        rows = layouts(search.instance, self.arranged, self.running.num_gpus, cells[at], key)
        search.layouts += len(rows)
        Views(search.instance, self.arranged, self.running).each(
            rows, search.wins, lambda views: _settle(search, views)
        )

    def _keys(self, search: MixedSearch, cells: Array) -> tuple[Array, Array]:
        """Pairs of a cell and a key that may win."""
        of, gpus = self.arranged, self.running.num_gpus[:, cells]
        keys = of.keys
        each = of.seconds * keys.tp * keys.cp / keys.micro_batch
        rate = (gpus[:, :, None] / each[:, None, :]).sum(axis=0) / of.favour
        stragglers = of.book.stragglers(gpus.sum(axis=0))[:, None]
        bound = (search.instance.max_batch / rate * stragglers * SURE).reshape(-1)
        at, key = (column.reshape(-1) for column in np.indices(rate.shape))
        some = search.wins(self.economy.take(cells[at]), bound)
        return at[some], key[some]


def _tokens(instance: Instance) -> float:
    """Tokens of the largest batch."""
    return float(instance.max_batch * instance.seq_len)


def _settle(search: MixedSearch, views: Schedules) -> None:
    """Solves schedules of one layout or more until none that is left may win."""
    order = search.wins(views.economy, views.bound)
    while len(order):
        search.effort.check()
        _solve(search, views, int(order[0]))
        left = order[1:]
        order = left[search.wins(views.economy.take(left), views.bound[left])]


def _solve(search: MixedSearch, views: Schedules, index: int) -> None:
    """One schedule: its best stage assignment, if that is better than the best plan."""
    economy = views.economy.take(np.array([index]))
    problem = views.problem(index)
    search.solved += 1
    stages = solve_mixed_stages(problem, search.effort.seconds_left, search.longest(economy))
    if stages is None:
        return
    row = views.plan(index)
    priced = estimate_mixed(mixed_of(search.instance, row), stages.layers, stages.recomputed)
    step = np.array([priced.step_time])
    if len(search.wins(economy, step)):
        seconds = economy.seconds(step)
        cost = float(economy.total("cost", seconds)[0])
        figures = {"step": priced.step_time, "seconds": float(seconds[0]), "dollars": cost}
        search.keep(replace(row, stages=stages, **figures), economy)


def _run(search: Any, forms: tuple[Form, ...] | None) -> Any:
    assert search.instance.mixing is not None
    try:
        search.run(search.instance.mixing.forms if forms is None else forms)
    except OutOfTime:
        search.effort.out_of_time = True
    return search


def best_of_pairs(
    instance: Instance, effort: Effort | None = None, forms: tuple[Form, ...] | None = None
) -> BestOfPairs:
    """The search for the best plan on two pools; out of time, it holds the best that was found."""
    return _run(BestOfPairs(instance, goal_of(instance), effort or Effort()), forms)


def front_of_pairs(
    instance: Instance, known: tuple[tuple[float, float], ...], effort: Effort | None = None
) -> FrontOfPairs:
    """The search for all plans on two pools that neither each other nor the known plans dominate."""
    return _run(FrontOfPairs(instance, goal_of(instance), effort or Effort(), known=known), None)
