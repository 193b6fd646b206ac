"""Stage assignment on two pools by CP-SAT: which layers lie on which rank, whatever GPU the rank is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.pipeline import micro_batches_in_flight
from costmodel.records import gather
from costmodel.stage import PerLayer, StageRates
from planner.bound.capacity import repeated
from planner.bound.mix import LayerMix
from planner.bound.recompute import recompute_cases, uniform_case
from planner.mixed.bound import pace_within_memory, step_of
from planner.mixed.costs import MixedCosts
from planner.stages.memory import BYTES, add_rank_memory
from planner.stages.model import StageModel
from planner.stages.objective import (
    BUBBLE_PARTS,
    TIME_UNITS,
    add_longest,
    end_of_step_pieces,
    integer,
    linear,
)
from planner.stages.problem import StagePlan, StageProblem
from planner.stages.slots import most_of_a_stage
from planner.stages.solve import Solved, best_assignment, best_of_cases
from planner.stages.ties import Assignments, Figures, has_choice, plainest

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class StageRule:
    """The first so many ranks hold another number of layers than this."""

    ranks: int
    layers: int

    def holds(self, stages: StagePlan) -> bool:
        """Whether an assignment keeps to it."""
        return sum(stages.layers[: self.ranks]) != self.layers


@dataclass(frozen=True, slots=True)
class MixedStages:
    """One candidate's stage assignment on two pools."""

    shape: StageProblem
    """What does not depend on the pool: layers, ranks, recompute."""
    costs: MixedCosts
    """Of this candidate alone, one row."""
    num_microbatches: tuple[int, int]
    one: tuple[StageRates, StageRates]
    """Rates of each pool without the row axis."""
    rule: StageRule | None = None

    @classmethod
    def of(cls, shape: StageProblem, costs: MixedCosts, num_microbatches: tuple[int, int]) -> MixedStages:
        """Of one candidate."""
        first, second = (gather(rates, np.array(0)) for rates in costs.rates)
        return cls(shape, costs, num_microbatches, (first, second))

    def cases(self) -> list[tuple[int | None, float]]:
        """(layers that every rank recomputes or None, least seconds of a step), the best bound first."""
        shape, layers = self.shape, self.shape.architecture.layers
        pp, m = np.array([shape.pp]), np.array(self.num_microbatches)[:, None]
        if shape.recompute != "some" or not shape.uniform or shape.pp == 1:
            numbers: tuple[int | None, ...] = (None,)
            (case,) = recompute_cases(shape.recompute, False, layers, pp, np.array([shape.vpp]))
        else:
            each = np.arange(most_of_a_stage(shape) + 1)
            numbers, case = tuple(each.tolist()), uniform_case(layers, shape.pp, shape.vpp, each)
        rows, mix = len(numbers), LayerMix.of(shape.architecture)
        costs = self._rows(rows)
        m = np.repeat(m, rows, axis=1)
        pace = pace_within_memory(costs, mix, m, case)
        step = step_of(costs.around(mix), pace, m)
        found = [
            (number, bound)
            for number, bound in zip(numbers, step.tolist(), strict=True)
            if np.isfinite(bound)
        ]
        return sorted(found, key=lambda of: of[1])

    def _rows(self, rows: int) -> MixedCosts:
        of, (first, second) = self.costs, self.one
        wide = np.zeros(rows, dtype=np.int64)
        return MixedCosts(
            of.one_pipeline, (repeated(first, rows), repeated(second, rows)), of.steady[:, wide],
            of.fill[:, wide], of.pp[wide], of.vpp[wide], of.split[wide], of.limits, of.micro_batch,
        )  # fmt: skip


def solve_mixed_stages(problem: MixedStages, seconds: float | None, longest: float) -> StagePlan | None:
    """The assignment with the shortest step, proven; None if none fits or none is below `longest` seconds.

    Raises TimeoutError when `seconds` pass without a proof.
    """
    cases = problem.cases()
    if not cases:
        return None
    unit = _unit(problem, cases)
    until = None if seconds is None else monotonic() + seconds
    most = None if np.isinf(longest) else _integer_step(problem, longest, unit, 1)
    bounded = ((each, _integer_step(problem, bound, unit, -1)) for each, bound in cases)
    return best_of_cases(bounded, most, lambda each, most: _solved(problem, each, unit, most, until))


