"""Fills `StageRates` from a run: the one place where the effects meet."""

from __future__ import annotations

from typing import TypedDict

import numpy as np

from costmodel.layer import LayerCost, hidden_dispatch, layer_cost
from costmodel.memory.layer_memory import LayerMemory, layer_memory, on_stages
from costmodel.memory.offload import returned_share
from costmodel.memory.overhead import fixed_bytes
from costmodel.memory.shape import add
from costmodel.memory.states import LocalParameters, local_parameters, state_bytes
from costmodel.optimizer import optimizer_time
from costmodel.run import Column, Run
from costmodel.scale import straggler_factor
from costmodel.sharding import data_parallel_traffic, exposed_micro_batch, latency
from costmodel.stage import Array, PerLayer, StageRates
from costmodel.transfer import hop_time, steady_transfer


def stage_rates(
    run: Run, layer: LayerCost | None = None, memory: bool = True, layer_bytes: LayerMemory | None = None
) -> StageRates:
    """Every rate of one run or of columns of them.

    `layer` and `layer_bytes` are `layer_cost(run)` and `layer_memory(run)` when the caller has gathered
    them already. Without `memory` the byte fields are zero.
    """
    cost = layer_cost(run) if layer is None else layer
    local = local_parameters(run)
    traffic = data_parallel_traffic(run, local)
    work = PerLayer(cost.total, cost.first, cost.last)
    if np.any(np.greater_equal(run.zero, 2)):  # else nothing moves in a micro-batch; saves passes over memory
        work = add(work, exposed_micro_batch(run, traffic, work))
    hop = hop_time(run)
    stack, shape = run.stack, _shape(run)
    fixed = stack.optimizer.step + stack.optimizer.micro_batch * run.num_microbatches + latency(run)
    return StageRates(
        work=_wide(work, shape),
        recompute=_kinds(cost.forward, shape),
        p2p_steady=_full(steady_transfer(run, hop), shape),
        p2p_fill=_full(2 * hop, shape),
        reduce=_wide(traffic.reduce, shape),
        gather=_wide(traffic.gather, shape),
        optimizer=_wide(optimizer_time(run, local), shape),
        fixed=_full(fixed, shape),
        scale=_full(straggler_factor(run), shape),
        reduce_window=stack.data_parallel.reduce_window,
        gather_window=stack.data_parallel.gather_window,
        exposed_floor=stack.data_parallel.exposed_floor,
        **(_memory(run, local, layer_bytes, shape) if memory else _no_memory(run, shape)),
        overhead=stack.memory.fragmentation,
        offloaded=run.offload,
        returned=returned_share(run),
        bubble=stack.pipeline.bubble,
        ends=float(run.copies),
        hidden=0.0 if stack.pipeline.placing == "loop" else _kinds(hidden_dispatch(run, cost), shape),
    )


class _Bytes(TypedDict):
    """The byte fields of `StageRates`."""

    states: PerLayer
    kept: PerLayer
    checkpoint: Array
    working: Array
    loss: Array
    rebuilt: Array
    fixed_bytes: Array


def _memory(run: Run, local: LocalParameters, of: LayerMemory | None, shape: tuple[int, ...]) -> _Bytes:
    layer = on_stages(run, layer_memory(run) if of is None else of)
    return _Bytes(
        states=_wide(state_bytes(run, local), shape),
        kept=_wide(layer.kept, shape),
        checkpoint=_kinds(layer.checkpoint, shape),
        working=_full(layer.working, shape),
        loss=_full(layer.loss, shape),
        rebuilt=_full(layer.rebuilt, shape),
        fixed_bytes=_full(fixed_bytes(run), shape),
    )


def _no_memory(run: Run, shape: tuple[int, ...]) -> _Bytes:
    zero, each = np.zeros(shape), np.zeros((*shape, len(run.architecture.kinds)))
    nothing = PerLayer(each, zero, zero)
    return _Bytes(
        states=nothing, kept=nothing, checkpoint=each, working=zero, loss=zero, rebuilt=zero, fixed_bytes=zero
    )


def _shape(run: Run) -> tuple[int, ...]:
    columns = (run.tp, run.cp, run.pp, run.vpp, run.dp, run.ep, run.etp)
    more = (run.micro_batch, run.num_microbatches, run.zero, run.shard_ranks)
    return np.broadcast_shapes(*(np.shape(column) for column in (*columns, *more)))


def _full(value: Column, shape: tuple[int, ...]) -> Array:
    return np.broadcast_to(np.asarray(value, dtype=float), shape)


def _kinds(value: Array, shape: tuple[int, ...]) -> Array:
    return np.broadcast_to(value, (*shape, value.shape[-1]))


def _wide(quantity: PerLayer, shape: tuple[int, ...]) -> PerLayer:
    return PerLayer(_kinds(quantity.kinds, shape), _full(quantity.first, shape), _full(quantity.last, shape))
