"""Plans among which the page chooses again when a limit or a price moves.

For each pool by itself, the plans that no other plan of the pool beats in both time and money, with the
limits drawn wider than the sliders go. A price scales the cost of all plans of its pool alike, so that
these stay the ones that matter whatever the price is, and the choice among all pools is the planner's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.pipeline import plain_layers
from costmodel.units import DAY
from planner import answer
from planner.chance import margin_of
from planner.economics import Economy
from planner.instance import Instance
from planner.limits import within
from planner.narrowing import ZERO_SCOPES
from planner.search import Effort, Plan, Table
from planner.search.front import frontier
from planner.search.goal import OutOfTime
from planner.solution import Decisions, Explored
from planner.solution import Plan as Described
from planner.space.columns import Candidates
from planner.space.recompute import family_of, variant_of
from planner.stages.problem import StagePlan

Array = NDArray[Any]
SAME = 1e-9


@dataclass(frozen=True, slots=True)
class Span:
    """How far the sliders go, as multiples of what the problem says."""

    least: float
    most: float


LIMIT = Span(0.5, 1.5)
PRICE = Span(0.5, 2.0)
WIDER = (1.0, 3.0, np.inf)
"""Where nothing fits, limits are drawn this many times wider still until something does."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plan that could be chosen, with what decides whether it is."""

    plan: Described
    pool: int
    entry: int
    """The pool's place in the problem's hardware."""
    exact: bool
    """Its stages are assigned by the search; else they are as even as can be."""
    seconds: float
    """Of the whole run."""
    rent: float
    """Dollars a second at the problem's price."""
    committed: float
    """Seconds that are paid for even if the run ends sooner."""
    margin: float
    """Limits hold for this many times the predicted length: a chance constraint, or 1."""
    draw: float
    """kWh a second; 0 where neither limits nor objective ask."""
    emission: float
    """Tonnes of CO2 a second, likewise."""

    @property
    def dollars(self) -> float:
        """What the run costs (`Economy.total`)."""
        return self.rent * max(self.seconds, self.committed)


@dataclass(frozen=True, slots=True)
class Found:
    """The candidates of a problem."""

    candidates: tuple[Candidate, ...]
    complete: bool
    """Nothing else could be chosen; else the time ran out before that was known."""
    unproven: tuple[str, ...] = ()
    """GPUs of which there may be other plans."""


def row_of(instance: Instance, pool: int, d: Decisions) -> Candidates:
    """A plan's decisions as one row of columns."""
    names = {f.name: getattr(d, f.name, 0) for f in fields(Candidates)}
    names |= {"pool": pool, "m_low": d.num_microbatches, "m_high": d.num_microbatches}
    names["zero_scope"] = ZERO_SCOPES.index(d.zero_scope)
    names["variant"] = variant_of(instance.framework, d.modules, d.ep_overlap)
    names["family"] = family_of(d.modules, d.ep_overlap)
    return Candidates(**{name: np.array([value], dtype=np.int64) for name, value in names.items()})


def candidate(instance: Instance, pool: int, plan: Described, exact: bool = True) -> Candidate:
    """A described plan with what it takes."""
    row, seconds = row_of(instance, pool, plan.decisions), plan.estimate.days * DAY
    economy = Economy.of(instance, row)
    metered = {name: getattr(economy, name) for name in ("draw", "emission")}
    return Candidate(
        plan=plan,
        pool=pool,
        entry=instance.pools[pool].entry,
        exact=exact,
        seconds=seconds,
        rent=float(economy.rent[0]),
        committed=float(economy.committed[0]),
        margin=margin_of(instance, row, plan.estimate.step_time_s),
        **{name: 0.0 if column is None else float(column[0]) for name, column in metered.items()},
    )


