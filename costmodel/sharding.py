"""Data-parallel traffic: gradient reduction and weight gathers over the ranks that share weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costmodel.collectives import replica_bandwidth
from costmodel.memory.profile import is_low_precision
from costmodel.memory.shape import add, scaled
from costmodel.memory.states import LocalParameters
from costmodel.run import Column, Run
from costmodel.stage import Array, PerLayer

SHARDED_GRADIENTS = 2
"""The ZeRO stage from which gradients are sharded."""
ZERO3_GATHERS = 2
"""Weight gathers a micro-batch under ZeRO-3: forward and backward."""


def parameter_bytes(run: Run) -> float:
    """Bytes a parameter when weights are gathered; FP8 and FP4 recipes may gather quantised weights."""
    stack = run.stack.data_parallel
    return stack.low_precision_parameter_bytes if is_low_precision(run.precision) else stack.parameter_bytes


def seconds_per_byte(run: Run, ranks: Column, stride: Column) -> Array:
    """Ring time of a reduce-scatter or all-gather for each byte of the full buffer: (n-1)/n / B."""
    stack = run.stack.data_parallel
    rate = replica_bandwidth(run, ranks, stride, stack.nvlink_efficiency, nic_share(run, stride))
    return (1.0 - 1.0 / np.asarray(ranks, dtype=float)) / rate


def nic_share(run: Run, stride: Column) -> Column:
    """Share of a node's NICs that a ring of every `stride`-th rank reaches.

    Less where a node holds several groups of several members (`shared_nics`): one group, or one member
    of each group beside its own NIC, share them evenly.
    """
    stack = run.stack.data_parallel
    if stack.shared_nics == 1.0:  # most stacks; saves passes over memory
        return stack.nic_efficiency
    several = np.greater(stride, 1) & np.less(stride, run.fabric.domain)
    return stack.nic_efficiency * np.where(several, stack.shared_nics, 1.0)


def one_pass(local: LocalParameters, dense: Array, experts: Array) -> PerLayer:
    """Seconds for every local parameter from the seconds for a dense one and for one of a routed expert."""
    return add(scaled(add(local.layers, local.vocabulary), dense), scaled(local.experts, experts))


def whole_pass(run: Run, local: LocalParameters) -> PerLayer:
    """Seconds to move one byte of every local parameter once over all ranks that hold it.

    Dense parameters are shared by dp*cp ranks, every tp-th of the world; routed experts by their
    replicas, every (ep*etp)-th.
    """
    dense = seconds_per_byte(run, run.weight_ranks, run.tp)
    return one_pass(local, dense, seconds_per_byte(run, run.expert_dp, run.ep * run.etp))


def shard_pass(run: Run, local: LocalParameters) -> PerLayer:
    """The same over the ranks that share the states: fewer with hybrid sharding."""
    dense = seconds_per_byte(run, run.state_shards, run.tp)
    return one_pass(local, dense, seconds_per_byte(run, run.expert_shards, run.ep * run.etp))


def replica_pass(run: Run, local: LocalParameters) -> PerLayer:
    """Hybrid sharding: one byte of each parameter of a rank's shard over the replicas of that shard."""
    dense, experts = run.state_shards, run.expert_shards
    return one_pass(
        local,
        seconds_per_byte(run, run.weight_ranks / dense, run.tp * dense) / dense,
        seconds_per_byte(run, run.expert_dp / experts, run.ep * run.etp * experts) / experts,
    )


@dataclass(frozen=True, slots=True)
class DataParallelTraffic:
    """Seconds of collectives before overlap."""

    reduce: PerLayer
    """A step: gradient reduce-scatter, or the all-reduce of ZeRO-0."""
    gather: PerLayer
    """A step: weight all-gather of ZeRO-1 and 2."""
    micro_batch: PerLayer
    """A micro-batch: ZeRO-2 reductions, ZeRO-3 gathers and reduction."""
    round: PerLayer | None = None
    """A round of pp micro-batches: ZeRO-2 reductions of an interleaved pipeline (`reduces_by_round`)."""


