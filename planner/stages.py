"""Stage assignment: which layers lie on which virtual stage, and which are recomputed. CP-SAT.

Layers need not divide by stages: the first one holds the embedding and the most micro-batches in
flight, the last one the head and the loss. Memory of a rank is linear in the layers it holds and
recomputes, and so is the time of the schedule but for the slowest rank, a maximum.

Chunks of a rank that keep equally many micro-batches in flight are interchangeable, so they are one
variable (a `Slot`), not one each: 64 virtual stages take 100 times as long with their symmetry.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic
from typing import Any, SupportsFloat

import numpy as np
from numpy.typing import NDArray

from costmodel.architecture import Architecture
from costmodel.pipeline import level_chunks, micro_batches_in_flight
from costmodel.stage import PerLayer, StageRates
from planner.bound.capacity import case_bounds
from planner.bound.mix import LayerMix
from planner.bound.recompute import recompute_cases, uniform_case
from planner.solver import load_cp_model

Array = NDArray[Any]
TIME_UNITS = 1 << 22
"""The slowest stage in integer units: rounding stays below 1e-5 of a step even with 100 layers a rank."""
BUBBLE_PARTS = 3
"""Shares of a bubble that a schedule leaves are whole thirds: 1F1B all, ZB-1p one, ZB-2p none."""
RELATIVE_GAP = 1e-7
"""Assignments closer than this are the same to anyone who reads the plan."""
BYTES = 1 << 10
"""Unit of memory in the model; every coefficient is rounded up, so that an assignment that fits here fits."""


@dataclass(frozen=True, slots=True)
class StagePlan:
    """Where layers lie."""

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
    """Whether every virtual stage recomputes the same number of layers (or all it has)."""
    even: bool = False
    """Whether every virtual stage holds the same number of layers."""

    def cases(self) -> list[Case]:
        """What may be recomputed, the best bound first; without the cases in which nothing fits.

        Uniform recompute is a case for each number of layers: as a variable it would tie all stages
        together, and the proof would take thousands of times as long.
        """
        layers, alike = self.architecture.layers, self.recompute == "some" and self.uniform
        if not alike or self.pp * self.vpp == 1:
            numbers, each = (None,), np.zeros(1, dtype=np.int64)
            (case,) = recompute_cases(
                self.recompute, False, layers, np.array([self.pp]), np.array([self.vpp])
            )
        else:
            each = np.arange(max(slot_range(self, s)[1] // len(s.stages) for s in slots_of(self)) + 1)
            numbers, case = tuple(each.tolist()), uniform_case(layers, self.pp, self.vpp, each)
        slowest, step = case_bounds(
            self.rates, LayerMix.of(self.architecture, self.even), self.pp, self.vpp, self.num_microbatches,
            self.memory_limit, case, len(each),
        )  # fmt: skip
        found = zip(numbers, slowest.tolist(), step.tolist(), strict=True)
        return sorted((Case(*of) for of in found if np.isfinite(of[1])), key=lambda of: of.step)

    @property
    def slowest(self) -> float:
        """Least seconds of the slowest rank; inf if nothing fits."""
        return min((case.slowest for case in self.cases()), default=float("inf"))


@dataclass(frozen=True, slots=True)
class Case:
    """A number of recomputed layers, and what no assignment with it can beat."""

    each: int | None
    """Layers that every virtual stage recomputes (or all it has); None where each decides for itself."""
    slowest: float
    """Seconds a micro-batch of the slowest rank."""
    step: float
    """Seconds of a step."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Virtual stages of one rank that keep the same number of micro-batches in flight."""

    stages: tuple[int, ...]
    rank: int
    in_flight: int


