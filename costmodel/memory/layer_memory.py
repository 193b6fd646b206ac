"""Activations and transients of one layer, of the embedding and of the head, a micro-batch.

`layer_memory` depends on tp, cp, ep, etp and micro_batch only (besides what a run fixes), so a search
evaluates it once for each distinct combination and gathers; `on_stages` adds what hangs on schedule
and ZeRO stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from costmodel.memory.activations import checkpoint_bytes, kept_bytes, stage_output_bytes
from costmodel.memory.transients import gathered_bytes, loss_bytes, rebuilt_bytes, working_bytes
from costmodel.run import Column, Run
from costmodel.stage import Array, PerLayer


@dataclass(frozen=True, slots=True)
class LayerMemory:
    """Bytes on one GPU; (...,) unless said otherwise."""

    kept: PerLayer
    """What one micro-batch in flight keeps without full recompute."""
    checkpoint: Array
    """(..., kinds) the same of a fully recomputed layer."""
    working: Array
    """Transient bytes of a backward layer."""
    loss: Array
    """Transient bytes of head and loss."""
    rebuilt: Array
    """The layer that full recompute rebuilds."""
    output: Array
    """Kept output of a virtual stage for a micro-batch in flight."""
    gathered: Array
    """Layers that are gathered at once under ZeRO-3, without their experts."""
    gathered_experts: Array
    gathered_head: Array


def layer_memory(run: Run) -> LayerMemory:
    """Bytes of a layer of each kind and of the ends of the model, a micro-batch."""
    gathered, gathered_experts, gathered_head = gathered_bytes(run)
    kept = _kept(run)
    return LayerMemory(
        kept=kept,
        checkpoint=_full(run, checkpoint_bytes(run), len(run.architecture.kinds)),
        working=_full(run, working_bytes(run)) + _paired(run, kept),
        loss=_full(run, loss_bytes(run)),
        rebuilt=_full(run, rebuilt_bytes(run)),
        output=_full(run, stage_output_bytes(run)),
        gathered=_full(run, gathered),
        gathered_experts=_full(run, gathered_experts),
        gathered_head=_full(run, gathered_head),
    )


def layer_memories(run: Run, sets: Sequence[frozenset[str]]) -> list[LayerMemory]:
    """The same for each of several sets of modules that are recomputed in every layer, and no layer whole."""
    usual = layer_memory(run)
    found: list[LayerMemory] = []
    working = usual.working - _paired(run, usual.kept)
    for modules in sets:
        kept = _kept(replace(run, recompute_modules=modules))
        found.append(replace(usual, kept=kept, working=working + _paired(run, kept)))
    return found


def _kept(run: Run) -> PerLayer:
    kept, kinds = kept_bytes(run), len(run.architecture.kinds)
    return PerLayer(_full(run, kept.kinds, kinds), _full(run, kept.first), _full(run, kept.last))


def _paired(run: Run, kept: PerLayer) -> Column:
    """What a layer keeps, the largest kind's, where the experts' traffic is hidden: (...,).

    A forward then runs layer by layer beside the backward of another micro-batch, and is one layer ahead of
    what that frees. Source: Megatron-Core 0.16, `combined_1f1b.py` and `model_chunk_schedule_plan.py`.
    """
    if not (run.architecture.moe and run.stack.expert_parallel.overlap):
        return 0.0
    return np.where(np.greater(run.ep, 1), kept.kinds.max(axis=-1), 0.0)


def _full(run: Run, value: Column, *more: int) -> Array:
    """A value for every row of what a layer's bytes depend on."""
    shape = np.broadcast_shapes(*(np.shape(c) for c in (run.tp, run.cp, run.ep, run.etp, run.micro_batch)))
    return np.broadcast_to(np.asarray(value, dtype=float), (*shape, *more))


def on_stages(run: Run, of: LayerMemory) -> LayerMemory:
    """The same with what depends on schedule and ZeRO stage in its place.

    A virtual stage's kept output is spread over its L/(p*v) layers. Under ZeRO-3 gathered weights join
    the transients, as far as several ranks share them.
    """
    if run.stack.memory.stage_output_kept:
        output = of.output * run.pp * run.vpp / run.architecture.layers
        kept = replace(of.kept, kinds=of.kept.kinds + output[..., None])
        of = replace(of, kept=kept, checkpoint=of.checkpoint + output[..., None])
    whole = np.greater_equal(run.zero, 3) & np.greater(run.state_shards, 1)
    if not whole.any():  # saves passes over memory
        return of
    gathered = whole * of.gathered
    if run.architecture.moe:
        gathered = gathered + (whole & np.greater(run.expert_shards, 1)) * of.gathered_experts
    loss = of.loss + gathered + whole * of.gathered_head
    return replace(of, working=of.working + gathered, loss=loss)
