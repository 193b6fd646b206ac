"""Rows solved exactly: the stage assignment by CP-SAT, priced by the cost model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from costmodel.pipeline import plain_layers, saturating_microbatches, stage_split
from costmodel.stage import stage_memory
from costmodel.step import step_time
from planner.frameworks.rules import even_stages
from planner.hfu import hfu_of_stages, hfu_requirement, longest_of_stages
from planner.instance import Instance
from planner.keybook import KeyBook
from planner.search.goal import Effort
from planner.space.columns import Candidates
from planner.space.recompute import stage_recompute
from planner.stages.problem import StagePlan, StageProblem
from planner.stages.solve import solve_stages
from planner.stages.ties import Assignments, has_choice, plainest


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
        names = (
            "pool",
            "tp",
            "cp",
            "pp",
            "vpp",
            "dp",
            "ep",
            "etp",
            "micro_batch",
            "zero",
            "zero_scope",
            "m_high",
            "variant",
        )
        return (*(int(getattr(self.row, name)[0]) for name in names), self.stages)

    def of(self, decision: str) -> int:
        """The value of a decision that is a column."""
        return int(getattr(self.row, decision)[0])


def priced(book: KeyBook, row: Candidates, stages: StagePlan) -> Plan:
    """The plan with its step and memory from the cost model."""
    pp, vpp, m = int(row.pp[0]), int(row.vpp[0]), int(row.m_high[0])
    rates = book.rates_of_one(row)
    split = stage_split(book.instance.architecture, pp, vpp, m, stages.layers, stages.recomputed)
    step = float(step_time(rates, split, m, pp, vpp).total)
    return Plan(row, stages, step, float(stage_memory(rates, split).max()))


def plain_plan(book: KeyBook, row: Candidates, recomputes: bool) -> Plan:
    """The row with layers as even as can be, all of them recomputed or none."""
    layers = plain_layers(book.instance.architecture.layers, int(row.pp[0]), int(row.vpp[0]))
    even = tuple(int(n) for n in layers)
    row = replace(row, m_low=row.m_high)
    return priced(book, row, StagePlan(even, even if recomputes else (0,) * len(even)))


def stage_problem(book: KeyBook, row: Candidates) -> StageProblem:
    """What is asked of the stages of a row, at its largest number of micro-batches."""
    instance = book.instance
    longest, longer = longest_of_stages(instance, row)
    return StageProblem(
        architecture=instance.architecture,
        rates=book.rates_of_one(row),
        pp=int(row.pp[0]),
        vpp=int(row.vpp[0]),
        num_microbatches=int(row.m_high[0]),
        memory_limit=memory_limit(instance, int(row.pool[0])),
        recompute=stage_recompute(int(row.family[0])),
        uniform=not instance.per_stage_recompute,
        even=even_stages(instance),
        longest=longest,
        longer=longer,
    )


def solved_plan(book: KeyBook, row: Candidates, longest: float, effort: Effort) -> Plan | None:
    """The row's best plan at its largest number of micro-batches; None if none fits or all take `longest`.

    Of equally quick stage assignments it has the plainest.
    """
    row = replace(row, m_low=row.m_high)
    problem = stage_problem(book, row)
    effort.solved += 1
    plan = _solved(book, row, problem, longest, effort)
    if plan is not None and not has_hfu(book.instance, plan):
        # Within what rounding leaves in doubt: without that.
        plan = _solved(book, row, replace(problem, strict=True), longest, effort)
    return None if plan is None else plainest_plan(book, plan)


def _solved(
    book: KeyBook, row: Candidates, problem: StageProblem, longest: float, effort: Effort
) -> Plan | None:
    """The quickest assignment of a row. Raises OutOfTime."""
    try:
        stages = solve_stages(problem, effort.seconds_left, longest)
    except TimeoutError:
        effort.stop()
    return None if stages is None else priced(book, row, stages)


def has_hfu(instance: Instance, plan: Plan) -> bool:
    """Whether a plan has the HFU that is required."""
    required = hfu_requirement(instance)
    return required is None or plan_hfu(instance, plan) >= required.value


def plan_hfu(instance: Instance, plan: Plan) -> float:
    """HFU of a plan."""
    return hfu_of_stages(instance, plan.row, plan.stages.layers, plan.stages.recomputed, plan.step)


def plainest_plan(book: KeyBook, plan: Plan) -> Plan:
    """The plan with the leanest of its row's stage assignments that take no longer (`stages.ties`)."""
    problem = stage_problem(book, plan.row)
    if not has_choice(problem, plan.stages):
        return plan

    def figures(stages: StagePlan) -> tuple[float, float]:
        other = priced(book, plan.row, stages)
        step = other.step if has_hfu(book.instance, other) else np.inf
        return step, problem.memory_limit - other.memory

    level = book.instance.assume_mfu is not None
    stages = plainest(Assignments.of(problem), plan.stages, figures, level)
    return plan if stages == plan.stages else priced(book, plan.row, stages)


def memory_limit(instance: Instance, pool: int) -> float:
    """Bytes that a plan may use of a GPU."""
    room, most = (
        instance.pools[pool].memory_limit(instance.limits.memory_headroom),
        instance.limits.most_memory,
    )
    return room if most is None else min(room, most)


def fits(instance: Instance, plan: Plan) -> bool:
    """Whether a plan stays within the memory that the instance lets it use."""
    return plan.memory <= memory_limit(instance, plan.of("pool"))


def memory_limits(instance: Instance, pools: Any) -> Any:
    """Bytes that each row may use of a GPU."""
    return np.array([memory_limit(instance, i) for i in range(len(instance.pools))])[pools]


def next_fewer_microbatches(row: Candidates, every: bool = False) -> int:
    """The next smaller number of micro-batches, if not `every` that needs less memory (or below `m_low`)."""
    pp, vpp, m = int(row.pp[0]), int(row.vpp[0]), int(row.m_high[0])
    step = pp if vpp > 1 else 1
    return m - step if every else min(m - step, saturating_microbatches(pp, vpp) - step)


def one_microbatch_count(row: Candidates, number: int) -> Candidates:
    """A row with a single number of micro-batches."""
    return replace(row, m_low=np.full(len(row), number), m_high=np.full(len(row), number))