def slots_of(problem: StageProblem) -> list[Slot]:
    """The slots, those whose place in the model matters for their kinds of layers first, one stage each."""
    flying = micro_batches_in_flight(problem.pp, problem.vpp, problem.num_microbatches)
    total = problem.pp * problem.vpp
    single = total if problem.vpp == 1 else min(max(1, ordered_stages(problem.architecture)), total)
    slots = [Slot((i,), i % problem.pp, int(flying[i % problem.pp, i // problem.pp])) for i in range(single)]
    shared: dict[tuple[int, int, bool], list[int]] = {}
    for i in range(single, total):
        rank, chunk = i % problem.pp, i // problem.pp
        shared.setdefault((rank, int(flying[rank, chunk]), i == total - 1), []).append(i)
    return slots + [Slot(tuple(stages), rank, flight) for (rank, flight, _), stages in shared.items()]


def slot_range(problem: StageProblem, slot: Slot) -> tuple[int, int]:
    """Fewest and most layers of a slot: any number in 1F1B unless all are even, level chunks interleaved."""
    total, stages = problem.architecture.layers, problem.pp * problem.vpp
    if problem.even:
        each = total // stages * len(slot.stages)
        return each, each
    level = level_chunks(total, problem.pp, problem.vpp)
    if level is None:
        return 1, total - stages + 1
    sizes = [level.sizes[stage // problem.pp] for stage in slot.stages]
    spared = sum(stage in (0, stages - 1) for stage in slot.stages)
    return sum(sizes) - min(spared, level.short), sum(sizes)


def ordered_stages(architecture: Architecture) -> int:
    """Leading stages that may hold another kind of layer than all later ones.

    Each holds a layer or more, but for the first one of an interleaved pipeline.
    """
    pattern = architecture.pattern()
    return next((i + 1 for i in range(len(pattern), 0, -1) if pattern[i - 1] != pattern[-1]), 0)


class StageModel:
    """The variables of the assignment, with queries for what constraints need."""

    def __init__(self, problem: StageProblem, each: int | None = None) -> None:
        cp_model = load_cp_model()

        self.problem = problem
        self.each = each
        """Layers that every virtual stage recomputes (or all it has), where they are to be the same."""
        self.model = cp_model.CpModel()
        self.slots = slots_of(problem)
        total = problem.architecture.layers
        self.layers = [self.model.new_int_var(*slot_range(problem, slot), "layers") for slot in self.slots]
        self.model.add(sum(self.layers) == total)
        self.recomputed = [self._recomputed(s, n) for s, n in zip(self.slots, self.layers, strict=True)]
        self.held, self.redone = self._counts(self.layers), self._counts(self.recomputed)

    def _recomputed(self, slot: Slot, layers: Any) -> Any:
        if self.problem.recompute == "none":
            return 0
        if self.problem.recompute == "all":
            return layers
        if self.each == 0:
            return 0
        recomputed = self.model.new_int_var(0, slot_range(self.problem, slot)[1], "recomputed")
        if self.each is not None:
            # Stages of a slot hold n or n + 1 layers, so their sum of min(each, layers) is this.
            self.model.add_min_equality(recomputed, [len(slot.stages) * self.each, layers])
        else:
            self.model.add(recomputed <= layers)
        return recomputed

    def _counts(self, lengths: list[Any]) -> list[list[Any]]:
        """Layers of each kind among the first so many layers of each slot."""
        architecture = self.problem.architecture
        if len(architecture.kinds) == 1:
            return [[length] for length in lengths]
        prefix = np.concatenate([[0], np.cumsum(np.array(architecture.pattern()) == architecture.kinds[0])])
        last = architecture.kinds.index(architecture.pattern()[-1])
        counts, start = [], 0
        for slot, layers, length in zip(self.slots, self.layers, lengths, strict=True):
            if len(slot.stages) == 1 and slot.stages[0] < ordered_stages(architecture):
                first = self._prefix(prefix, start + length) - self._prefix(prefix, start)
                counts.append([first, length - first])
            else:
                counts.append([length if last == 0 else 0, length if last == 1 else 0])
            start = start + layers
        return counts

    def _prefix(self, prefix: Array, position: Any) -> Any:
        if isinstance(position, int):
            return int(prefix[position])
        value = self.model.new_int_var(0, int(prefix[-1]), "")
        self.model.add_element(position, [int(p) for p in prefix], value)
        return value

    def recomputes(self, rank: int) -> Any:
        """1 if a rank recomputes any layer, else 0."""
        if self.problem.recompute != "some":
            return int(self.problem.recompute == "all")
        any_layer = self.model.new_bool_var(f"recomputes_{rank}")
        layers = [r for slot, r in zip(self.slots, self.recomputed, strict=True) if slot.rank == rank]
        self.model.add(sum(layers) <= self.problem.architecture.layers * any_layer)
        return any_layer

    def of_rank(self, rank: int, weights: dict[int, list[int]] | list[int], counts: list[list[Any]]) -> Any:
        """Sum over a rank's slots and kinds of weight x count; weights by in-flight count, or one for all."""
        total: Any = 0
        for slot, by_kind in zip(self.slots, counts, strict=True):
            if slot.rank == rank:
                of_slot = weights[slot.in_flight] if isinstance(weights, dict) else weights
                total = total + sum(w * c for w, c in zip(of_slot, by_kind, strict=True))
        return total


def integer(value: SupportsFloat, unit: float) -> int:
    """A quantity in whole units, rounded."""
    return round(float(value) / unit)


def add_memory(stages: StageModel) -> None:
    """Every rank within the limit."""
    problem = stages.problem
    flying = micro_batches_in_flight(problem.pp, problem.vpp, problem.num_microbatches)[:, 0]
    for rank in range(problem.pp):
        add_rank_memory(stages, rank, problem.rates, problem.memory_limit, flying)


def add_rank_memory(stages: StageModel, rank: int, rates: StageRates, limit: float, flying: Array) -> None:
    """A rank's states, kept activations and transients within `limit` bytes (stage.stage_memory).

    `flying` are the micro-batches that each rank's first chunk keeps in flight; those of other chunks are
    in the slots.
    """
    problem, kinds = stages.problem, range(len(rates.work.kinds))
    first, last = rank == 0, rank == problem.pp - 1
    fixed = first * (rates.states.first + int(flying[0]) * rates.kept.first)
    fixed = fixed + last * (rates.states.last + rates.kept.last)
    room = (limit - float(rates.fixed_bytes)) / (1 + rates.overhead) - float(fixed)

    def keep(f: int) -> list[int]:
        return [up(rates.states.kinds[k] + f * rates.kept.kinds[k]) for k in kinds]

    def save(f: int) -> list[int]:
        return [-up(f * (rates.checkpoint[k] - rates.kept.kinds[k])) for k in kinds]

    if problem.vpp == 1:
        kept, saved = keep(int(flying[rank])), save(int(flying[rank]))
    else:
        flights = {slot.in_flight for slot in stages.slots if slot.rank == rank}
        kept, saved = {f: keep(f) for f in flights}, {f: save(f) for f in flights}
    used = stages.of_rank(rank, kept, stages.held) - stages.of_rank(rank, saved, stages.redone)
    # A layer that is rebuilt lives with the backward pass's buffers, never with the loss's.
    rebuilt = up(rates.rebuilt) * stages.recomputes(rank)
    stages.model.add(used + up(rates.working) + rebuilt <= int(room // BYTES))
    if last:
        stages.model.add(used + up(rates.loss) <= int(room // BYTES))


def up(value: SupportsFloat) -> int:
    """Bytes in units of the model, rounded up."""
    return int(-(-float(value) // BYTES))


def add_objective(stages: StageModel, floor: float, unit: float) -> Any:
    """(m*v - x)*slowest + x*total + v*worst end of step, then as few recomputed layers as can be.

    x is the share of the bubble that the schedule leaves. Returns the first part, which is
    v*BUBBLE_PARTS times the step in integer units, less what no assignment changes.
    """
    problem, rates, model = stages.problem, stages.problem.rates, stages.model
    ranks = range(problem.pp)
    busy = [linear(stages, rank, rates.work, rates.recompute, unit) for rank in ranks]
    slowest = model.new_int_var(0, TIME_UNITS << 8, "slowest")
    layers = problem.architecture.layers
    # Each integer rate is off by half a unit at most.
    model.add(slowest >= max(0, integer(floor, unit) - 2 * layers))
    end = model.new_int_var(-TIME_UNITS << 8, TIME_UNITS << 8, "end_of_step")
    model.add(end >= integer(_least_end(rates, layers, problem.pp), unit) - 2 * layers)
    pieces = end_of_step_pieces(rates)
    for rank in ranks:
        model.add(slowest >= busy[rank])
        for piece, again in pieces:
            model.add(end >= linear(stages, rank, piece, again, unit))
    m, v = problem.num_microbatches, problem.vpp
    bubble = round(BUBBLE_PARTS * rates.bubble)
    step = (BUBBLE_PARTS * m * v - bubble) * slowest + bubble * sum(busy) + BUBBLE_PARTS * v * end
    model.minimize(step * (layers + 1) + sum(stages.recomputed))
    return step


def integer_step(problem: StageProblem, seconds: float, unit: float, room: int = 1) -> int:
    """The value of the objective's first part at a step of so many seconds.

    With room for rounded rates: what takes that long is at most this, or with `room` = -1 at least this.
    """
    rates, m = problem.rates, problem.num_microbatches
    given = m * float(rates.p2p_steady) + (problem.pp - 1) * float(rates.p2p_fill) + float(rates.fixed)
    value = (seconds / float(rates.scale) - given) * problem.vpp * BUBBLE_PARTS / unit
    rounding = 2 * problem.architecture.layers * (m * problem.vpp + problem.pp) * BUBBLE_PARTS
    return int(min(max(value + room * rounding, -(1 << 50)), 1 << 50))


def _least_end(rates: StageRates, layers: int, pp: int) -> float:
    """Some rank holds ceil(L/p) layers or more: what their exposed traffic and optimizer take at least."""
    shown = rates.exposed_floor * (rates.reduce.kinds + rates.gather.kinds) + rates.optimizer.kinds
    return -(-layers // pp) * float(shown.min())


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
            kinds, first, last = (
                np.sum([weight * getattr(of, part) for weight, of in weighted], axis=0)
                for part in ("kinds", "first", "last")
            )
            piece = PerLayer(kinds, first, last)
            pieces.append((piece, -window * rates.recompute))
    return pieces


def linear(stages: StageModel, rank: int, rates: PerLayer, again: Array, unit: float) -> Any:
    """What a rank's layers cost together with its recomputed layers, in integer units."""
    ends = (rank == 0) * rates.first + (rank == stages.problem.pp - 1) * rates.last
    held = stages.of_rank(rank, [integer(rate, unit) for rate in rates.kinds], stages.held)
    redone = stages.of_rank(rank, [integer(rate, unit) for rate in again], stages.redone)
    return held + redone + integer(ends, unit)


def solve_stages(
    problem: StageProblem, seconds: float | None = None, longest: float = float("inf")
) -> StagePlan | None:
    """The assignment with the shortest step, proven; None if none fits or none is below `longest` seconds.

    Raises TimeoutError when `seconds` pass without a proof.
    """
    cases = problem.cases()
    if not cases:
        return None
    unit = max(min(case.slowest for case in cases), 1e-9) / TIME_UNITS
    most = None if longest == float("inf") else integer_step(problem, longest, unit)
    until = None if seconds is None else monotonic() + seconds
    best = None
    for case in cases:
        if most is not None and integer_step(problem, case.step, unit, room=-1) > most:
            break  # so are all others
        found = _solved(problem, case, unit, most, until)
        if found is not None:
            best, step = found
            most = step - 1
    return best


def _solved(
    problem: StageProblem, case: Case, unit: float, most: int | None, until: float | None
) -> tuple[StagePlan, int] | None:
    """The best assignment of a case, and its step in the model's units."""
    stages = StageModel(problem, case.each)
    add_memory(stages)
    step = add_objective(stages, case.slowest, unit)
    if most is not None:
        stages.model.add(step <= most)
    solver = solved_model(stages.model, until)
    if solver is None:
        return None
    return assigned(stages, solver, case.each is not None), int(solver.value(step))


def assigned(stages: StageModel, solver: Any, uniform: bool) -> StagePlan:
    """The assignment that a solver found; `uniform`: stages recompute the same number of layers."""
    layers = [solver.value(n) for n in stages.layers]
    recomputed = [0 if isinstance(r, int) else solver.value(r) for r in stages.recomputed]
    return spread(stages.slots, layers, recomputed, uniform)


def solved_model(model: Any, until: float | None) -> Any:
    """A solver with a model's proven optimum; None if nothing satisfies it.

    Raises TimeoutError when `until` (of time.monotonic) passes without a proof.
    """
    cp_model = load_cp_model()
    solver = cp_model.CpSolver()
    # One worker and a fixed seed: the same problem gets the same plan on every machine.
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.relative_gap_limit = RELATIVE_GAP
    # The bound on a time of millions of units would else rise unit by unit where nothing is short enough.
    solver.parameters.binary_search_num_conflicts = 20
    solver.parameters.linearization_level = 2
    if until is not None:
        solver.parameters.max_time_in_seconds = max(until - monotonic(), 0.01)
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return None
    if status != cp_model.OPTIMAL:
        raise TimeoutError(f"no proof of a stage assignment: {solver.status_name(status)}")
    return solver


def spread(slots: list[Slot], layers: list[int], recomputed: list[int], uniform: bool) -> StagePlan:
    """The assignment by virtual stage: a slot's layers are divided evenly among its stages."""
    by_stage: dict[int, tuple[int, int]] = {}
    for slot, total, redone in zip(slots, layers, recomputed, strict=True):
        count = len(slot.stages)
        held = even(total, count)
        # Uniform recompute is `each` layers of every stage, or all of them.
        again = held if uniform and redone == total else even(redone, count)
        for stage, n, r in zip(slot.stages, held, again, strict=True):
            by_stage[stage] = (n, r)
    ordered = [by_stage[i] for i in sorted(by_stage)]
    return StagePlan(tuple(n for n, _ in ordered), tuple(r for _, r in ordered))


def even(total: int, parts: int) -> list[int]:
    """As equal parts as whole numbers can be, the larger ones last."""
    base, extra = divmod(total, parts)
    return [base + (i >= parts - extra) for i in range(parts)]
