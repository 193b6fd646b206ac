"""Branch and bound over candidates: the best plan, and the proof that none is better.

Groups are bounded, and those that could win are expanded to rows, best first; rows are bounded
(quick, then with memory); CP-SAT chooses the row with the best bound among those
that could still win, its stages are assigned exactly by CP-SAT, and the choice is repeated until
what it picks is exact. Rows that stand for several numbers of micro-batches are split when memory
may favour fewer of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.pipeline import plain_layers, stage_split
from costmodel.stage import stage_memory
from costmodel.step import step_time
from planner import economics
from planner.bound import capacity_bound, recompute_cases
from planner.choose import AtMost, choose, integers
from planner.evaluate import (
    Estimates,
    evaluate,
    families,
    gather,
    gathered,
    gpu_seconds_per_token,
    group_bounds,
    group_rates,
    layer_costs,
    layer_totals,
    next_fewer_microbatches,
    rates_of,
    run_of_candidates,
)
from planner.instance import Instance, Limits, Term
from planner.space import Candidates, Groups, count, expand, groups, layer_keys, recompute_counts
from planner.stages import StagePlan, StageProblem, solve_stages

Array = NDArray[Any]
Mask = Callable[[Groups], Array]
CHOICE = 1024
"""Rows the CP-SAT choice sees at once, best bounds first; the others have bounds no better."""
FIRST_EXPANSION = 256
"""Groups that are expanded first; each further batch is four times as large."""
TIGHTEN = 2048
"""Rows whose bound is tightened at once, best first."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A candidate with its stages assigned."""

    row: Candidates
    """One row; m_low = m_high = its number of micro-batches."""
    stages: StagePlan
    step: float
    memory: float
    """Bytes of the fullest rank."""

    @property
    def key(self) -> tuple[Any, ...]:
        return (*(int(getattr(self.row, n)[0]) for n in Candidates.__dataclass_fields__), self.stages)


@dataclass(slots=True)
class Table:
    """Candidates of an instance with their estimates, written down as far as the search has looked."""

    instance: Instance
    groups: Groups
    group_bound: Array
    """Seconds of a step at m_high."""
    expanded: Array
    rows: Candidates = field(default_factory=Candidates.empty)
    estimates: Estimates = field(default_factory=Estimates.empty)
    tight: Array = field(default_factory=lambda: np.empty(0, dtype=bool))
    """Whether a row's bound already knows memory."""
    group_tight: Array = field(default_factory=lambda: np.empty(0, dtype=bool))
    exact: dict[tuple[int, frozenset[str]], Plan | None] = field(default_factory=dict)
    """Solved rows by recompute modes; None where no assignment fits."""

    @classmethod
    def of(cls, instance: Instance, limits: Limits) -> Table:
        """All groups that could meet deadline and budget: the others cannot, however they are staged."""
        parts = [Groups.empty()]
        for pool in instance.pools:
            keys = layer_keys(instance, pool)
            least = instance.tokens * gpu_seconds_per_token(instance, keys) * (1 - 1e-12)
            at_least = np.ones(len(keys), dtype=np.int64)
            affordable = np.ones(len(keys), dtype=bool)
            if limits.deadline is not None:
                at_least = np.ceil(least / limits.deadline).astype(np.int64)
            if limits.budget is not None:
                affordable = least / 3600 * pool.price <= limits.budget
            parts.append(groups(instance, keys.take(affordable), at_least[affordable]))
        rows = Groups.concatenate(parts)
        table = cls(instance, rows, group_bounds(instance, rows), np.zeros(len(rows), dtype=bool))
        table.group_tight = np.zeros(len(rows), dtype=bool)
        return table

    def fresh(self) -> Table:
        """The same candidates with nothing learned: for a goal with other limits on memory or recompute."""
        rows = self.rows.take(slice(None))
        return replace(
            self,
            group_bound=self.group_bound.copy(),
            expanded=self.expanded.copy(),
            rows=replace(rows, m_low=rows.m_low.copy()),
            estimates=replace(self.estimates, bound=self.estimates.bound.copy()),
            tight=np.zeros_like(self.tight),
            group_tight=np.zeros_like(self.group_tight),
            exact={},
        )

    def expand(self, index: Array) -> None:
        """Writes down the candidates of groups that are not written down yet."""
        index = index[~self.expanded[index]]
        self.expanded[index] = True
        self.add(expand(self.instance, self.groups.take(index)))

    def add(self, rows: Candidates) -> Array:
        """Appends rows and returns their indices."""
        start = len(self.rows)
        self.rows = Candidates.concatenate([self.rows, rows])
        self.estimates = Estimates.concatenate([self.estimates, evaluate(self.instance, rows)])
        self.tight = np.concatenate([self.tight, np.zeros(len(rows), dtype=bool)])
        return np.arange(start, len(self.rows))