def candidates(
    instance: Instance,
    described: Sequence[Described],
    until: float | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Found:
    """What could be chosen within the reach of the sliders; `described` are plans that are known already.

    Out of time, plans with the plain stage split stand in for what has not been solved.
    """
    known = [candidate(instance, pool_of(instance, plan), plan) for plan in described]
    found, unproven = list(known), dict[str, None]()
    for wider in WIDER:
        for pool in range(len(instance.pools)):
            name = instance.pools[pool].gpu.name
            progress(f"plans of {name} beyond the limits")
            more, done = of_pool(instance, pool, known, wider, until)
            found += more
            unproven |= {} if done else {name: None}
        if found:
            break
    return Found(tuple(distinct(found)), not unproven, tuple(unproven))


def known_already(instance: Instance, described: Sequence[Described], held: Explored) -> Found:
    """`candidates`, from what a solution file holds of them."""
    found = [candidate(instance, pool_of(instance, plan), plan) for plan in (*described, *held.plans)]
    names = dict.fromkeys(pool.gpu.name for pool in instance.pools)
    return Found(tuple(distinct(found)), held.complete, () if held.complete else tuple(names))


def of_pool(
    instance: Instance, pool: int, known: list[Candidate], wider: float, until: float | None
) -> tuple[list[Candidate], bool]:
    """Candidates of one pool, and whether there are no others."""
    alone = replace(instance, pools=(instance.pools[pool],), limits=loosened(instance, known, wider))
    effort = Effort(until=until)
    try:
        plans, table = frontier(alone, effort)
    except OutOfTime:
        return [], False
    found = [candidate(instance, pool, answer.reported(alone, plan)) for plan in plans]
    if effort.out_of_time:
        found += [
            candidate(instance, pool, answer.reported(alone, plan), False) for plan in plain_plans(table)
        ]
    return found, not effort.out_of_time


def loosened(instance: Instance, known: list[Candidate], wider: float) -> Any:
    """The problem's limits as far as the sliders can move them, or so far beyond what is known already.

    A confidence only makes limits tighter, and by how much depends on the plan: it waits for the choice.
    """
    limits = instance.limits
    longest = max((each.seconds * each.margin for each in known), default=np.inf)
    deadline = limits.deadline if limits.deadline is not None else longest
    budget = limits.budget
    return replace(
        limits,
        confidence=None,
        deadline=finite(deadline * LIMIT.most * wider),
        budget=None if budget is None else finite(budget * LIMIT.most / PRICE.least * wider),
    )


def finite(value: float) -> float | None:
    """A limit, or none where it is infinite."""
    return float(value) if np.isfinite(value) else None


def plain_plans(table: Table) -> list[Plan]:
    """Of the plain splits that were priced, the quickest one that fits of each number of GPUs."""
    rows = table.rows
    priced = np.flatnonzero(np.isfinite(rows.plain))
    priced = priced[within(table.goal.limits, rows.economy.take(priced), rows.plain[priced])]
    seconds, gpus = rows.economy.take(priced).seconds(rows.plain[priced]), rows.rows.num_gpus[priced]
    order = np.lexsort((seconds, gpus))
    first = np.flatnonzero(np.diff(gpus[order], prepend=-1))
    return [_plain(table, int(index)) for index in priced[order[first]]]


def _plain(table: Table, index: int) -> Plan:
    """A row with the plain split that was priced for it."""
    row = table.rows.rows.take(np.array([index]))
    row = replace(row, m_low=row.m_high)
    even = tuple(
        int(n) for n in plain_layers(table.instance.architecture.layers, int(row.pp[0]), int(row.vpp[0]))
    )
    again = even if table.rows.plain_recomputes[index] else (0,) * len(even)
    return Plan(row, StagePlan(even, again), float(table.rows.plain[index]), float("nan"))


def pool_of(instance: Instance, plan: Described) -> int:
    """The pool of a described plan: of several with its GPU, the one whose price explains the dollars."""
    of = (plan.decisions.gpu, plan.decisions.precision)
    named = [i for i, pool in enumerate(instance.pools) if (pool.gpu.name, pool.precision) == of]
    return min(named, key=lambda pool: abs(candidate(instance, pool, plan).dollars - plan.estimate.dollars))


def distinct(found: Iterable[Candidate]) -> list[Candidate]:
    """Each plan once, the first of equals; plain splits only where no exact plan is as good."""
    kept: dict[tuple[int, str], Candidate] = {}
    for one in found:
        kept.setdefault((one.pool, shape(one.plan.decisions)), one)
    exact = [one for one in kept.values() if one.exact]
    return [one for one in kept.values() if one.exact or not any(beats(other, one) for other in exact)]


def shape(decisions: Decisions) -> str:
    """Decisions without the figures of their stages, which another version may round otherwise."""
    return decisions.model_dump_json(exclude={"stages": {"__all__": {"memory_gib", "micro_batch_time_s"}}})


def beats(one: Candidate, other: Candidate) -> bool:
    """Whether a plan of the same pool is no worse in both time and money."""
    same_pool = one.pool == other.pool
    return (
        same_pool and one.seconds <= other.seconds * (1 + SAME) and one.dollars <= other.dollars * (1 + SAME)
    )
