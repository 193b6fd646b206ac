"""Every rank within its memory: the constraints of an assignment."""

from __future__ import annotations

from typing import Any, SupportsFloat

from numpy.typing import NDArray

from costmodel.pipeline import micro_batches_in_flight
from costmodel.stage import StageRates
from planner.stages.model import StageModel

Array = NDArray[Any]
BYTES = 1 << 10
"""Unit of memory in the model; every coefficient is rounded up, so that an assignment that fits here fits."""


def add_memory(stages: StageModel, spare: Any = 0) -> None:
    """Every rank within the limit, with so many units to spare."""
    problem = stages.problem
    flying = micro_batches_in_flight(problem.pp, problem.vpp, problem.num_microbatches)
    for rank in range(problem.pp):
        add_rank_memory(stages, rank, problem.rates, problem.memory_limit, flying, spare)


def add_rank_memory(
    stages: StageModel, rank: int, rates: StageRates, limit: float, flying: Array, spare: Any = 0
) -> None:
    """A rank's states, kept activations and transients within `limit` bytes (stage.stage_memory).

    `flying` (pp, vpp) are the micro-batches that chunks keep in flight: one number for all stages of a slot.
    """
    problem, kinds = stages.problem, range(len(rates.work.kinds))
    first, last = rank == 0, rank == problem.pp - 1
    fixed = first * (rates.states.first + int(flying[0, 0]) * rates.kept.first)
    fixed = fixed + last * (rates.states.last + rates.kept.last)
    room = (limit - float(rates.fixed_bytes)) / (1 + rates.overhead) - float(fixed)

    def keep(f: int) -> list[int]:
        return [up(rates.states.kinds[k] + f * rates.kept.kinds[k]) for k in kinds]

    def save(f: int) -> list[int]:
        return [-up(f * (rates.checkpoint[k] - rates.kept.kinds[k])) for k in kinds]

    flights = {
        slot.in_flight: int(flying[rank, slot.stages[0] // problem.pp])
        for slot in stages.slots
        if slot.rank == rank
    }
    kept, saved = ({of: need(f) for of, f in flights.items()} for need in (keep, save))
    used = stages.of_rank(rank, kept, stages.held) - stages.of_rank(rank, saved, stages.redone)
    # A layer that is rebuilt lives with the backward pass's buffers, never with the loss's.
    rebuilt = up(rates.rebuilt) * stages.recomputes(rank)
    stages.model.add(used + up(rates.working) + rebuilt + spare <= int(room // BYTES))
    if last:
        stages.model.add(used + up(rates.loss) + spare <= int(room // BYTES))


def up(value: SupportsFloat) -> int:
    """Bytes in units of the model, rounded up."""
    return int(-(-float(value) // BYTES))
