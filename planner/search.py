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
from costmodel.stage import StageRates, stage_memory
from costmodel.step import step_time
from planner import economics
from planner.bound import capacity_bound, recompute_cases, schedule_kind
from planner.choose import AtMost, choose, integers
from planner.economics import Economy
from planner.evaluate import (
    Estimates,
    LayerKeys,
    evaluate,
    families,
    gather,
    gpu_seconds_per_token,
    group_bounds,
    group_rates,
    layer_totals,
    next_fewer_microbatches,
    rates_of,
    run_of_candidates,
    sharded_alike,
)
from planner.instance import Instance, Limits, Term
from planner.space import Candidates, Groups, count, expand, groups, layer_keys, recompute_counts
from planner.stages import StagePlan, StageProblem, solve_stages

Array = NDArray[Any]
Mask = Callable[[Groups], Array]
LayerCache = dict[tuple[int, ...], LayerKeys]
"""Layer costs by (pool, selective, tp, cp, ep, etp, micro_batch)."""
CHOICE = 256
"""Rows the CP-SAT choice sees at once, best bounds first; the others have bounds no better."""
FIRST_EXPANSION = 128
"""Groups that are expanded first; each further batch is four times as large."""
TIGHTEN = 512
"""Rows whose bound is tightened at once, best first; each further batch is twice as large."""


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
    tight: Array = field(default_factory=lambda: np.empty(0, dtype=np.int8))
    """What a row's bound knows: 1 memory, 2 that recompute is uniform as well."""
    group_tight: Array = field(default_factory=lambda: np.empty(0, dtype=bool))
    group_economy: Economy = field(default_factory=Economy.empty)
    economy: Economy = field(default_factory=Economy.empty)
    """Of the rows."""
    layers: LayerCache = field(default_factory=dict)
    """Layer costs of rows that were solved."""
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
        table.group_economy = Economy.of(instance, rows)
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
        self.economy = Economy.concatenate([self.economy, Economy.of(self.instance, rows)])
        self.tight = np.concatenate([self.tight, np.zeros(len(rows), dtype=np.int8)])
        return np.arange(start, len(self.rows))


@dataclass(frozen=True, slots=True)
class Goal:
    """What is best, and what must hold."""

    objective: tuple[tuple[Term, float], ...]
    lexicographic: bool
    limits: Limits
    modes: frozenset[str] = frozenset({"none", "selective", "full"})
    """Recompute modes that count."""
    at_most: float = np.inf
    """The first term of the objective may not exceed this."""


class OutOfTime(Exception):
    """The time limit passed; never leaves this module."""


@dataclass(slots=True)
class Effort:
    """What a search may take, and what it took: the raw material of the proof. Counts are candidates."""

    until: float | None = None
    """Time (of time.monotonic) at which to stop with what there is."""
    progress: Callable[[str], None] = lambda text: None
    counts: bool = False
    """Whether candidates are counted, for a proof."""
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
    """Bytes that each row may use of a GPU."""
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


def sort_keys(goal: Goal, economy: Economy, step: Array) -> tuple[Array, ...]:
    """Sort keys of steps under a goal, most important first."""
    return economics.keys(goal.objective, goal.lexicographic, economy, step)


def achieved(table: Table, goal: Goal, plan: Plan) -> tuple[Array, ...]:
    """Sort keys of a plan."""
    return sort_keys(goal, Economy.of(table.instance, plan.row), np.array([plan.step]))


def could_win(goal: Goal, economy: Economy, bound: Array, keys: tuple[Array, ...] | None) -> Array:
    """Rows whose bound is within the limits and no worse than achieved keys."""
    alive = economics.within(goal.limits, economy, bound)
    if keys is None and goal.at_most == np.inf:
        return alive
    columns = sort_keys(goal, economy, bound)
    alive &= columns[0] <= goal.at_most
    return alive if keys is None else alive & economics.no_worse(columns, keys)


def best_first(goal: Goal, economy: Economy, bound: Array, head: int) -> Array:
    """Indices of the `head` best rows in order, then the others in any order."""
    keys = sort_keys(goal, economy, bound)
    if len(bound) <= head:
        return np.lexsort(keys[::-1])
    front = np.argpartition(keys[0], head)
    first = front[:head]
    return np.concatenate([first[np.lexsort([key[first] for key in keys[::-1]])], front[head:]])


