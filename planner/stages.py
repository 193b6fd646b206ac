"""Stage assignment: which layers lie on which virtual stage, and which are recomputed. CP-SAT.

Layers need not divide by stages: the first one holds the embedding and the most micro-batches in
flight, the last one the head and the loss. Memory of a rank is linear in the layers it holds and
recomputes, and so is the time of the schedule but for the slowest rank, a maximum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from costmodel.architecture import Architecture
from costmodel.pipeline import micro_batches_in_flight
from costmodel.stage import PerLayer, StageRates
from planner.bound import least_slowest

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

Array = NDArray[Any]
TIME_UNITS = 1 << 22
"""The slowest stage in integer units: rounding stays below 1e-6 of a step."""
BYTES = 1 << 16
"""Unit of memory in the model; every coefficient is rounded up, so that an assignment that fits here fits."""


@dataclass(frozen=True, slots=True)
class StagePlan:
    layers: tuple[int, ...]
    """Of each virtual stage."""
    recomputed: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StageProblem:
    """One candidate's stage assignment. `rates` are those of this candidate alone."""

    architecture: Architecture
    rates: StageRates
    pp: int
    vpp: int
    num_microbatches: int
    memory_limit: float
    recompute: str
    """Layers that may be recomputed: none, some or all."""
    uniform: bool
    """Whether every virtual stage recomputes the same number of layers (of those it has)."""


class StageModel:
    """The variables of the assignment, with queries for what constraints need."""

    def __init__(self, problem: StageProblem) -> None:
        from ortools.sat.python import cp_model

        self.problem = problem
        self.model = cp_model.CpModel()
        total, stages = problem.architecture.layers, problem.pp * problem.vpp
        most = total - stages + 1
        self.layers = [self.model.new_int_var(1, most, f"layers_{i}") for i in range(stages)]
        self.model.add(sum(self.layers) == total)
        self.recomputed = [self._recomputed(i, most) for i in range(stages)]
        self.starts = self._starts()
        self.held = [self._counts(i, self.layers[i]) for i in range(stages)]
        self.redone = [self._counts(i, self.recomputed[i]) for i in range(stages)]

    def _recomputed(self, stage: int, most: int) -> cp_model.LinearExprT:
        if self.problem.recompute == "none":
            return 0
        if self.problem.recompute == "all":
            return self.layers[stage]
        count = self.model.new_int_var(0, most, f"recomputed_{stage}")
        if self.problem.uniform:
            if stage == 0:
                self.same = self.model.new_int_var(0, most, "recomputed_each")
            self.model.add_min_equality(count, [self.same, self.layers[stage]])
        else:
            self.model.add(count <= self.layers[stage])
        return count

    def _starts(self) -> list[cp_model.LinearExprT]:
        starts: list[Any] = [0]
        for layers in self.layers[:-1]:
            starts.append(starts[-1] + layers)
        return starts

    def _counts(self, stage: int, length: Any) -> list[Any]:
        """Layers of each kind among the first `length` layers of a virtual stage."""
        architecture = self.problem.architecture
        if len(architecture.kinds) == 1:
            return [length]
        prefix = np.concatenate([[0], np.cumsum(np.array(architecture.pattern()) == architecture.kinds[0])])
        before, after = self._prefix(prefix, self.starts[stage]), self._prefix(prefix, self.starts[stage] + length)
        return [after - before, length - (after - before)]

    def _prefix(self, prefix: Array, position: Any) -> Any:
        if isinstance(position, int):
            return int(prefix[position])
        value = self.model.new_int_var(0, int(prefix[-1]), "")
        self.model.add_element(position, [int(p) for p in prefix], value)
        return value

    def of_rank(self, rank: int, weights: list[list[int]], counts: list[list[Any]]) -> Any:
        """Sum over a rank's chunks c and kinds k of weights[c][k] * counts."""
        pp = self.problem.pp
        return sum(
            weight * count
            for chunk in range(self.problem.vpp)
            for weight, count in zip(weights[chunk], counts[chunk * pp + rank], strict=True)
            if weight
        )


def integer(value: float, unit: float) -> int:
    return round(float(value) / unit)


