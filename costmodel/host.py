"""The CPU's share: launch gaps on the GPU, and layers that the host cannot launch fast enough."""

from __future__ import annotations

import numpy as np

from costmodel.architecture import LayerKind
from costmodel.memory.profile import is_low_precision
from costmodel.run import Column, Run
from costmodel.stage import Array
from costmodel.tensor_parallel import collectives_per_layer

BACKWARD_KERNELS = 2
"""Kernels backward for each kernel forward."""
WIDE_TP = 8


def forward_gap(run: Run, kind: LayerKind) -> float:
    """Seconds the GPU idles between the kernels of one layer's forward: gap * kernels * graphs."""
    host = run.stack.host
    kernels = host.kernels_attention + (host.kernels_moe if kind == "moe" else host.kernels_ffn)
    return host.gap * kernels * host.gap_with_graphs[host.graphs]


def layer_gap(run: Run, kind: LayerKind) -> float:
    """The same forward and backward, and what else a layer waits for."""
    return (1 + BACKWARD_KERNELS) * forward_gap(run, kind) + run.stack.host.layer


def offload_time(run: Run, compute: Column) -> Column:
    """Seconds by which copying activations to the host slows a layer's kernels: c * share * t.

    The copies run beside compute and take HBM and PCIe bandwidth (Yuan et al. 2024, Megatron-Kwai).
    """
    return run.stack.host.offload * run.offload * compute


def host_time(run: Run, kind: LayerKind) -> Array:
    """CPU seconds to launch one layer and micro-batch, forward and backward.

    (attention + FFN or MoE with its local experts + collectives) * factors; nothing when CUDA graphs
    cover the whole iteration.
    """
    host = run.stack.host
    if host.graphs == "full":
        return np.zeros_like(np.asarray(run.tp, dtype=float))
    attention = host.attention * (host.latent_attention if run.architecture.mla else 1.0)
    if host.graphs == "attention_router":
        attention = attention * host.attention_graph
    block = _expert_block(run) if kind == "moe" else host.ffn
    launches = host.tp_collective * collectives_per_layer(run, kind) * np.greater(run.tp, 1)
    wide = host.wide_tp * np.greater_equal(run.tp, WIDE_TP)
    return (attention + block + launches + wide) * _factors(run, kind)


def _expert_block(run: Run) -> Column:
    """CPU seconds of router, dispatch and the rank's experts."""
    host, moe = run.stack.host, run.architecture.moe
    experts = moe.experts / run.ep if moe else 0.0
    router = host.moe * (1.0 if host.graphs == "none" else host.router_graph)
    exchange = host.alltoall if run.stack.expert_parallel.dispatcher == "alltoall" else 0.0
    return router + host.local_expert * experts + exchange


def _factors(run: Run, kind: LayerKind) -> float:
    host, experts = run.stack.host, run.stack.expert_parallel
    factor = host.low_precision if is_low_precision(run.precision) else 1.0
    if kind == "moe":
        factor *= host.expert_overlap if experts.overlap else 1.0
        factor *= host.dropped_tokens if experts.dropped_tokens else 1.0
    return factor


def joined(run: Run, gpu: Column, host: Column) -> Array:
    """Seconds of a layer that both the GPU and the host work on: (gpu^p + host^p)^(1/p)."""
    p = run.stack.host.p_norm
    longer = np.maximum(gpu, host)
    return longer * (1.0 + (np.minimum(gpu, host) / longer) ** p) ** (1.0 / p)