def best(table: Table, goal: Goal, mask: Mask | None = None, effort: Effort | None = None) -> Plan | None:
    """The best plan among what `mask` lets through, or None if none is within the limits.

    Groups are written down best first, a batch at a time; each batch is searched to the end, so that
    its best plan screens the groups that are left.
    """
    effort, found = effort if effort is not None else Effort(), Found()
    left = countable(goal, table.groups, mask)
    economy = table.group_economy.take(left)
    left = left[could_win(goal, economy, table.group_bound[left], None)]
    if effort.counts:
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
            effort.progress(
                f"{len(table.rows):,} candidates written down, {effort.solved} solved, "
                f"{len(left):,} groups left"
            )
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
    index = index[could_win(goal, table.economy.take(index), table.estimates.bound[index], None)]
    incumbent = best_plain(table, goal, index)
    if incumbent is None:
        return index
    better = could_win(goal, table.economy.take(index), table.estimates.bound[index], incumbent)
    if effort.counts:
        effort.screened += multiplicity(table, index[~better])
    return index[better]


def open_gap(table: Table, goal: Goal, left: Array, index: Array, found: Found) -> float:
    """How far the best plan found may be from the best there is, by the bounds of all that is open."""
    plan = found.plan(table, goal)
    if plan is None:
        return 0.0
    value = float(achieved(table, goal, plan)[0][0])
    bounds = [sort_keys(goal, table.group_economy.take(left), table.group_bound[left])[0]]
    bounds.append(sort_keys(goal, table.economy.take(index), table.estimates.bound[index])[0])
    least = min(float(b.min()) if len(b) else value for b in bounds)
    return max(0.0, (value - least) / value)


def tighten_groups(table: Table, goal: Goal, left: Array, found: Found, effort: Effort) -> Array:
    """Groups that may still win, best first, with bounds that know memory where that decides who is first."""
    plan = found.plan(table, goal)
    keys, size = None if plan is None else achieved(table, goal, plan), TIGHTEN
    while True:
        effort.check()
        economy = table.group_economy.take(left)
        alive = could_win(goal, economy, table.group_bound[left], keys)
        if effort.counts:
            effort.screened += candidates_in(table, left[~alive])
        left, economy = left[alive], economy.take(alive)
        left = left[best_first(goal, economy, table.group_bound[left], size)]
        head, size = left[:size], 2 * size
        loose = head[~table.group_tight[head]]
        if not len(loose) or table.group_tight[left[:FIRST_EXPANSION]].all():
            return left
        table.group_bound[loose] = np.maximum(
            table.group_bound[loose], group_memory_bound(table, goal, loose)
        )
        table.group_tight[loose] = True


def rank_buckets(rows: Groups, kind: Array) -> list[Array]:
    """Indices of rows of one kind with similar pp: their ranks fill one array without much padding."""
    size = np.ceil(np.log2(rows.pp) / 2).astype(np.int64)
    code = kind * 64 + size
    return [np.flatnonzero(code == value) for value in np.unique(code)]