@dataclass(frozen=True, slots=True)
class Goal:
    """What is best, and what must hold."""

    objective: tuple[tuple[Term, float], ...]
    lexicographic: bool
    limits: Limits
    modes: frozenset[str] = frozenset({"none", "selective", "full"})
    """Recompute modes that count."""


class OutOfTime(Exception):
    """The time limit passed; never leaves this module."""


@dataclass(slots=True)
class Effort:
    """What a search may take, and what it took: the raw material of the proof. Counts are candidates."""

    until: float | None = None
    """Time (of time.monotonic) at which to stop with what there is."""
    progress: Callable[[str], None] = lambda text: None
    open_candidates: int = 0
    """Those whose bound meets deadline and budget."""
    screened: int = 0
    """Of these, the ones that an achieved plan beats by its quick bound."""
    bounded: int = 0
    """And those that the bound which knows memory excludes."""
    solved: int = 0
    """Stage assignments solved by CP-SAT."""
    out_of_time: bool = False
    gap: float = 0.0
    """(objective - bound) / objective of the plan that is returned."""

    def check(self) -> None:
        if self.until is not None and monotonic() > self.until:
            self.out_of_time = True
            raise OutOfTime

    @property
    def seconds_left(self) -> float | None:
        return None if self.until is None else max(self.until - monotonic(), 0.01)


def memory_limit(instance: Instance, rows: Candidates, limits: Limits) -> Array:
    return np.array([pool.memory_limit(limits.memory_headroom) for pool in instance.pools])[rows.pool]


def plain_steps(table: Table, goal: Goal, index: Array) -> tuple[Array, Array]:
    """Best plain step of each row that fits, and whether it recomputes: inf where neither fits."""
    rows, of = table.rows.take(index), table.estimates.take(index)
    limit = memory_limit(table.instance, rows, goal.limits)
    base = "none" in goal.modes
    free = np.where(rows.selective == 1, "selective" in goal.modes, base)
    none = np.where(free & (of.plain_memory <= limit), of.plain, np.inf)
    full = np.where(("full" in goal.modes) & (of.recomputed_memory <= limit), of.recomputed, np.inf)
    return np.minimum(none, full), full < none


def sort_keys(table: Table, goal: Goal, rows: Groups, step: Array) -> tuple[Array, ...]:
    seconds = economics.run_seconds(table.instance, rows, step)
    cost = economics.run_dollars(table.instance, rows, seconds)
    return economics.keys(goal.objective, goal.lexicographic, rows, seconds, cost)


def meets(table: Table, goal: Goal, rows: Groups, step: Array) -> Array:
    seconds = economics.run_seconds(table.instance, rows, step)
    return economics.within(goal.limits, seconds, economics.run_dollars(table.instance, rows, seconds))


