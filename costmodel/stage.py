"""What a pipeline stage costs, per layer it holds: the contract between physics and search.

Time and memory of a stage are linear in the layers of each kind that it holds and recomputes.
The physics modules fill `StageRates` once per candidate; a plain split, CP-SAT and the validator
all put stages together from the same rates, so they cannot disagree about a formula.

Shapes: `rows` candidates (or nothing, for one run), `kinds` = `architecture.kinds`, `ranks` =
pipeline ranks that are looked at: all of them for one run, the extreme ones for many candidates.
Bytes are per GPU of the stage, seconds per micro-batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True, slots=True)
class PerLayer:
    """A quantity of each layer kind, and of what the first and the last stage hold besides layers."""

    kinds: Array
    """(..., kinds)"""
    first: Array
    """(...,) input embedding, on the first stage."""
    last: Array
    """(...,) final norm, LM head, loss and MTP modules, on the last stage."""


@dataclass(frozen=True, slots=True)
class StageRates:
    """Costs per layer of one or many candidates."""

    # seconds a micro-batch, forward and backward
    work: PerLayer
    """Everything a micro-batch costs a stage except full recompute and pipeline transfers."""
    recompute: Array
    """(..., kinds) what full recompute of one layer adds."""
    p2p_steady: Array
    """(...,) exposed stage-to-stage transfer for each micro-batch of the steady state."""
    p2p_fill: Array
    """(...,) transfer time of one hop forward and one hop backward while the pipeline fills and drains."""

    # seconds a step
    reduce: PerLayer
    """Gradient reduce-scatter (or all-reduce) over the data-parallel ranks, before overlap."""
    gather: PerLayer
    """Parameter all-gather over the data-parallel ranks, before overlap."""
    optimizer: PerLayer
    """Reading and writing gradients, moments and weights."""
    fixed: Array
    """(...,) per step whatever the layers: logging, norms, launch."""
    scale: Array
    """(...,) multiplier for stragglers and jitter, >= 1."""

    # overlap of the data-parallel traffic (see step.data_parallel_exposed)
    reduce_window: float
    """Share of one micro-batch of the stage behind which the gradient reduction can hide."""
    gather_window: float
    exposed_floor: float
    """Share of the traffic that always shows."""

    # bytes
    states: PerLayer
    """Weights, gradients and optimizer states."""
    kept: PerLayer
    """Activations kept for each micro-batch in flight when nothing is fully recomputed.
    `last` counts once: the last virtual stage has one micro-batch in flight."""
    checkpoint: Array
    """(..., kinds) the same for a fully recomputed layer (its input)."""
    working: Array
    """(...,) transient working set of a backward layer, on every stage."""
    loss: Array
    """(...,) transient logits and their gradient; the last stage needs max(working, loss)."""
    rebuilt: Array
    """(...,) one whole layer that the backward pass rebuilds, on stages that fully recompute any."""
    fixed_bytes: Array
    """(...,) context, communicators and other bytes that do not depend on layers."""
    overhead: float
    """Fragmentation: the peak is allocated * (1 + overhead) + fixed_bytes."""

    # offload, of described runs alone: no search decides it
    offloaded: float = 0.0
    """Share of the activations of layers that lies in host memory."""
    returned: Array | float = 0.0
    """(...,) share of one micro-batch of a rank's layers that was in host memory and is back on the GPU."""

    # schedule
    bubble: float = 1.0
    """Share of the fill and drain bubble that the schedule leaves: 1 for 1F1B, 0 for ZB-2p."""
    ends: float = 1.0
    """Ends of the pipeline at which micro-batches enter; 2: half of them at each, every rank holding the
    stages of both directions (`Run.copies`)."""
    hidden: Array | float = 0.0
    """(..., kinds) seconds a micro-batch of a layer that run behind the compute of another one, where the
    schedule pairs a forward with a backward pass: they show as long as there is no pair (`step.unpaired`)."""


