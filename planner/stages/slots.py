"""Slots: virtual stages of a rank that are interchangeable, and so one variable."""

from __future__ import annotations

from dataclasses import dataclass

from costmodel.architecture import Architecture
from costmodel.pipeline import level_chunks, micro_batches_in_flight
from planner.stages.problem import StagePlan, StageProblem


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
    held, first = sum(level.sizes[stage // problem.pp] for stage in slot.stages), level.at_first
    fewer = (0 in slot.stages) * first[-1] + (stages - 1 in slot.stages) * (level.short - first[0])
    return held - fewer, held


def most_of_a_stage(problem: StageProblem) -> int:
    """Most layers that a virtual stage holds."""
    return max(slot_range(problem, slot)[1] // len(slot.stages) for slot in slots_of(problem))


def ordered_stages(architecture: Architecture) -> int:
    """Leading stages that may hold another kind of layer than all later ones.

    Each holds a layer or more, but for the first one of an interleaved pipeline.
    """
    pattern = architecture.pattern()
    return next((i + 1 for i in range(len(pattern), 0, -1) if pattern[i - 1] != pattern[-1]), 0)


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
