"""Bytes a GPU sends one way: collectives, and what each kind of parallelism moves.

Symbols: N ranks, V bytes of the full buffer, T tokens of a micro-batch that a GPU (or its
tensor-parallel group) works on, d hidden width. Multiply by layers and micro-batches for a step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from costmodel.run import Column


def ring_bytes(buffer: Column, ranks: Column) -> Column:
    """All-gather, reduce-scatter or all-to-all of a buffer: (N-1)/N * V.

    `buffer` is the whole buffer: what each rank has after the all-gather, before the
    reduce-scatter, and in total for all peers (itself included) before the all-to-all.
    Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in MPICH" (2005).
    """
    return (1 - 1 / ranks) * buffer


def all_reduce_bytes(buffer: Column, ranks: Column) -> Column:
    """Ring all-reduce: reduce-scatter and all-gather, 2(N-1)/N * V."""
    return 2 * ring_bytes(buffer, ranks)


def tree_all_reduce_bytes(buffer: Column) -> Column:
    """Pipelined tree all-reduce: 2V up and down, whatever the number of ranks."""
    return 2 * buffer


def data_parallel_bytes(parameters: Column, dp: Column, gradient_bytes: Column = 2) -> Column:
    """Gradients all-reduced once a step: 2(n-1)/n * g*P_local."""
    return all_reduce_bytes(gradient_bytes * parameters, dp)


def zero1_bytes(
    parameters: Column, dp: Column, gradient_bytes: Column = 2, weight_bytes: Column = 2
) -> Column:
    """ZeRO 1 and 2: gradients reduce-scattered, weights gathered, once a step: (n-1)/n * (g + w)*P_local.

    The same bytes as plain data parallelism when gradients are as wide as weights.
    """
    return ring_bytes((gradient_bytes + weight_bytes) * parameters, dp)


def zero3_bytes(
    parameters: Column,
    dp: Column,
    num_microbatches: Column = 1,
    *,
    gathers: Column = 2,
    gradient_bytes: Column = 2,
    weight_bytes: Column = 2,
) -> Column:
    """Weights gathered for forward and again for backward of each micro-batch, gradients scattered once.

    (n-1)/n * (m*gathers*w + g)*P_local; 6P with one micro-batch. `gathers` is 1 where weights stay
    gathered between forward and backward. ZeRO (arXiv:1910.02054), section 7.2.
    """
    return ring_bytes((num_microbatches * gathers * weight_bytes + gradient_bytes) * parameters, dp)


def tensor_parallel_bytes(
    tokens: Column, hidden: Column, tp: Column, *, all_reduces: Column = 4, element_bytes: Column = 2
) -> Column:
    """One layer and micro-batch, forward and backward: 4 all-reduces of T*d elements, 16*T*d*(t-1)/t in BF16.

    Sequence parallelism moves the same bytes as all-gathers and reduce-scatters. Full recompute
    makes it 6 all-reduces. Megatron-LM (arXiv:1909.08053), section 3; arXiv:2205.05198, section 4.2.2.
    """
    return all_reduces * all_reduce_bytes(element_bytes * tokens * hidden, tp)


def pipeline_bytes(tokens: Column, hidden: Column, *, element_bytes: Column = 2) -> Column:
    """One stage boundary and micro-batch: activations forward, their gradient back, 2*(2*T*d) in BF16.

    With v virtual stages a rank has v boundaries; sequence parallelism divides it by tp.
    """
    return 2 * element_bytes * tokens * hidden


def expert_parallel_bytes(
    tokens: Column,
    hidden: Column,
    top_k: Column,
    ep: Column,
    *,
    exchanges: Column = 4,
    element_bytes: Column = 2,
) -> Column:
    """One MoE layer and micro-batch: dispatch and combine, forward and backward, 4*k*T*d*2*(e-1)/e in BF16.

    `tokens` are the GPU's own (divided by tp with sequence parallelism); every token goes to k
    experts. `exchanges` is 1 for one all-to-all, 2 for the forward pass.
    GShard (arXiv:2006.16668), section 3.
    """
    return exchanges * ring_bytes(element_bytes * top_k * tokens * hidden, ep)


def ring_attention_bytes(
    tokens: Column, kv_width: Column, cp: Column, *, element_bytes: Column = 2
) -> Column:
    """One layer's forward: each rank passes on keys and values of its T/c tokens c-1 times.

    (c-1) * 2*d_kv*(T/c) elements; about three times that with backward. `tokens` are the whole
    sequence's. Ring attention (arXiv:2310.01889).
    """
    return (cp - 1) * 2 * element_bytes * tokens / cp * kv_width


def ulysses_bytes(
    tokens: Column, q_width: Column, kv_width: Column, cp: Column, *, element_bytes: Column = 2
) -> Column:
    """One layer's forward: all-to-alls of Q, K, V and the output, (c-1)/c * (T/c)*(2*d_q + 2*d_kv) elements.

    DeepSpeed Ulysses (arXiv:2309.14509), section 3.
    """
    return ring_bytes(element_bytes * tokens / cp * (2 * q_width + 2 * kv_width), cp)


def optimizer_offload_bytes(parameters: Column, *, element_bytes: Column = 2) -> Column:
    """Optimizer on the CPU: gradients down and weights up over PCIe, once a step."""
    return 2 * element_bytes * parameters
