"""Fills `StageRates` from a run: the one place where the effects meet."""

from __future__ import annotations

import numpy as np

from costmodel.layer import LayerCost, layer_cost
from costmodel.memory.activations import checkpoint_bytes, kept_bytes
from costmodel.memory.overhead import fixed_bytes
from costmodel.memory.shape import add
from costmodel.memory.states import local_parameters, state_bytes
from costmodel.memory.transients import loss_bytes, working_bytes
from costmodel.optimizer import optimizer_time
from costmodel.run import Column, Run
from costmodel.scale import straggler_factor
from costmodel.sharding import data_parallel_traffic, exposed_micro_batch, latency
from costmodel.stage import Array, PerLayer, StageRates
from costmodel.transfer import hop_time, steady_transfer


def stage_rates(run: Run, layer: LayerCost | None = None, memory: bool = True) -> StageRates:
    """Every rate of one run or of columns of them.

    `layer` is `layer_cost(run)` when the caller has gathered it already. Without `memory` the byte
    fields are zero.
    """
    cost = layer_cost(run) if layer is None else layer
    local = local_parameters(run)
    traffic = data_parallel_traffic(run, local)
    work = PerLayer(cost.total, cost.first, cost.last)
    if np.any(np.greater_equal(run.zero, 2)):  # else nothing moves in a micro-batch; saves passes over memory
        work = add(work, exposed_micro_batch(run, traffic.micro_batch, work))
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
        states=_wide(state_bytes(run), shape) if memory else _nothing(run, shape),
        kept=_wide(kept_bytes(run), shape) if memory else _nothing(run, shape),
        checkpoint=_kinds(checkpoint_bytes(run), shape) if memory else _nothing(run, shape).kinds,
        working=_full(working_bytes(run), shape) if memory else np.zeros(shape),
        loss=_full(loss_bytes(run), shape) if memory else np.zeros(shape),
        fixed_bytes=_full(fixed_bytes(run), shape) if memory else np.zeros(shape),
        overhead=stack.memory.fragmentation,
    )


def _shape(run: Run) -> tuple[int, ...]:
    columns = (run.tp, run.cp, run.pp, run.vpp, run.dp, run.ep, run.etp)
    more = (run.micro_batch, run.num_microbatches, run.zero)
    return np.broadcast_shapes(*(np.shape(column) for column in (*columns, *more)))


def _full(value: Column, shape: tuple[int, ...]) -> Array:
    return np.broadcast_to(np.asarray(value, dtype=float), shape)


def _kinds(value: Array, shape: tuple[int, ...]) -> Array:
    return np.broadcast_to(value, (*shape, value.shape[-1]))


def _wide(quantity: PerLayer, shape: tuple[int, ...]) -> PerLayer:
    return PerLayer(_kinds(quantity.kinds, shape), _full(quantity.first, shape), _full(quantity.last, shape))


def _nothing(run: Run, shape: tuple[int, ...]) -> PerLayer:
    zeros = np.zeros(shape)
    return PerLayer(np.zeros((*shape, len(run.architecture.kinds))), zeros, zeros)
