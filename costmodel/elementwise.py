"""Memory-bound kernels: norms, residuals, activations, RoPE, quantisers, loss, embedding."""

from __future__ import annotations

from costmodel.memory.profile import is_low_precision
from costmodel.run import Column, Run


def memory_rate(run: Run) -> float:
    """bytes/s that elementwise kernels reach: sustained share of HBM bandwidth."""
    return run.gpu.sustained.hbm * run.gpu.memory.bandwidth


def stream_time(run: Run, moved: Column) -> Column:
    """Seconds to move well-fused activation bytes: t = factor * bytes / (sustained * HBM)."""
    return run.stack.elementwise.factor * moved / memory_rate(run)


def token_shard(run: Run) -> Column:
    """Ranks over which norms and residuals are split: tp with sequence parallelism, else 1."""
    return run.tp if run.stack.tensor_parallel.sequence_parallel else 1


def norm_time(run: Run) -> tuple[Column, Column]:
    """Norms, residual adds and dropout of a layer, forward and backward: bytes ~ b*S/c * d / tp."""
    elements = run.tokens * run.architecture.hidden / token_shard(run)
    counts = run.stack.elementwise
    return stream_time(run, counts.norm_forward * elements), stream_time(run, counts.norm_backward * elements)


def rope_time(run: Run) -> tuple[Column, Column]:
    """Rotary embedding and layout of queries, keys and values, forward and backward.

    bytes ~ b*S/c * (d_q + 2*d_kv) / tp; MLA expands keys and values to every head: d_q + d_q + d_v.
    """
    arch, counts = run.architecture, run.stack.elementwise
    width = 2 * arch.q_width + arch.v_width if arch.mla else arch.q_width + 2 * arch.kv_width
    elements = run.tokens * width / run.tp
    return stream_time(run, counts.rope_forward * elements), stream_time(run, counts.rope_backward * elements)


def activation_time(run: Run, tokens: Column, width: Column) -> tuple[Column, Column]:
    """MLP activation over `tokens` x `width` elements, forward and backward."""
    counts = run.stack.elementwise
    forward, backward = counts.plain_forward, counts.plain_backward
    if run.architecture.gated_mlp:
        forward, backward = counts.gated_forward, counts.gated_backward
    elements = tokens * width
    return stream_time(run, forward * elements), stream_time(run, backward * elements)


def quantise_time(run: Run, elements: Column) -> Column:
    """Casting GEMM operands to FP8 or FP4: bytes an element, nothing in BF16."""
    if not is_low_precision(run.precision):
        return 0.0 * elements
    return run.stack.elementwise.quantise * elements / memory_rate(run)


def accumulate_time(run: Run, parameters: Column) -> Column:
    """Adding weight gradients to main gradients, each micro-batch: bytes a local parameter."""
    return run.stack.gemm.accumulate_bytes * parameters / memory_rate(run)


def expert_accumulate_time(run: Run, parameters: Column) -> Column:
    """The same for routed experts, whose accumulation older stacks do not fuse with the GEMM."""
    stack = run.stack.gemm
    each = stack.accumulate_bytes if stack.expert_accumulate_bytes is None else stack.expert_accumulate_bytes
    return each * parameters / memory_rate(run)


def loss_time(run: Run, vocab: Column) -> Column:
    """Cross entropy over b*S/c x V/tp logits, forward and backward."""
    return run.stack.head.loss_bytes * run.tokens * vocab / memory_rate(run)


def embedding_time(run: Run) -> Column:
    """Embedding look-up and scatter of its gradient, forward and backward: bytes ~ b*S/c * d."""
    return run.stack.head.embedding_bytes * run.tokens * run.architecture.hidden / memory_rate(run)