def plainest_mixed_stages(
    problem: MixedStages, plan: StagePlan, figures: Callable[[StagePlan], Figures]
) -> StagePlan:
    """The leanest of assignments that take no longer than the best one (`stages.ties`)."""
    if not has_choice(problem.shape, plan):
        return plan
    cases = problem.cases()
    unit = _unit(problem, cases)
    of = Assignments(
        shape=problem.shape,
        cases=cases,
        room=int(max(problem.costs.limits) // BYTES) + 1,
        add_limits=lambda stages, spare: _add_limits(stages, problem, spare),
        add_step=lambda stages: _add_step(stages, problem, unit),
        keep_hfu=lambda stages, step: _keep_hfu(stages, step, problem, unit),
    )
    return plainest(of, plan, figures)


def _unit(problem: MixedStages, cases: list[tuple[int | None, float]]) -> float:
    """Seconds of a unit: a micro-batch of the slowest rank is some TIME_UNITS of them."""
    return (
        max(cases[0][1] / _scale(problem) / max(*problem.num_microbatches, problem.shape.pp), 1e-9)
        / TIME_UNITS
    )


def _scale(problem: MixedStages) -> float:
    return max(float(of.scale[0]) for of in problem.costs.rates)


def _fixed(problem: MixedStages) -> float:
    costs, pairs = problem.costs, zip(problem.costs.rates, problem.num_microbatches, strict=True)
    return max(float(of.fixed[0]) + costs.micro_batch * m for of, m in pairs)


def _integer_step(problem: MixedStages, seconds: float, unit: float, room: int) -> int:
    """The objective's first part at a step of so many seconds, with room for what rates are rounded by."""
    vpp = problem.shape.vpp
    value = (seconds / _scale(problem) - _fixed(problem)) * vpp * BUBBLE_PARTS / unit
    layers, most = problem.shape.architecture.layers, max(problem.num_microbatches) * vpp
    rounding = 2 * layers * (most + problem.shape.pp + 2 * vpp) * BUBBLE_PARTS
    return int(min(max(value + room * rounding, -(1 << 50)), 1 << 50))


def _lines(problem: MixedStages) -> list[list[tuple[int, int]]]:
    """(rank, pool) of the ranks of each pipeline."""
    ranks = range(problem.shape.pp)
    if problem.costs.one_pipeline:
        split = int(problem.costs.split[0])
        return [[(rank, int(rank >= split)) for rank in ranks]]
    return [[(rank, pool) for rank in ranks] for pool in (0, 1)]


def _solved(
    problem: MixedStages, each: int | None, unit: float, most: int | None, until: float | None
) -> Solved:
    """The best assignment of a case, and its step in the model's units."""
    stages = StageModel(problem.shape, each)
    _add_limits(stages, problem)
    step = _add_step(stages, problem, unit)
    _keep_hfu(stages, step, problem, unit)
    return best_assignment(stages, step, most, until)


def _keep_hfu(stages: StageModel, step: Any, problem: MixedStages, unit: float) -> None:
    """Holds the step to the longest one, where an HFU is required."""
    if problem.shape.longer:
        room = -1 if problem.shape.strict else 1
        longest = _integer_step(problem, problem.shape.longest, unit, room)
        add_longest(stages, step, longest, problem.shape.vpp * BUBBLE_PARTS / unit / _scale(problem))


def _add_limits(stages: StageModel, problem: MixedStages, spare: Any = 0) -> None:
    """Every rank within its GPU's memory, with so many units to spare, and what the rule asks for."""
    for line in _lines(problem):
        for rank, pool in line:
            flying = micro_batches_in_flight(
                problem.shape.pp, problem.shape.vpp, problem.num_microbatches[pool]
            )
            add_rank_memory(stages, rank, problem.one[pool], problem.costs.limits[pool], flying, spare)
    if problem.rule is not None:
        # Without chunks every rank has a slot of its own.
        stages.model.add(sum(stages.layers[: problem.rule.ranks]) != problem.rule.layers)


def _add_step(stages: StageModel, problem: MixedStages, unit: float) -> Any:
    """v*BUBBLE_PARTS x (slowest line + worst end of step) in integer units.

    A line takes m*slowest + x*(total - slowest)/v + its transfers, x the share of the bubble that is left.
    """
    model, costs, vpp = stages.model, problem.costs, problem.shape.vpp
    most = vpp * TIME_UNITS << 20
    pace, end = model.new_int_var(0, most, "pace"), model.new_int_var(-most, most, "end_of_step")
    bubble = round(BUBBLE_PARTS * costs.rates[0].bubble)
    pieces = [highest(end_of_step_pieces(rates)) for rates in problem.one]
    for number, line in enumerate(_lines(problem)):
        slowest = model.new_int_var(0, most, "slowest")
        busy = []
        for rank, pool in line:
            rates = problem.one[pool]
            busy.append(linear(stages, rank, rates.work, rates.recompute, unit))
            for piece, again in pieces[pool]:
                model.add(end >= linear(stages, rank, piece, again, unit))
        for each in busy:
            model.add(slowest >= each)
        m = problem.num_microbatches[number]
        moved = float(m * costs.steady[number, 0] + costs.fill[number, 0])
        line_seconds = (BUBBLE_PARTS * m * vpp - bubble) * slowest + bubble * sum(busy)
        model.add(pace >= line_seconds + integer(BUBBLE_PARTS * vpp * moved, unit))
    return pace + BUBBLE_PARTS * vpp * end


def highest(pieces: list[tuple[PerLayer, Array]]) -> list[tuple[PerLayer, Array]]:
    """Those that no other exceeds in every coefficient: of numbers of layers only they can be the maximum."""
    flat = [np.concatenate([of.kinds, [of.first, of.last], again]) for of, again in pieces]
    kept: list[int] = []
    for index, mine in enumerate(flat):
        others = [(at, of) for at, of in enumerate(flat) if at != index and (of >= mine).all()]
        # Of equal ones the first stays.
        if not any(at < index or (of > mine).any() for at, of in others):
            kept.append(index)
    return [pieces[index] for index in kept]
