"""The time of a step in integer units: what an assignment is chosen by."""

from __future__ import annotations

from math import floor
from typing import Any, SupportsFloat

import numpy as np
from numpy.typing import NDArray

from costmodel.stage import PerLayer, StageRates
from planner.stages.model import StageModel
from planner.stages.problem import StageProblem

Array = NDArray[Any]
TIME_UNITS = 1 << 22
"""The slowest stage in integer units: rounding stays below 1e-5 of a step even with 100 layers a rank."""
BUBBLE_PARTS = 3
"""Shares of a bubble that a schedule leaves are whole thirds: 1F1B all, ZB-1p one, ZB-2p none."""


def integer(value: SupportsFloat, unit: float) -> int:
    """A quantity in whole units, rounded."""
    return round(float(value) / unit)


def add_step(stages: StageModel, unit: float, floor: float = 0.0) -> Any:
    """(m*v - x)*slowest + x*total + v*worst end of step; no micro-batch of the slowest rank is below `floor`.

    x is the share of the bubble that the schedule leaves. This is v*BUBBLE_PARTS times the step in integer
    units, less what no assignment changes.
    """
    problem, rates, model = stages.problem, stages.problem.rates, stages.model
    ranks, pieces = range(problem.pp), end_of_step_pieces(rates)
    busy = [linear(stages, rank, rates.work, rates.recompute, unit) for rank in ranks]
    slowest = model.new_int_var(0, TIME_UNITS << 8, "slowest")
    layers = problem.architecture.layers
    # Each integer rate is off by half a unit at most.
    model.add(slowest >= max(0, integer(floor, unit) - 2 * layers))
    end = model.new_int_var(-TIME_UNITS << 8, TIME_UNITS << 8, "end_of_step")
    model.add(end >= integer(_least_end(rates, layers, problem.pp), unit) - 2 * layers)
    for rank in ranks:
        model.add(slowest >= busy[rank])
        for piece, again in pieces:
            model.add(end >= linear(stages, rank, piece, again, unit))
    m, v = problem.num_microbatches, problem.vpp
    bubble = round(BUBBLE_PARTS * rates.bubble)
    return (BUBBLE_PARTS * m * v - bubble) * slowest + bubble * sum(busy) + BUBBLE_PARTS * v * end


def integer_step(problem: StageProblem, seconds: float, unit: float, room: int = 1) -> int:
    """The value of `add_step` at a step of so many seconds.

    With room for rounded rates: what takes that long is at most this, or with `room` = -1 at least this.
    """
    rates, m = problem.rates, problem.num_microbatches
    given = m * float(rates.p2p_steady) + (problem.pp - 1) * float(rates.p2p_fill) + float(rates.fixed)
    value = (seconds / float(rates.scale) - given) * problem.vpp * BUBBLE_PARTS / unit
    rounding = 2 * problem.architecture.layers * (m * problem.vpp + problem.pp) * BUBBLE_PARTS
    return int(min(max(value + room * rounding, -(1 << 50)), 1 << 50))


def keep_hfu(stages: StageModel, step: Any, unit: float) -> None:
    """Holds `add_step` to the longest step, where an HFU is required."""
    problem = stages.problem
    if problem.longer:
        longest = integer_step(problem, problem.longest, unit, -1 if problem.strict else 1)
        add_longest(stages, step, longest, problem.vpp * BUBBLE_PARTS / unit / float(problem.rates.scale))


def add_longest(stages: StageModel, step: Any, longest: int, per_second: float) -> None:
    """Where an HFU is required: step <= longest + longer * recomputed layers.

    In units of the step, of which a second is so many.
    """
    problem = stages.problem
    each = [floor(seconds * per_second) + (not problem.strict) for seconds in problem.longer]
    stages.model.add(
        step <= longest + sum(stages.of_rank(rank, each, stages.redone) for rank in range(problem.pp))
    )


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