def best(table: Table, goal: Goal, mask: Mask | None = None, effort: Effort | None = None) -> Plan | None:
    """The best plan among what `mask` lets through, or None if none is within the limits.

    Groups are written down best first, a batch at a time; each batch is searched to the end, so that
    its best plan screens the groups that are left.
    """
    effort, found = effort if effort is not None else Effort(), Found()
    left = countable(goal, table.groups, mask)
    left = left[meets(table, goal, table.groups.take(left), table.group_bound[left])]
    effort.open_candidates += candidates_in(table, left)
    batch, index = FIRST_EXPANSION, np.empty(0, dtype=np.int64)
    try:
        while True:
            left = tighten_groups(table, goal, left, found, effort)
            if not len(left):
                return found.plan(table, goal)
            table.expand(left[:batch])
            left, batch = left[batch:], batch * 2
            index = promising(table, goal, mask, effort)
            resolve(table, goal, index, found, effort)
            effort.progress(f"{len(table.rows):,} candidates written down, {effort.solved} solved, {len(left):,} groups left")
    except OutOfTime:
        effort.gap = open_gap(table, goal, left, index, found)
        return found.plan(table, goal)


def candidates_in(table: Table, index: Array) -> int:
    """Candidates that groups stand for."""
    return int(count(table.instance, table.groups.take(index)).sum())


def multiplicity(table: Table, index: Array) -> int:
    """Candidates that rows stand for."""
    rows = table.rows.take(index)
    numbers = (rows.m_high - rows.m_low) // np.where(rows.vpp > 1, rows.pp, 1) + 1
    return int((numbers * recompute_counts(table.instance)[rows.selective]).sum())


def promising(table: Table, goal: Goal, mask: Mask | None, effort: Effort) -> Array:
    """Rows written down whose bound is no worse than the best plain split of any of them."""
    index = countable(goal, table.rows, mask)
    index = index[meets(table, goal, table.rows.take(index), table.estimates.bound[index])]
    incumbent = best_plain(table, goal, index)
    if incumbent is None:
        return index
    better = no_worse(table, goal, table.rows.take(index), table.estimates.bound[index], incumbent)
    effort.screened += multiplicity(table, index[~better])
    return index[better]


def open_gap(table: Table, goal: Goal, left: Array, index: Array, found: Found) -> float:
    """How far the best plan found may be from the best there is, by the bounds of all that is open."""
    plan = found.plan(table, goal)
    if plan is None:
        return 0.0
    achieved = float(sort_keys(table, goal, plan.row, np.array([plan.step]))[0][0])
    bounds = [sort_keys(table, goal, table.groups.take(left), table.group_bound[left])[0]]
    bounds.append(sort_keys(table, goal, table.rows.take(index), table.estimates.bound[index])[0])
    least = min(float(b.min()) if len(b) else achieved for b in bounds)
    return max(0.0, (achieved - least) / achieved)


def tighten_groups(table: Table, goal: Goal, left: Array, found: Found, effort: Effort) -> Array:
    """Groups that may still win, best first, with bounds that know memory where that decides who is first."""
    winner = found.best(table, goal)
    while True:
        rows, bound = table.groups.take(left), table.group_bound[left]
        alive = meets(table, goal, rows, bound)
        if winner is not None:
            alive &= no_worse(table, goal, rows, bound, (winner[1].row, winner[1].step))
        effort.screened += candidates_in(table, left[~alive])
        left = left[alive]
        order = np.lexsort(sort_keys(table, goal, table.groups.take(left), table.group_bound[left])[::-1])
        left = left[order]
        head = left[:TIGHTEN]
        loose = head[~table.group_tight[head]]
        if not len(loose) or table.group_tight[left[:FIRST_EXPANSION]].all():
            return left
        table.group_bound[loose] = np.maximum(table.group_bound[loose], group_memory_bound(table, goal, loose))
        table.group_tight[loose] = True


