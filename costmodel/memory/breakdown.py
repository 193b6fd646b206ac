"""Where the memory of the fullest GPU goes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from costmodel.memory.figures import reported_bytes
from costmodel.memory.profile import Figure
from costmodel.memory.shape import scaled
from costmodel.memory.states import states
from costmodel.run import Run
from costmodel.stage import (
    Array,
    PerLayer,
    StageRates,
    StageSplit,
    allocated_memory,
    stage_memory,
    stage_sum,
)


@dataclass(frozen=True, slots=True)
class PeakMemory:
    """Bytes on the fullest pipeline rank; the parts sum to `total`."""

    weights: Array
    gradients: Array
    optimizer: Array
    activations: Array
    """Kept for the backward pass."""
    buffers: Array
    """The working set of a backward layer, rebuilt if recomputed, or the loss, whichever is larger."""
    overhead: Array
    """Fragmentation, context and communicators."""
    total: Array
    rank: Array
    """Which pipeline rank it is."""


def by_category(run: Run, rates: StageRates, split: StageSplit) -> dict[str, Array]:
    """`stage_memory` of every rank, split by what the bytes are for: (..., ranks) each."""
    peaks, parts = stage_memory(rates, split), states(run)
    categories = {
        "weights": stage_sum(parts.weights, split),
        "gradients": stage_sum(parts.gradients, split),
        "optimizer": stage_sum(parts.optimizer, split),
        "activations": allocated_memory(_without_transients(_without_states(rates)), split),
        "buffers": allocated_memory(_without_kept(_without_states(rates)), split),
    }
    return categories | {"overhead": peaks - sum(categories.values()), "total": peaks}


def peak_by_category(run: Run, rates: StageRates, split: StageSplit) -> PeakMemory:
    """`by_category` of the fullest rank."""
    parts = by_category(run, rates, split)
    peaks = parts["total"]
    rank = peaks.argmax(axis=-1)

    def fullest(by_rank: Array) -> Array:
        return np.take_along_axis(np.broadcast_to(by_rank, peaks.shape), rank[..., None], axis=-1)[..., 0]

    return PeakMemory(**{name: fullest(part) for name, part in parts.items()}, rank=rank)


def as_reported(run: Run, memory: PeakMemory, figure: Figure) -> PeakMemory:
    """The same peak as a tool shows it: what is not allocated bytes becomes that tool's overhead."""
    allocated = memory.total - memory.overhead
    total = reported_bytes(run, allocated, figure)
    return replace(memory, overhead=total - allocated, total=total)


def _without_states(rates: StageRates) -> StageRates:
    return replace(rates, states=_nothing(rates.states))


def _without_transients(rates: StageRates) -> StageRates:
    nothing = np.zeros_like(rates.working)
    return replace(rates, working=nothing, loss=nothing, rebuilt=nothing)


def _without_kept(rates: StageRates) -> StageRates:
    return replace(rates, kept=_nothing(rates.kept), checkpoint=np.zeros_like(rates.checkpoint))


def _nothing(quantity: PerLayer) -> PerLayer:
    return scaled(quantity, 0.0)
