"""Time of one transformer layer, of the embedding and of the head, a micro-batch.

Depends on tp, cp, ep, etp and micro_batch only (besides what a run fixes), so a search evaluates it
once for each distinct combination and gathers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from costmodel.architecture import LayerKind
from costmodel.attention import attention_time
from costmodel.block import Block, attention_block, dense_block, expert_block
from costmodel.context_parallel import exposed_context_parallel
from costmodel.head import first_stage_time, head_time, prediction_module_time
from costmodel.host import forward_gap, host_time, joined, layer_gap, offload_time
from costmodel.kernels import gemm_rate, linear_forward
from costmodel.moe import dispatch_time
from costmodel.passes import Passes
from costmodel.recompute import Repeated
from costmodel.run import Column, Run
from costmodel.stage import Array
from costmodel.tensor_parallel import exposed_tensor_parallel


@dataclass(frozen=True, slots=True)
class LayerCost:
    """Seconds a micro-batch, forward and backward; (..., kinds) unless said otherwise."""

    gemm: Array
    """Linear layers and expert GEMMs."""
    attention: Array
    elementwise: Array
    """Norms, activations, RoPE, quantisers, permutation, gradient accumulation."""
    host: Array
    """Gaps between kernels, and what a layer takes longer because the host launches it."""
    tp: Array
    """Exposed tensor-parallel communication."""
    cp: Array
    ep: Array
    selective: Array
    """Repeating the modules of `run.recompute_modules`."""
    forward: Array
    """The forward pass again, communication included: what full recompute adds. Not part of `total`."""
    first: Array
    """(...,) embedding."""
    last: Array
    """(...,) LM head, loss and multi-token-prediction modules."""

    @property
    def total(self) -> Array:
        """(..., kinds) all of a layer without full recompute."""
        parts = (self.gemm, self.attention, self.elementwise, self.host, self.tp, self.cp, self.ep)
        return sum(parts, self.selective)


@dataclass(frozen=True, slots=True)
class _Kind:
    """The same of one layer kind, (...,)."""

    gemm: Column
    attention: Column
    elementwise: Column
    host: Column
    tp: Column
    cp: Column
    ep: Column
    selective: Column
    forward: Column


def layer_cost(run: Run) -> LayerCost:
    """Seconds of a layer of each kind and of the ends of the model, a micro-batch."""
    return layer_costs(run, [run.recompute_modules])[0]


def layer_costs(run: Run, sets: Sequence[frozenset[str]]) -> list[LayerCost]:
    """The same for each of several sets of modules that are recomputed; what they share is computed once."""
    shape = np.broadcast_shapes(*(np.shape(c) for c in (run.tp, run.cp, run.ep, run.etp, run.micro_batch)))
    first, head = _full(first_stage_time(run), shape), head_time(run)
    found: list[LayerCost] = []
    for kinds in zip(*(_kind_costs(run, kind, sets) for kind in run.architecture.kinds), strict=True):
        stacked = {f.name: _stack([getattr(k, f.name) for k in kinds], shape) for f in fields(_Kind)}
        cost, last = LayerCost(**stacked, first=first, last=first), head
        if run.architecture.mtp_layers:
            last = last + prediction_module_time(run, cost.total[..., -1])
        found.append(replace(cost, last=_full(last, shape)))
    return found


def _stack(values: Sequence[Column], shape: tuple[int, ...]) -> Array:
    return np.stack([_full(value, shape) for value in values], axis=-1)


def _full(value: Column, shape: tuple[int, ...]) -> Array:
    return np.broadcast_to(np.asarray(value, dtype=float), shape)


def _kind_costs(run: Run, kind: LayerKind, sets: Sequence[frozenset[str]]) -> list[_Kind]:
    """One kind of layer: blocks, attention core, exposed communication, host; with each set of modules."""
    attention, ffn = attention_block(run), expert_block(run) if kind == "moe" else dense_block(run)
    core = Passes(*attention_time(run))
    tp, cp = exposed_tensor_parallel(run, kind), exposed_context_parallel(run)
    gemm, elementwise = attention.gemm.both + ffn.gemm.both, _elementwise(attention, ffn)
    dispatch = _dispatch(run, kind)
    compute = gemm + core.both + elementwise
    ep = _exposed_dispatch(run, 4 * dispatch, compute)
    gap, gap_forward = layer_gap(run, kind) + offload_time(run, compute), forward_gap(run, kind)
    shown = ep / np.maximum(4 * dispatch, np.finfo(float).tiny)
    again = attention.forward + ffn.forward + core.forward + tp.forward + cp.forward + 2 * dispatch * shown
    again = again + gap_forward - _skipped(run, kind)
    shared = {"gemm": gemm, "attention": core.both, "elementwise": elementwise}
    shared |= {"tp": tp.both, "cp": cp.both, "ep": ep}
    bare, cpu = compute + tp.both + cp.both + ep + gap, host_time(run, kind)
    found: list[_Kind] = []
    repeated = Repeated(run, kind, attention, ffn, core, dispatch * shown)
    for modules in sets:
        selective = repeated.seconds(modules)
        busy = bare + selective
        whole = joined(run, busy, cpu)
        redone = joined(run, busy + again, cpu * run.stack.host.full_recompute)
        found.append(_Kind(**shared, host=whole - busy + gap, selective=selective, forward=redone - whole))
    return found


def _elementwise(attention: Block, ffn: Block) -> Column:
    return attention.elementwise.both + ffn.elementwise.both + attention.accumulate + ffn.accumulate


def _dispatch(run: Run, kind: LayerKind) -> Column:
    """Seconds of one of the four all-to-alls (dispatch and combine, each way)."""
    moe = run.architecture.moe
    return dispatch_time(run, moe) if kind == "moe" and moe else 0.0


def hidden_dispatch(run: Run, cost: LayerCost) -> Array:
    """All-to-all seconds of each kind of layer that `cost.ep` does not show: (..., kinds)."""
    every = [4 * _dispatch(run, kind) - cost.ep[..., i] for i, kind in enumerate(run.architecture.kinds)]
    return np.stack(every, axis=-1)


def _exposed_dispatch(run: Run, exchange: Column, compute: Column) -> Column:
    """All-to-all seconds that show: all, or max(0, t - compute) + x*min(t, compute) with overlap."""
    stack = run.stack.expert_parallel
    if not stack.overlap:
        return exchange
    share = stack.overlap_exposed.of(run.gpu.generation)
    return np.maximum(exchange - compute, 0.0) + share * np.minimum(exchange, compute)


def _skipped(run: Run, kind: LayerKind) -> Column:
    """The last linear, when the recomputed forward stops before it."""
    if not run.stack.recompute.stops_early or kind == "moe":
        return 0.0
    return linear_forward(gemm_rate(run), run.tokens, run.architecture.ffn / run.tp, run.architecture.hidden)