def group_memory_bound(table: Table, goal: Goal, index: Array) -> Array:
    """bound.capacity_bound of groups, for every vpp, ZeRO stage and recompute that goes with them."""
    instance, rows = table.instance, table.groups.take(index)
    bound = np.empty(len(index))
    layers = layer_totals(instance.architecture)
    for pool, selective, family in families(rows):
        of = rows.take(family)
        rates = group_rates(instance, pool, selective, of, layer_costs(instance, pool, selective, of))
        limit = instance.pools[pool].memory_limit(goal.limits.memory_headroom)
        cases = recompute_cases("none" if selective else recompute_of(goal.modes), False, int(layers.sum()), 1, np.ones(1))
        for pp in np.unique(of.pp):
            at = np.flatnonzero(of.pp == pp)
            some = of.take(at)
            most = np.full(len(at), max(instance.architecture.layers // int(pp), 1))
            one = np.ones_like(most)
            bound[family[at]] = capacity_bound(
                gather(rates, at), layers, int(pp), most, some.m_high, some.m_low, limit, cases, one
            )
    return bound


def countable(goal: Goal, rows: Groups, mask: Mask | None) -> Array:
    """Indices of rows that the mask lets through and whose recompute mode counts."""
    counts = np.where(rows.selective == 1, "selective" in goal.modes, bool(goal.modes & {"none", "full"}))
    return np.flatnonzero(counts if mask is None else counts & mask(rows))


def best_plain(table: Table, goal: Goal, index: Array) -> tuple[Candidates, float] | None:
    """The best row that fits with the plain split, and its step."""
    steps = plain_steps(table, goal, index)[0]
    ready = meets(table, goal, table.rows.take(index), steps)
    index, steps = index[ready], steps[ready]
    if not len(index):
        return None
    first = np.lexsort(sort_keys(table, goal, table.rows.take(index), steps)[::-1])[0]
    return table.rows.take(index[[first]]), float(steps[first])


def no_worse(table: Table, goal: Goal, rows: Groups, bound: Array, incumbent: tuple[Groups, float]) -> Array:
    """Which rows have a bound that is no worse than an achieved step."""
    achieved = sort_keys(table, goal, incumbent[0], np.array([incumbent[1]]))
    bounds = sort_keys(table, goal, rows, bound)
    position = economics.ranks(tuple(np.concatenate([a, b]) for a, b in zip(achieved, bounds, strict=True)))
    return position[1:] <= position[0]


@dataclass(slots=True)
class Found:
    """Solved rows that are within the limits, by index."""

    plans: dict[int, Plan] = field(default_factory=dict)

    def best(self, table: Table, goal: Goal) -> tuple[int, Plan] | None:
        if not self.plans:
            return None
        index = np.array(list(self.plans))
        steps = np.array([plan.step for plan in self.plans.values()])
        first = np.lexsort(sort_keys(table, goal, table.rows.take(index), steps)[::-1])[0]
        return int(index[first]), self.plans[int(index[first])]

    def plan(self, table: Table, goal: Goal) -> Plan | None:
        winner = self.best(table, goal)
        return None if winner is None else winner[1]


def resolve(table: Table, goal: Goal, index: Array, found: Found, effort: Effort) -> None:
    """Chooses and solves rows of `index` until no bound is better than the best solved plan."""
    while True:
        effort.check()
        index = tighten(table, goal, index, found, effort)
        chosen = pick(table, goal, index, found)
        if chosen is None or chosen in found.plans:
            return
        plan = solve_row(table, goal, chosen, effort, found.plan(table, goal))
        more = children(table, chosen, plan)
        index = np.concatenate([index[index != chosen], more])
        if plan is not None and meets(table, goal, plan.row, np.array([plan.step]))[0]:
            found.plans[chosen] = plan


def tighten(table: Table, goal: Goal, index: Array, found: Found, effort: Effort) -> Array:
    """Rows that may still win, with bounds that know memory for as many as it takes to be sure."""
    best_yet = found.best(table, goal)
    while True:
        bound = table.estimates.bound[index]
        alive = meets(table, goal, table.rows.take(index), bound)
        if best_yet is not None:
            plan = best_yet[1]
            alive &= no_worse(table, goal, table.rows.take(index), bound, (plan.row, plan.step))
        effort.bounded += multiplicity(table, index[~alive])
        index, bound = index[alive], bound[alive]
        order = np.lexsort(sort_keys(table, goal, table.rows.take(index), bound)[::-1])
        index = index[order]
        loose = index[:TIGHTEN][~table.tight[index[:TIGHTEN]]]
        # The first row's bound is tight: nothing can be better than what is chosen next.
        if not len(loose) or table.tight[index[0]]:
            return index
        table.estimates.bound[loose] = np.maximum(table.estimates.bound[loose], memory_bound(table, goal, loose))
        table.tight[loose] = True


def memory_bound(table: Table, goal: Goal, index: Array) -> Array:
    """bound.capacity_bound of rows, grouped by what it takes to be vectorised."""
    instance, rows = table.instance, table.rows.take(index)
    bound = np.empty(len(index))
    layers = layer_totals(instance.architecture)
    uniform, total = not instance.per_stage_recompute, instance.architecture.layers
    for pool, selective, family in families(rows):
        of = rows.take(family)
        rates = rates_of(instance, run_of_candidates(instance, pool, selective, of), *gathered(instance, pool, selective, of))
        limit = instance.pools[pool].memory_limit(goal.limits.memory_headroom)
        recompute = "none" if selective else recompute_of(goal.modes)
        schedule = of.pp * 2 + (of.vpp > 1)
        for value in np.unique(schedule):
            at = np.flatnonzero(schedule == value)
            some, pp = of.take(at), int(value) // 2
            cases = recompute_cases(recompute, uniform, total, pp, some.vpp)
            bound[family[at]] = capacity_bound(
                gather(rates, at), layers, pp, some.vpp, some.m_high, some.m_low, limit, cases
            )
    return bound


def pick(table: Table, goal: Goal, index: Array, found: Found) -> int | None:
    """The row that CP-SAT chooses among solved plans and open bounds, every decision a variable of its model."""
    solved = np.array(list(found.plans), dtype=np.int64)
    index = np.concatenate([solved, np.setdiff1d(index, solved, assume_unique=True)[:CHOICE]])
    if not len(index):
        return None
    step = np.array([found.plans[i].step if i in found.plans else table.estimates.bound[i] for i in index.tolist()])
    rows = table.rows.take(index)
    # An exact row goes before bounds that only equal it: the sort is stable and solved rows come first.
    order = np.argsort(economics.ranks(sort_keys(table, goal, rows, step)), kind="stable")
    index, step, rows = index[order], step[order], rows.take(order)
    choice = choose(columns_of(table.instance, rows, step), limits_of(goal.limits))
    return None if choice.index is None else int(index[choice.index])


def columns_of(instance: Instance, rows: Candidates, step: Array) -> dict[str, Array]:
    """Decisions and predictions of rows as integer columns for the choice."""
    seconds = economics.run_seconds(instance, rows, step)
    cost = economics.run_dollars(instance, rows, seconds)
    columns = {f.name: getattr(rows, f.name) for f in fields(Candidates) if f.name != "m_low"}
    return columns | {
        "num_gpus": rows.num_gpus,
        "seconds": integers(seconds, 1.0),
        "dollars": integers(cost, 1.0),
    }


def limits_of(limits: Limits) -> list[AtMost]:
    posted = []
    if limits.deadline is not None:
        posted.append(AtMost("deadline", "seconds", int(np.ceil(limits.deadline))))
    if limits.budget is not None:
        posted.append(AtMost("budget", "dollars", int(np.ceil(limits.budget))))
    return posted


def solve_row(table: Table, goal: Goal, index: int, effort: Effort, incumbent: Plan | None) -> Plan | None:
    """The row's exact plan at its largest number of micro-batches; None if it cannot beat the incumbent."""
    key = (index, goal.modes)
    if key in table.exact:
        return table.exact[key]
    longest = longest_step(table, goal, index, incumbent)
    plan = _solved(table, goal, index, effort, longest)
    if plan is not None or longest == np.inf:
        table.exact[key] = plan
    return plan


def longest_step(table: Table, goal: Goal, index: int, incumbent: Plan | None) -> float:
    """A step beyond which a row is outside the limits or worse than the incumbent."""
    row, unit = table.rows.take(slice(index, index + 1)), np.array([1.0])
    seconds = float(economics.run_seconds(table.instance, row, unit)[0])
    rent = table.instance.pools[int(row.pool[0])].price * float(row.num_gpus[0]) / 3600 * seconds
    longest = [np.inf]
    if goal.limits.deadline is not None:
        longest.append(goal.limits.deadline / seconds)
    if goal.limits.budget is not None:
        longest.append(goal.limits.budget / rent)
    first = goal.objective[0][0]
    # A committed window makes the cost flat, so that plans with the same cost may differ in time.
    flat = any(pool.committed for pool in table.instance.pools)
    if incumbent is not None and goal.lexicographic and not (first == "cost" and flat):
        best = float(sort_keys(table, goal, incumbent.row, np.array([incumbent.step]))[0][0])
        longest.append(best / (rent if first == "cost" else seconds))
    return float(min(longest)) * (1 + 1e-9)


def _solved(table: Table, goal: Goal, index: int, effort: Effort, longest: float) -> Plan | None:
    instance = table.instance
    row = replace(table.rows.take(slice(index, index + 1)))
    row = replace(row, m_low=row.m_high)
    pp, vpp, m = int(row.pp[0]), int(row.vpp[0]), int(row.m_high[0])
    plain, recomputes = plain_steps(table, goal, np.array([index]))
    if plain[0] <= table.estimates.bound[index] * (1 + 1e-9):
        layers = tuple(int(n) for n in plain_layers(instance.architecture.layers, pp * vpp))
        return priced(instance, row, StagePlan(layers, layers if recomputes[0] else (0,) * len(layers)))
    of_selective = bool(row.selective[0])
    problem = StageProblem(
        architecture=instance.architecture,
        rates=scalar_rates(instance, row),
        pp=pp,
        vpp=vpp,
        num_microbatches=m,
        memory_limit=instance.pools[int(row.pool[0])].memory_limit(goal.limits.memory_headroom),
        recompute="none" if of_selective else recompute_of(goal.modes),
        uniform=not instance.per_stage_recompute,
    )
    effort.solved += 1
    try:
        stages = solve_stages(problem, effort.seconds_left, longest)
    except TimeoutError:
        effort.check()
        raise
    return None if stages is None else priced(instance, row, stages)


def recompute_of(modes: frozenset[str]) -> str:
    """How many layers may be recomputed: none, some or all."""
    if "full" not in modes:
        return "none"
    return "some" if "none" in modes else "all"


def scalar_rates(instance: Instance, row: Candidates) -> Any:
    """Rates of one row, without the row axis."""
    rates = rates_of(instance, run_of_candidates(instance, int(row.pool[0]), int(row.selective[0]), row))
    return gather(rates, np.array(0))


def priced(instance: Instance, row: Candidates, stages: StagePlan) -> Plan:
    """The plan with its step and memory from the cost model."""
    pp, vpp, m = int(row.pp[0]), int(row.vpp[0]), int(row.m_high[0])
    rates = scalar_rates(instance, row)
    split = stage_split(instance.architecture, pp, vpp, m, stages.layers, stages.recomputed)
    step = float(step_time(rates, split, m, pp, vpp).total)
    return Plan(row, stages, step, float(stage_memory(rates, split).max()))


def children(table: Table, index: int, plan: Plan | None) -> Array:
    """Rows for fewer micro-batches, where those may be better because they need less memory."""
    row = table.rows.take(slice(index, index + 1))
    # Without recompute the largest number of micro-batches is the best one.
    if plan is not None and not any(plan.stages.recomputed):
        return np.empty(0, dtype=np.int64)
    fewer = next_fewer_microbatches(int(row.pp[0]), int(row.vpp[0]), int(row.m_high[0]))
    if fewer < row.m_low[0]:
        return np.empty(0, dtype=np.int64)
    # The row itself now stands for its largest number only.
    table.rows.m_low[index] = row.m_high[0]
    return table.add(replace(row, m_low=row.m_low.copy(), m_high=np.full(1, fewer)))