def add_memory(stages: StageModel) -> None:
    """Each rank's states, kept activations and transients within the limit (stage.stage_memory)."""
    problem, rates = stages.problem, stages.problem.rates
    flying = micro_batches_in_flight(problem.pp, problem.vpp, problem.num_microbatches)
    for rank in range(problem.pp):
        first, last = rank == 0, rank == problem.pp - 1
        fixed = first * (rates.states.first + flying[0, 0] * rates.kept.first)
        fixed = fixed + last * (rates.states.last + rates.kept.last)
        fixed = fixed + max(float(rates.working), last * float(rates.loss))
        room = (problem.memory_limit - float(rates.fixed_bytes)) / (1 + rates.overhead) - float(fixed)
        keep = [[_up(rates.states.kinds[k] + f * rates.kept.kinds[k]) for k in _kinds(rates)] for f in flying[rank]]
        save = [[int(f * (rates.kept.kinds[k] - rates.checkpoint[k]) // BYTES) for k in _kinds(rates)] for f in flying[rank]]
        used = stages.of_rank(rank, keep, stages.held) - stages.of_rank(rank, save, stages.redone)
        stages.model.add(used <= int(room // BYTES))


def _up(value: float) -> int:
    return int(-(-float(value) // BYTES))


def _kinds(rates: StageRates) -> range:
    return range(len(rates.work.kinds))


def add_objective(stages: StageModel, unit: float) -> None:
    """(m*v - 1)*slowest + total + v*worst end of step, then as few recomputed layers as can be."""
    problem, rates, model = stages.problem, stages.problem.rates, stages.model
    ranks = range(problem.pp)
    busy = [_linear(stages, rank, rates.work, rates.recompute, unit) for rank in ranks]
    slowest = model.new_int_var(0, TIME_UNITS << 12, "slowest")
    floor = least_slowest(rates, _totals(problem.architecture), problem.pp, problem.vpp)
    model.add(slowest >= integer(floor, unit) - problem.architecture.layers)
    end = model.new_int_var(-TIME_UNITS << 12, TIME_UNITS << 12, "end_of_step")
    for rank in ranks:
        model.add(slowest >= busy[rank])
        for piece, again in end_of_step_pieces(rates):
            model.add(end >= _linear(stages, rank, piece, again, unit))
    m, v = problem.num_microbatches, problem.vpp
    step = (m * v - 1) * slowest + sum(busy) + v * end
    model.minimize(step * (problem.architecture.layers + 1) + sum(stages.recomputed))


def end_of_step_pieces(rates: StageRates) -> list[tuple[PerLayer, Array]]:
    """Linear pieces whose maximum is step.data_parallel_exposed plus the optimizer.

    Each of reduction and gather shows either its floor, or all of it less its window of the rank's
    micro-batch time. Returned as costs a layer and as what recomputing a layer adds.
    """
    pieces = []
    for reduce_hides in (False, True):
        for gather_hides in (False, True):
            window = reduce_hides * rates.reduce_window + gather_hides * rates.gather_window
            weighted = [
                (1.0 if reduce_hides else rates.exposed_floor, rates.reduce),
                (1.0 if gather_hides else rates.exposed_floor, rates.gather),
                (1.0, rates.optimizer),
                (-window, rates.work),
            ]
            piece = PerLayer(
                *(sum(weight * getattr(of, part) for weight, of in weighted) for part in ("kinds", "first", "last"))
            )
            pieces.append((piece, -window * rates.recompute))
    return pieces


def _linear(stages: StageModel, rank: int, rates: PerLayer, again: Array, unit: float) -> Any:
    """What a rank's layers cost together with its recomputed layers, in integer units."""
    problem = stages.problem
    held = [[integer(rate, unit) for rate in rates.kinds]] * problem.vpp
    redone = [[integer(rate, unit) for rate in again]] * problem.vpp
    ends = (rank == 0) * rates.first + (rank == problem.pp - 1) * rates.last
    layers = stages.of_rank(rank, held, stages.held) + integer(ends, unit)
    return layers + stages.of_rank(rank, redone, stages.redone)


def _totals(architecture: Architecture) -> Array:
    pattern = architecture.pattern()
    return np.array([pattern.count(kind) for kind in architecture.kinds])


def solve_stages(problem: StageProblem, hint: StagePlan | None = None, seconds: float | None = None) -> StagePlan | None:
    """The assignment with the shortest step, proven; None if none fits.

    Raises TimeoutError when `seconds` pass without a proof.
    """
    from ortools.sat.python import cp_model

    stages = StageModel(problem)
    add_memory(stages)
    floor = least_slowest(problem.rates, _totals(problem.architecture), problem.pp, problem.vpp)
    add_objective(stages, max(float(floor), 1e-9) / TIME_UNITS)
    if hint is not None:
        for variable, value in zip(stages.layers, hint.layers, strict=True):
            stages.model.add_hint(variable, value)
        if problem.recompute == "some":
            for variable, value in zip(stages.recomputed, hint.recomputed, strict=True):
                stages.model.add_hint(variable, value)
    solver = cp_model.CpSolver()
    # One worker and a fixed seed: the same problem gets the same plan on every machine.
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    if seconds is not None:
        solver.parameters.max_time_in_seconds = seconds
    status = solver.solve(stages.model)
    if status == cp_model.INFEASIBLE:
        return None
    if status != cp_model.OPTIMAL:
        raise TimeoutError(f"no proof for {problem.pp} x {problem.vpp} stages: {solver.status_name(status)}")
    return StagePlan(
        tuple(solver.value(n) for n in stages.layers),
        tuple(0 if isinstance(r, int) else solver.value(r) for r in stages.recomputed),
    )
