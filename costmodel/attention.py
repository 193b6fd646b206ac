"""Time of the attention core: flash kernels from their curve, or unfused batched GEMMs and softmax."""

from __future__ import annotations

import numpy as np

from costmodel.elementwise import memory_rate
from costmodel.flops import layer_span
from costmodel.kernels import gemm_rate, gemm_time
from costmodel.run import Column, Run
from costmodel.stage import Array
from hardware.accelerator import AttentionCurve

BACKWARD_FLOPS = 2.5
"""Flash backward over forward FLOPs: five products for two, as scores are rebuilt."""
QUERY_BLOCK = 128
"""Query rows of one thread block in the curve's saturation term."""
ALIGNED_HEAD = 8
"""Tensor cores want head sizes that are multiples of this."""


def attention_curve(run: Run) -> tuple[int, AttentionCurve]:
    """The curve of the nearest head size (the larger of two equally near), and that size."""
    curves = run.gpu.curves.attention
    head = run.architecture.mla.v_dim if run.architecture.mla else run.architecture.head_dim
    size = min(curves, key=lambda known: (abs(known - head), -known))
    return size, curves[size]


def visible_tokens(run: Run) -> Column:
    """Keys an average query attends to, averaged over layers (`costmodel.flops.layer_span`, causal)."""
    return layer_span(run.architecture, run.seq_len)


def flash_flops(run: Run) -> Column:
    """FLOPs a rank executes forward in one layer, tile overhead included.

    F = 2*b*(h/tp)*(d_qk + d_v)*S*(visible + l0*cp)/cp: with ring or all-gather context parallelism
    every shorter block pays the diagonal's whole tiles again.
    """
    arch = run.architecture
    _, curve = attention_curve(run)
    reach = visible_tokens(run) + curve.l0 * run.cp
    return 2.0 * run.micro_batch * (arch.q_width + arch.v_width) / run.tp * run.seq_len * reach / run.cp


def attention_time(run: Run) -> tuple[Array, Array]:
    """Seconds of one layer's attention core, forward and backward."""
    return _unfused(run) if run.stack.attention.kernel == "unfused" else _flash(run)


def _flash(run: Run) -> tuple[Array, Array]:
    """Flash kernels: t = t0 + F*(1 + q*SM/(b*h*ceil(S/128)))/(eff*peak*sustained); backward 2.5 F."""
    stack, gpu = run.stack.attention, run.gpu
    size, curve = attention_curve(run)
    rate = curve.eff * gpu.peak_flops["bf16"]
    if size < max(gpu.curves.attention):
        rate = rate * stack.small_head
    blocks = run.micro_batch * (run.architecture.heads / run.tp) * np.ceil(run.seq_len / run.cp / QUERY_BLOCK)
    work = flash_flops(run) * (1 + curve.block_saturation * gpu.sm_count / blocks)
    work = work * np.where(np.greater(run.cp, 1), stack.context_parallel, 1.0)
    forward = rate * gpu.sustained.attention_forward * stack.forward.of(gpu.generation)
    backward = rate * gpu.sustained.attention_backward * stack.backward.of(gpu.generation)
    return curve.t0 + work / forward, curve.t0 + BACKWARD_FLOPS * work / backward


def _unfused(run: Run) -> tuple[Array, Array]:
    """Scores in memory: QK^T and PV as batched GEMMs over whole S x S, softmax and dropout between.

    forward = gemm(S, S, d_qk) + gemm(S, d_v, S) + softmax bytes; backward twice the GEMMs.
    """
    arch, stack, length = run.architecture, run.stack.attention, run.seq_len
    rate = gemm_rate(run, "bf16")
    batch = run.micro_batch * arch.heads / run.tp
    rows = length / run.cp
    key, value = arch.q_width // arch.heads, arch.v_width // arch.heads
    products = gemm_time(rate, rows, length, key, batch) + gemm_time(rate, rows, value, length, batch)
    if key % ALIGNED_HEAD:
        products = products * run.stack.gemm.misaligned
    scores = stack.softmax_factor * batch * rows * length / memory_rate(run)
    return products + stack.softmax_forward * scores, 2 * products + stack.softmax_backward * scores
