"""Plans on two pools, by branch and bound: cells of nodes, layouts, micro-batches, stages.

Every step drops only what a lower bound shows to be no better than what was found so far:

    cells       nodes of each pool, by what both can do at most with the best layer key
    keys        of a cell, by what both can do at most with that key in the shortest pipelines that have room
    layouts     of a cell and a key: pipelines, replicas, ZeRO stage, by bubble, transfers and memory
    schedules   of a layout: numbers of micro-batches, exactly what is left of them
    stages      of a schedule, by CP-SAT
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.mixed_estimate import estimate_mixed
from planner.economics import Economy
from planner.hfu import hfu_requirement
from planner.instance import Instance, Pool
from planner.keybook import KeyBook
from planner.limits import within
from planner.mixed.arrangement import arrangements, mixed_families
from planner.mixed.cells import Part
from planner.mixed.decided import Decided
from planner.mixed.floor import Totals, floors_of_pairs
from planner.mixed.plan import MixedPlan, mixed_of
from planner.mixed.schedules import Schedules
from planner.mixed.stages import MixedStages, StageRule, plainest_mixed_stages, solve_mixed_stages
from planner.mixed.tally import Tally
from planner.mixing import Form
from planner.search.goal import Effort, Goal, OutOfTime
from planner.stages.problem import StagePlan
from planner.stages.ties import Figures

Array = NDArray[Any]
Memo = dict[Any, "tuple[StagePlan | None, float]"]
KEPT = 16
"""Parts of cells whose bounds are kept, those with the best of them."""
FIRST_CELLS = 64
"""Cells that are looked into first; each further batch is twice as large."""


@dataclass(slots=True)
class MixedSearch:
    """A search with what it looked at; what it looks for is its subclass."""

    instance: Instance
    goal: Goal
    effort: Effort
    pairs: Tally = field(default_factory=Tally)
    """Pairs of numbers of nodes, in every form and order."""
    written: Tally = field(default_factory=Tally)
    """Layouts that were written down."""
    solved: int = 0
    """Stage assignments solved by CP-SAT."""
    complete: bool = False
    """Whether everything that may be better was looked at."""
    least: float = 0.0
    """No plan that was not looked at is better than this in the first sort key."""
    seconds: float = 0.0
    """What it took."""
    memo: Memo = field(default_factory=dict[Any, "tuple[StagePlan | None, float]"])
    """Stage assignments that are solved, each with the longest step that was of use then."""

    @property
    def cells(self) -> int:
        """How many pairs of numbers of nodes there are."""
        return self.pairs.number

    @property
    def layouts(self) -> int:
        """How many layouts were written down."""
        return self.written.number

    def value(self, totals: Totals) -> Array:
        """The first sort key of runs that take so much in all."""
        raise NotImplementedError

    def keys(self, economy: Economy, step: Array) -> tuple[Array, ...]:
        """In which order to look at rows, most important first."""
        raise NotImplementedError

    def may_win(self, economy: Economy, step: Array, of: Decided) -> Array:
        """Whether rows with such bounds, or steps, are part of the answer as far as it is known."""
        raise NotImplementedError

    def longest(self, economy: Economy, of: Decided) -> Array:
        """Steps beyond which rows are of no use."""
        raise NotImplementedError

    def keep(self, plan: MixedPlan, economy: Economy, of: Decided) -> None:
        """Takes a plan that may win into the answer."""
        raise NotImplementedError

    def beyond(self, value: float) -> bool:
        """Whether nothing with such a first sort key, or a larger one, can be part of the answer."""
        return False

    def families(self) -> tuple[int, ...]:
        """Recompute families of which layouts are written down."""
        return mixed_families(self.instance)

    def largest(self, of: Decided) -> Array:
        """Of numbers of micro-batches of one layout, in order: those of which a smaller one is no better."""
        return np.arange(len(of))[-1:]

    def wins(self, economy: Economy, step: Array, of: Decided) -> Array:
        """Indices of rows within the limits that may win, the best bounds first."""
        index = np.flatnonzero(within(self.goal.limits, economy, step))
        return index[self.best_first(economy.take(index), step[index], of.take(index))]

    def best_first(self, economy: Economy, step: Array, of: Decided) -> Array:
        """Of rows that are all within the limits."""
        some = np.flatnonzero(self.may_win(economy, step, of))
        keys = self.keys(economy.take(some), step[some])
        return some[np.lexsort(keys[::-1])]

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
        if self.effort.until is not None:
            floors = floors_of_pairs(self.instance, forms)
            self.least = min((float(self.value(floor)) for floor in floors), default=np.inf)
        book = KeyBook.of(self.instance, self.families(), apart=True, check=self.effort.check)
        every = [
            part
            for arranged in arrangements(self.instance, book, forms)
            for part in Part.each_of(arranged, self)
        ]
        self.pairs.number, size = sum(part.number for part in every), FIRST_CELLS
        every = sorted(self._possible(every), key=lambda part: part.best)
        while every:
            first, *others = every
            self.least = first.best
            self.effort.check()
            if first.cells is None:
                # What was found since may leave fewer of them open.
                first.recall(self)
                every = [first] if first.open(self) else []
            else:
                first.cells.advance(self, size)
                size, every, others = 2 * size, [part for part in every if part.open(self)], []
            every = sorted([*every, *others], key=lambda part: part.best)
            for part in [part for part in every if part.cells is not None][KEPT:]:
                part.forget()
        self.complete = True

    def _possible(self, every: list[Part]) -> Iterator[Part]:
        """Parts whose GPUs alone break no limit; counts what is in the others."""
        for part in every:
            broken = part.broken(self.goal.limits)
            if broken is None:
                yield part
            else:
                self.pairs.reject(broken, part.number)

    def settle(self, some: Schedules) -> None:
        """Solves schedules of one layout or more until none that is left may win."""
        of = some.decided
        order = self.wins(some.economy, some.bound, of)
        while len(order):
            self.effort.check()
            self._solve(some, int(order[0]))
            left = order[1:]
            order = left[self.wins(some.economy.take(left), some.bound[left], of.take(left))]

    def rules(self, of: Decided, plan: MixedPlan) -> list[StageRule]:
        """What else to ask of the stages of the only row, whose best plan without a rule this is."""
        return []

    def _solve(self, some: Schedules, index: int) -> None:
        """One schedule: its best stage assignment, if that is better than the best plan."""
        of = some.decided.take(np.array([index]))
        plan = self._planned(some, index, None)
        for rule in [] if plan is None else self.rules(of, plan):
            self._planned(some, index, rule)

    def _planned(self, some: Schedules, index: int, rule: StageRule | None) -> MixedPlan | None:
        """A schedule's best plan of those that a rule lets through, kept if it may win.

        What is kept has the plainest of its equally quick stage assignments.
        """
        at = np.array([index])
        economy, of = some.economy.take(at), some.decided.take(at)
        row, longest = some.plan(index), float(self.longest(economy, of)[0])
        stages = self._assigned(some, index, longest, rule)
        if stages is not None and not self._has_hfu(row, stages):
            # Within what rounding leaves in doubt: without that.
            stages = self._assigned(some, index, longest, rule, strict=True)
        if stages is None:
            return None
        plan = self._priced(row, economy, stages)
        if not len(self.wins(economy, np.array([plan.step]), of)):
            return plan
        problem = replace(some.problem(index), rule=rule)
        leanest = plainest_mixed_stages(problem, stages, lambda each: self._figures(row, problem, each))
        plan = plan if leanest == stages else self._priced(row, economy, leanest)
        self.keep(plan, economy, of)
        return plan

    def _priced(self, row: MixedPlan, economy: Economy, stages: StagePlan) -> MixedPlan:
        """A schedule with its stages, and what it takes."""
        step = estimate_mixed(mixed_of(self.instance, row), stages.layers, stages.recomputed).step_time
        seconds = economy.seconds(np.array([step]))
        cost = float(economy.total("cost", seconds)[0])
        return replace(row, stages=stages, step=step, seconds=float(seconds[0]), dollars=cost)

    def _has_hfu(self, row: MixedPlan, stages: StagePlan) -> bool:
        """Whether a schedule with its stages has the HFU that is required."""
        required = hfu_requirement(self.instance)
        if required is None:
            return True
        return (
            estimate_mixed(mixed_of(self.instance, row), stages.layers, stages.recomputed).hfu
            >= required.value
        )

    def _figures(self, row: MixedPlan, problem: MixedStages, stages: StagePlan) -> Figures:
        """Seconds of a step with some stages, and bytes that the fullest rank leaves of its GPU's limit."""
        of = estimate_mixed(mixed_of(self.instance, row), stages.layers, stages.recomputed)
        pools = zip(problem.costs.limits, of.rank_memory, strict=True)
        step = of.step_time if self._has_hfu(row, stages) else np.inf
        return step, min(limit - float(used.max()) for limit, used in pools)

    def _assigned(
        self, some: Schedules, index: int, longest: float, rule: StageRule | None, strict: bool = False
    ) -> StagePlan | None:
        """The best stage assignment of a schedule, looked up where a search before has solved it."""
        key = (some.family, some.plan(index).key, rule, strict)
        known = self.memo.get(key)
        if known is not None and (known[0] is not None or longest <= known[1]):
            return known[0]
        self.solved += 1
        problem = replace(some.problem(index), rule=rule)
        if strict:
            problem = replace(problem, shape=replace(problem.shape, strict=True))
        try:
            found = solve_mixed_stages(problem, self.effort.seconds_left, longest)
        except TimeoutError:
            self.effort.stop()
        self.memo[key] = found, longest
        return found


def memo_of(instance: Instance, other: Instance, memo: Memo) -> Memo:
    """Stage assignments of one instance for another: none where a layout may have other stages there."""
    return memo if same_stages(instance, other) else {}


def same_stages(one: Instance, other: Instance) -> bool:
    """Whether a layout has the same best stages in both: all that takes memory or time is the same."""
    names = ("architecture", "stack", "seq_len", "framework", "per_stage_recompute", "mixing")
    limits = ("memory_headroom", "most_memory")
    return (
        len(one.pools) == len(other.pools)
        and all(getattr(one, name) is getattr(other, name) for name in names)
        and all(getattr(one.limits, name) == getattr(other.limits, name) for name in limits)
        and hfu_requirement(one) == hfu_requirement(other)
        and all(same_hardware(*pair) for pair in zip(one.pools, other.pools, strict=True))
    )


def same_hardware(one: Pool, other: Pool) -> bool:
    """Whether two pools differ in nodes and prices at most."""
    return one.gpu is other.gpu and one.fabric is other.fabric and one.precision == other.precision
