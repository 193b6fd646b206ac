"""What attention keeps for the backward pass, bytes of one layer and micro-batch."""

from __future__ import annotations

from costmodel.memory.elements import BF16, FP32, split_tokens
from costmodel.memory.profile import is_low_precision
from costmodel.run import Column, Run


def attention_bytes(run: Run) -> Column:
    """Queries, keys, values, attention output and log-sum-exp: 2d_q + 4d_kv + 2d_q + 4h a token, /tp.

    Without flash attention the S scores of each head and token instead of the log-sum-exp. The
    output is the projection's GEMM input: recompute of `core_attn` cannot drop it, except that in
    FP8 only the quantised copy stays. Source: Dao 2023 (FlashAttention-2), section 3.1.
    """
    a, p = run.architecture, run.stack.memory
    low, again = is_low_precision(run.precision), "core_attn" in run.recompute_modules
    quantised = low and p.fp8_input_bytes < BF16
    output = (0 if quantised and again else BF16 * a.v_width) + quantised * p.fp8_input_bytes * a.v_width
    core = output + (0 if again else statistics(run))
    return core * run.tokens / run.tp + (latent_bytes(run) if a.mla else _query_key_value(run))


def statistics(run: Run) -> float:
    """Bytes a token that the softmax leaves: FP32 log-sum-exp of each head, or all its scores."""
    heads = run.architecture.heads
    fused = run.stack.attention.kernel == "flash"
    return FP32 * heads if fused else run.stack.memory.score_bytes * heads * run.seq_len


def latent_bytes(run: Run) -> Column:
    """Queries, keys and values of latent attention with the latents they come from.

    Latents before and after their norms, 2*(2*r_q + 2*r + d_r) a token, split like the residual;
    q, k and v by head, 2*(2*h*(d_n + d_r) + h*(d_n + d_v)), /tp: keys are concatenated into a copy,
    values stay a view of the up-projection. Recompute of `mla_up_proj` drops q, k and v.
    Source: DeepSeek-V2 (arXiv:2405.04434), section 2.1; Megatron-Core `MLASelfAttention`.
    """
    a, mla = run.architecture, run.architecture.mla
    if mla is None:
        raise ValueError(f"{a.name} has no latent attention")
    latents = BF16 * (2 * (mla.q_lora or 0) + 2 * mla.kv_lora + mla.qk_rope) * split_tokens(run)
    if "mla_up_proj" in run.recompute_modules:
        return latents
    heads = 2 * a.q_width + a.heads * (mla.qk_nope + mla.v_dim)
    return latents + BF16 * heads * run.tokens / run.tp


def _query_key_value(run: Run) -> Column:
    """Queries, keys and values, and what query/key norms keep before them."""
    a = run.architecture
    normed = a.q_width + a.kv_width if a.qk_norm else 0
    return BF16 * (a.q_width + 2 * a.kv_width + normed) * run.tokens / run.tp