@dataclass(frozen=True, slots=True)
class StageSplit:
    """How the layers lie on pipeline ranks; a rank sums over its virtual stages (chunks).

    All (..., ranks, kinds) unless said otherwise.
    """

    layers: Array
    recomputed: Array
    """Of these, layers that are fully recomputed."""
    in_flight: Array
    """Sum over chunks of micro-batches in flight x layers of the chunk that are not recomputed."""
    in_flight_recomputed: Array
    """The same of the recomputed layers."""
    first_in_flight: Array
    """(..., ranks) micro-batches in flight of the chunk with the embedding; 0 on ranks without it."""
    first: Array
    """(..., ranks) 1 on the rank that holds the embedding, else 0."""
    last: Array
    """(..., ranks) 1 on the rank that holds the head and loss, else 0."""
    total_layers: Array
    """(..., kinds) layers of the whole model: what all pipeline ranks hold together."""
    total_recomputed: Array
    """(..., kinds) recomputed layers of all pipeline ranks together."""


def over_kinds(counts: Array, each: Array) -> Array:
    """Sum over layer kinds of counts (..., ranks, kinds) x what each costs (..., kinds): (..., ranks).

    Kind by kind: numpy sums over a short last axis many times slower.
    """
    total = counts[..., 0] * each[..., 0, None]
    for kind in range(1, each.shape[-1]):
        total = total + counts[..., kind] * each[..., kind, None]
    return total


def stage_sum(rates: PerLayer, split: StageSplit) -> Array:
    """Sum of a per-layer quantity over what each rank holds: (..., ranks)."""
    layers = over_kinds(split.layers, rates.kinds)
    return layers + split.first * rates.first[..., None] + split.last * rates.last[..., None]


def stage_time(rates: StageRates, split: StageSplit) -> Array:
    """Seconds a micro-batch, forward and backward, on each rank: (..., ranks)."""
    return stage_sum(rates.work, split) + over_kinds(split.recomputed, rates.recompute)


def total_time(rates: StageRates, split: StageSplit) -> Array:
    """Seconds a micro-batch, forward and backward, of all pipeline ranks together: (...,)."""
    layers = (split.total_layers * rates.work.kinds + split.total_recomputed * rates.recompute).sum(axis=-1)
    return layers + rates.ends * (rates.work.first + rates.work.last)


def stage_memory(rates: StageRates, split: StageSplit) -> Array:
    """Peak bytes of each rank, fragmentation and context included: (..., ranks)."""
    return allocated_memory(rates, split) * (1 + rates.overhead) + rates.fixed_bytes[..., None]


def allocated_memory(rates: StageRates, split: StageSplit) -> Array:
    """Peak bytes in tensors of each rank: (..., ranks).

    allocated = states + kept activations of the micro-batches in flight (of which offload takes a
    share to the host, but for what is back at a time) + the larger of the backward working set, with
    the layer that full recompute rebuilds, and (on the last stage) the loss buffers.
    """
    kept = over_kinds(split.in_flight, rates.kept.kinds)
    kept = kept + over_kinds(split.in_flight_recomputed, rates.checkpoint)
    if rates.offloaded:
        kept = (1 - rates.offloaded) * kept + _returned(rates, split)
    kept = (
        kept + split.first_in_flight * rates.kept.first[..., None] + split.last * rates.kept.last[..., None]
    )
    rebuilds = (split.recomputed > 0).any(axis=-1)
    backward = rates.working[..., None] + rebuilds * rates.rebuilt[..., None]
    transient = np.maximum(backward, split.last * rates.loss[..., None])
    return stage_sum(rates.states, split) + kept + transient


def _returned(rates: StageRates, split: StageSplit) -> Array:
    """Offloaded activations that are back on the GPU: their share of one micro-batch of a rank's layers."""
    rank = over_kinds(split.layers - split.recomputed, rates.kept.kinds)
    rank = rank + over_kinds(split.recomputed, rates.checkpoint)
    return np.asarray(rates.returned)[..., None] * rank
