"""Activations kept for the backward pass, bytes of one layer and micro-batch in BF16.

Symbols: T = b*S tokens of the micro-batch, a heads, d hidden width, t tensor-parallel size. GPT
forms: Korthikanti et al. (arXiv:2205.05198), section 4, with a 4d FFN and dropout. Context
parallelism: T -> T/c.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from costmodel.run import Column


def gpt_layer_bytes(
    tokens: Column, seq_len: Column, hidden: Column, heads: Column, tp: Column = 1, *, scores: bool = True
) -> Column:
    """GPT layer with tensor but without sequence parallelism: T*d*(10 + 24/t + 5*a*S/(d*t)).

    `scores` false drops the S x S term: selective recompute or FlashAttention.
    """
    return tokens * hidden * (10 + 24 / tp) + gpt_score_bytes(tokens, seq_len, heads, tp) * scores


def gpt_layer_bytes_sequence_parallel(
    tokens: Column, seq_len: Column, hidden: Column, heads: Column, tp: Column, *, scores: bool = True
) -> Column:
    """GPT layer with tensor and sequence parallelism: T*d/t*(34 + 5*a*S/d)."""
    return 34 * tokens * hidden / tp + gpt_score_bytes(tokens, seq_len, heads, tp) * scores


def gpt_score_bytes(tokens: Column, seq_len: Column, heads: Column, tp: Column = 1) -> Column:
    """Scores, softmax, its dropout mask (1 byte) of a GPT layer: 5*a*T*S/t."""
    return 5 * heads * tokens * seq_len / tp


def score_bytes(tokens: Column, seq_len: Column, heads: Column, matrices: Column = 1) -> Column:
    """S x S matrices stored without FlashAttention: 2*a*T*S each."""
    return 2 * matrices * heads * tokens * seq_len


def llama_layer_bytes(
    tokens: Column,
    hidden: Column,
    ffn: Column,
    heads: Column,
    q_width: Column,
    kv_width: Column,
    tp: Column = 1,
    *,
    sequence_parallel: bool = True,
) -> Column:
    """RMSNorm, SwiGLU, GQA layer with FlashAttention and no dropout, nothing recomputed.

    T*(8d + 4*d_q + 4*d_kv + 6*d_ff + 4a)/t: two norm and two linear inputs (8d), queries and
    attention output (4*d_q), keys and values (4*d_kv), gate, up and product (6*d_ff), log-sum-exp
    (4a). Without sequence parallelism the 8d are not divided.
    """
    whole = 8 * hidden / np.where(sequence_parallel, tp, 1)
    split = 4 * q_width + 4 * kv_width + 6 * ffn + 4 * heads
    return tokens * (whole + split / tp)


def moe_ffn_bytes(
    tokens: Column, hidden: Column, expert_ffn: Column, copies: Column, experts: Column
) -> Column:
    """What stands for `6*d_ff` of the layer in a MoE layer: T*((k + E_s)*(6*d_e + 4d) + 4E).

    `copies` = k + E_s, the experts each token is sent to; routing probabilities are 4-byte.
    """
    return tokens * (copies * (6 * expert_ffn + 4 * hidden) + 4 * experts)


def full_recompute_bytes(tokens: Column, hidden: Column, tp: Column = 1) -> Column:
    """Only the layer's input is kept: 2*T*d, divided by t with sequence parallelism."""
    return 2 * tokens * hidden / tp


def logits_bytes(tokens: Column, vocab: Column, tp: Column = 1) -> Column:
    """Logits in BF16 and their FP32 copy on the last stage: (2 + 4)*T*V/t."""
    return 6 * tokens * vocab / tp


def microbatches_in_flight(pp: Column, stage: Column, num_microbatches: Column) -> Column:
    """1F1B: stage i (from 0) keeps min(m, p - i) micro-batches; GPipe would keep m."""
    return np.minimum(num_microbatches, pp - stage)


def interleaving_factor(pp: Column, vpp: Column) -> Column:
    """First stage's activations with v virtual stages over plain 1F1B: 1 + (p-1)/(p*v)."""
    return 1 + (pp - 1) / (pp * vpp)