def data_parallel_traffic(run: Run, local: LocalParameters) -> DataParallelTraffic:
    """Traffic by ZeRO stage, with g and w bytes a parameter of gradients and weights.

    ZeRO-0: 2g a step (all-reduce); 1: g + w a step; 2: g a micro-batch, w a step;
    3: 2w + g a micro-batch. Source: Rajbhandari et al. 2020 (ZeRO), section 7. Hybrid sharding keeps all
    this among the z ranks that share states, and all-reduces the gradients of each shard over its replicas:
    2g/z a step, or a micro-batch where it reduces them that often and the stack does not wait. A stack that
    all-reduces under ZeRO-1 does so over all ranks. Where ZeRO-2 reduces by rounds (`Run.in_rounds`) it moves
    g a round of pp micro-batches; with one chunk a rank the whole step is one round, as with ZeRO-1.
    """
    stack, zero, rounds = run.stack.data_parallel, np.asarray(run.zero), run.in_rounds
    gradient, weight = stack.gradient_bytes, parameter_bytes(run)
    moved = whole_pass(run, local)
    partial = np.less(run.shard_ranks, run.weight_ranks)
    hybrid = np.any(partial)
    whole = (zero == 0) | ((zero == 1) & stack.all_reduce)
    several = rounds & np.greater(run.vpp, 1)
    sharded = np.where(((zero == 1) & ~whole) | (rounds & ~several), gradient, 0.0)
    each = np.where((zero == SHARDED_GRADIENTS) & ~rounds, stack.zero2_reduces * gradient, 0.0)
    each = np.where(zero > SHARDED_GRADIENTS, ZERO3_GATHERS * weight + gradient, each)
    gather = np.where((zero == 1) | (zero == SHARDED_GRADIENTS), weight, 0.0)
    shards = shard_pass(run, local) if hybrid else moved
    by_round = scaled(shards, np.where(several, gradient, 0.0)) if several.any() else None
    if not hybrid:
        reduce = scaled(moved, np.where(whole, 2 * gradient, sharded))
        return DataParallelTraffic(reduce, scaled(moved, gather), scaled(moved, each), by_round)
    again = scaled(replica_pass(run, local), 2 * gradient * (partial & ~whole))
    reduce = add(scaled(moved, np.where(whole, 2 * gradient, 0.0)), scaled(shards, sharded))
    often = (zero >= SHARDED_GRADIENTS) & ~rounds & stack.replicas_each_micro_batch
    return DataParallelTraffic(
        add(reduce, scaled(again, ~often * 1.0)),
        scaled(shards, gather),
        add(scaled(shards, each), scaled(again, often * 1.0)),
        by_round,
    )


def exposed_micro_batch(run: Run, traffic: DataParallelTraffic, compute: PerLayer) -> PerLayer:
    """Seconds a micro-batch of ZeRO-2 and 3 traffic that compute does not hide.

    max(T - window*compute, floor*T), layer by layer. What is reduced by rounds shows in each of them as
    ZeRO-1's one reduction does at the end of the step (`step.data_parallel_exposed`): m/pp rounds a step,
    1/pp of one a micro-batch.
    """
    stack = run.stack.data_parallel
    shown = _shown(traffic.micro_batch, compute, stack.sharded_window, stack.sharded_floor)
    if traffic.round is None:
        return shown
    each = _shown(traffic.round, compute, stack.reduce_window, stack.exposed_floor)
    return add(shown, scaled(each, 1 / np.asarray(run.pp)))


def _shown(moved: PerLayer, busy: PerLayer, window: float, floor: float) -> PerLayer:
    """max(T - window*busy, floor*T), layer by layer."""
    pairs = ((moved.kinds, busy.kinds), (moved.first, busy.first), (moved.last, busy.last))
    return PerLayer(*(np.maximum(t - window * work, floor * t) for t, work in pairs))


def latency(run: Run) -> Array:
    """Seconds a step that starting the group's collectives costs: alpha*log2(dp*cp) + beta*z.

    beta, for each of the z ranks that share states, only where updated weights are broadcast rank by
    rank instead of gathered at once.
    """
    stack = run.stack.data_parallel
    start = stack.latency * np.log2(np.maximum(run.weight_ranks, 1))
    if not stack.broadcast:
        return start
    return start + stack.broadcast * np.where(np.greater_equal(run.zero, 1), run.state_shards - 1, 0)