def group_memory_bound(table: Table, goal: Goal, index: Array) -> Array:
    """bound.capacity_bound of groups, for every vpp, ZeRO stage and recompute that goes with them."""
    instance, rows = table.instance, table.groups.take(index)
    bound = np.full(len(index), np.inf)
    layers = layer_totals(instance.architecture)
    for pool, selective, family in families(rows):
        keys = LayerKeys.of(instance, pool, selective, rows.take(family))
        limit = instance.pools[pool].memory_limit(goal.limits.memory_headroom)
        recompute = "none" if selective else recompute_of(goal.modes)
        for stages, of_stages in sharded_alike(instance, rows.take(family)):
            of = rows.take(family[of_stages])
            rates = group_rates(instance, pool, selective, of, stages, keys, of_stages)
            for at in rank_buckets(of, np.zeros(len(of), dtype=np.int64)):
                some, here = of.take(at), family[of_stages[at]]
                most = np.maximum(instance.architecture.layers // some.pp, 1)
                one = np.ones_like(most)
                cases = recompute_cases(recompute, False, int(layers.sum()), some.pp, one)
                least = capacity_bound(
                    gather(rates, at), layers, some.pp, most, some.m_high, some.m_low, limit, cases, one
                )
                bound[here] = np.minimum(bound[here], least)
    return bound


def countable(goal: Goal, rows: Groups, mask: Mask | None) -> Array:
    """Indices of rows that the mask lets through and whose recompute mode counts."""
    counts = np.where(rows.selective == 1, "selective" in goal.modes, bool(goal.modes & {"none", "full"}))
    return np.flatnonzero(counts if mask is None else counts & mask(rows))


def best_plain(table: Table, goal: Goal, index: Array) -> tuple[Array, ...] | None:
    """Sort keys of the best row that fits with the plain split."""
    steps = plain_steps(table, goal, index)[0]
    ready = economics.within(goal.limits, table.economy.take(index), steps)
    index, steps = index[ready], steps[ready]
    if not len(index):
        return None
    economy = table.economy.take(index)
    first = best_first(goal, economy, steps, 1)[:1]
    return sort_keys(goal, economy.take(first), steps[first])


@dataclass(slots=True)
class Found:
    """Solved rows that are within the limits, by index."""

    plans: dict[int, Plan] = field(default_factory=dict)

    def best(self, table: Table, goal: Goal) -> tuple[int, Plan] | None:
        if not self.plans:
            return None
        index = np.array(list(self.plans))
        steps = np.array([plan.step for plan in self.plans.values()])
        first = np.lexsort(sort_keys(goal, table.economy.take(index), steps)[::-1])[0]
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
        if (
            plan is not None
            and could_win(goal, table.economy.take(np.array([chosen])), np.array([plan.step]), None)[0]
        ):
            found.plans[chosen] = plan


def tighten(table: Table, goal: Goal, index: Array, found: Found, effort: Effort) -> Array:
    """Rows that may still win, with bounds that know memory for as many as it takes to be sure."""
    plan = found.plan(table, goal)
    keys, size = None if plan is None else achieved(table, goal, plan), TIGHTEN
    while True:
        bound, economy = table.estimates.bound[index], table.economy.take(index)
        alive = could_win(goal, economy, bound, keys)
        if effort.counts:
            effort.bounded += multiplicity(table, index[~alive])
        index, bound, economy = index[alive], bound[alive], economy.take(alive)
        index = index[best_first(goal, economy, bound, size)]
        head, size = index[:size], 2 * size
        level = table.tight[head].min(initial=2)
        if level == 2 or (table.tight[index[:CHOICE]] == 2).all():
            return index
        loose = head[table.tight[head] == level]
        bound = memory_bound(table, goal, loose, uniform=level == 1)
        table.estimates.bound[loose] = np.maximum(table.estimates.bound[loose], bound)
        # Where recompute may differ by stage, or there is none, the first bound is the tightest.
        done = table.instance.per_stage_recompute | (table.rows.selective[loose] == 1)
        table.tight[loose] = np.where(done, 2, level + 1)


def memory_bound(table: Table, goal: Goal, index: Array, uniform: bool) -> Array:
    """bound.capacity_bound of rows, grouped by what it takes to be vectorised."""
    instance, rows = table.instance, table.rows.take(index)
    bound = np.empty(len(index))
    layers = layer_totals(instance.architecture)
    total = instance.architecture.layers
    for pool, selective, family in families(rows):
        of = rows.take(family)
        run = run_of_candidates(instance, pool, selective, of)
        rates = rates_of(instance, run, LayerKeys.of(instance, pool, selective, of))
        limit = instance.pools[pool].memory_limit(goal.limits.memory_headroom)
        recompute = "none" if selective else recompute_of(goal.modes)
        for at in rank_buckets(of, schedule_kind(of.pp, of.vpp)):
            some = of.take(at)
            cases = recompute_cases(recompute, uniform, total, some.pp, some.vpp)
            bound[family[at]] = capacity_bound(
                gather(rates, at), layers, some.pp, some.vpp, some.m_high, some.m_low, limit, cases
            )
    return bound


def pick(table: Table, goal: Goal, index: Array, found: Found) -> int | None:
    """The row that CP-SAT chooses among solved plans and open bounds; every decision is a variable."""
    solved = np.array(list(found.plans), dtype=np.int64)
    index = np.concatenate([solved, np.setdiff1d(index, solved, assume_unique=True)[:CHOICE]])
    if not len(index):
        return None
    step = np.array(
        [found.plans[i].step if i in found.plans else table.estimates.bound[i] for i in index.tolist()]
    )
    rows = table.rows.take(index)
    # An exact row goes before bounds that only equal it: the sort is stable and solved rows come first.
    economy = table.economy.take(index)
    order = np.argsort(economics.ranks(sort_keys(goal, economy, step)), kind="stable")
    index, step, rows = index[order], step[order], rows.take(order)
    choice = choose(columns_of(rows, economy.take(order), step), limits_of(goal.limits))
    return None if choice.index is None else int(index[choice.index])


def columns_of(rows: Candidates, economy: Economy, step: Array) -> dict[str, Array]:
    """Decisions and predictions of rows as integer columns for the choice."""
    seconds, cost = economy.seconds(step), economy.dollars(step)
    columns = {f.name: getattr(rows, f.name) for f in fields(Candidates) if f.name != "m_low"}
    return columns | {
        "num_gpus": rows.num_gpus,
        "seconds": integers(seconds, 1.0),
        "dollars": integers(cost, 1.0),
    }


def limits_of(limits: Limits) -> list[AtMost]:
    """Deadline and budget as limits on the columns of a choice."""
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
    economy = table.economy.take(np.array([index]))
    seconds = float(economy.seconds_per_step[0])
    rent = float(economy.rent[0]) * seconds
    longest = [np.inf]
    if goal.limits.deadline is not None:
        longest.append(goal.limits.deadline / seconds)
    if goal.limits.budget is not None:
        longest.append(goal.limits.budget / rent)
    first = goal.objective[0][0]
    # A committed window makes the cost flat, so that plans with the same cost may differ in time.
    flat = any(pool.committed for pool in table.instance.pools)
    if goal.lexicographic and not (first == "cost" and flat):
        value = goal.at_most if incumbent is None else float(achieved(table, goal, incumbent)[0][0])
        longest.append(value / (rent if first == "cost" else seconds))
    return float(min(longest)) * (1 + 1e-9)


def _solved(table: Table, goal: Goal, index: int, effort: Effort, longest: float) -> Plan | None:
    instance = table.instance
    row = table.rows.take(np.array([index]))
    row = replace(row, m_low=row.m_high)
    pp, vpp, m = int(row.pp[0]), int(row.vpp[0]), int(row.m_high[0])
    plain, recomputes = plain_steps(table, goal, np.array([index]))
    if plain[0] <= table.estimates.bound[index] * (1 + 1e-9):
        layers = tuple(int(n) for n in plain_layers(instance.architecture.layers, pp * vpp))
        return priced(
            instance, row, StagePlan(layers, layers if recomputes[0] else (0,) * len(layers)), table.layers
        )
    of_selective = bool(row.selective[0])
    problem = StageProblem(
        architecture=instance.architecture,
        rates=scalar_rates(instance, row, table.layers),
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
    return None if stages is None else priced(instance, row, stages, table.layers)


def recompute_of(modes: frozenset[str]) -> str:
    """How many layers may be recomputed: none, some or all."""
    if "full" not in modes:
        return "none"
    return "some" if "none" in modes else "all"


def scalar_rates(instance: Instance, row: Candidates, cache: LayerCache | None = None) -> StageRates:
    """Rates of one row, without the row axis; candidates that are solved share a few layer keys."""
    pool, selective = int(row.pool[0]), int(row.selective[0])
    names = ("tp", "cp", "ep", "etp", "micro_batch")
    key = (pool, selective, *(int(getattr(row, name)[0]) for name in names))
    keys = None if cache is None else cache.get(key)
    if keys is None:
        keys = LayerKeys.of(instance, pool, selective, row)
        if cache is not None:
            cache[key] = keys
    return gather(rates_of(instance, run_of_candidates(instance, pool, selective, row), keys), np.array(0))


def priced(instance: Instance, row: Candidates, stages: StagePlan, cache: LayerCache | None = None) -> Plan:
    """The plan with its step and memory from the cost model."""
    pp, vpp, m = int(row.pp[0]), int(row.vpp[0]), int(row.m_high[0])
    rates = scalar_rates(instance, row, cache)
    split = stage_split(instance.architecture, pp, vpp, m, stages.layers, stages.recomputed)
    step = float(step_time(rates, split, m, pp, vpp).total)
    return Plan(row, stages, step, float(stage_memory(rates, split).max()))


def children(table: Table, index: int, plan: Plan | None) -> Array:
    """Rows for fewer micro-batches, where those may be better because they need less memory."""
    row = table.rows.take(slice(index, index + 1))
    # A plan that meets the bound of all its numbers of micro-batches leaves nothing to the others.
    if plan is not None and plan.step <= table.estimates.bound[index] * (1 + 1e-9):
        return np.empty(0, dtype=np.int64)
    fewer = next_fewer_microbatches(int(row.pp[0]), int(row.vpp[0]), int(row.m_high[0]))
    if fewer < row.m_low[0]:
        return np.empty(0, dtype=np.int64)
    child = replace(row, m_low=row.m_low.copy(), m_high=np.full(1, fewer))
    # The row itself now stands for its largest number only.
    table.rows.m_low[index] = row.m_high[0]
    return table.add(child)
