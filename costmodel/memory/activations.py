"""Activations kept for the backward pass: bytes a layer and micro-batch on one GPU."""

from __future__ import annotations

import numpy as np

from costmodel.architecture import LayerKind
from costmodel.closed_form.activations import full_recompute_bytes
from costmodel.memory.profile import is_low_precision
from costmodel.memory.shape import per_layer
from costmodel.parameters import mtp_kind
from costmodel.run import Column, Run
from costmodel.stage import Array, PerLayer

BF16 = 2
FP32 = 4

RECOMPUTE_MODULES = frozenset(
    {"core_attn", "layernorm", "mlp", "moe", "moe_act", "shared_experts", "mla_up_proj"}
)
"""Modules that "selective" recompute can name, Megatron-Core's words."""


def kept_bytes(run: Run) -> PerLayer:
    """Bytes that one micro-batch in flight keeps, layer by layer, without full recompute.

    residual + norm outputs + attention + FFN or experts. On the last stage the final norm, the
    head's input and the MTP modules come on top, on the first the dropout mask of the embedding.
    Source: Korthikanti et al. 2022, section 4; FlashAttention-2 for the attention core.
    """
    a = run.architecture
    layers = {kind: layer_bytes(run, kind) for kind in a.kinds}
    head = 2 * BF16 * a.hidden * _split_tokens(run)
    joint = (2 * BF16 * 2 * a.hidden) * _split_tokens(run)
    last = head + a.mtp_layers * (layers[mtp_kind(a)] + joint + head)
    mask = a.hidden * _split_tokens(run) if run.stack.memory.dropout else 0.0
    return per_layer(list(layers.values()), mask, last)


def checkpoint_bytes(run: Run) -> Array:
    """Bytes that one micro-batch in flight keeps of a fully recomputed layer: its input.

    2*b*S*d/(cp*tp), not split over tp where the stack does not shard checkpoints: (..., kinds).
    """
    tokens = _split_tokens(run) if run.stack.memory.checkpoint_sharded else run.tokens
    inputs = full_recompute_bytes(tokens, run.architecture.hidden) + _stage_output(run)
    return per_layer([inputs for _ in run.architecture.kinds], 0.0, 0.0).kinds


def layer_bytes(run: Run, kind: LayerKind) -> Column:
    """Bytes one layer keeps for one micro-batch.

    Dense, BF16, gated, flash: b*S/cp * (8d + 4d_q + 4d_kv + 6d_ff + 4h)/tp with sequence parallelism.
    """
    shared = residual_bytes(run) + norm_output_bytes(run) + attention_bytes(run) + _extra(run)
    if kind == "dense":
        return shared + (0.0 if "mlp" in run.recompute_modules else mlp_bytes(run, run.architecture.ffn))
    return shared + moe_bytes(run)


def residual_bytes(run: Run) -> Column:
    """Inputs of the norms, i.e. layer input and mid residual: norms*2d a token; dropout masks 2d.

    Sequence parallelism splits them. Source: Korthikanti et al. 2022, section 4.2.2.
    """
    a, p = run.architecture, run.stack.memory
    masks = 2 * a.hidden if p.dropout else 0
    return (BF16 * a.norms_per_layer * a.hidden + masks) * _split_tokens(run) + _stage_output(run)


def norm_output_bytes(run: Run) -> Column:
    """GEMM inputs behind the norms before attention and FFN: 2d each, d in FP8.

    A router reads its input in BF16, so a MoE layer's second one is not kept in FP8; the difference
    (d a token) is left out. Recompute of `layernorm` drops them.
    """
    a, p = run.architecture, run.stack.memory
    if "layernorm" in run.recompute_modules:
        return 0.0
    element = p.fp8_input_bytes if is_low_precision(run.precision) else p.norm_output_bytes
    tokens = run.tokens if p.gathered_inputs else _split_tokens(run)
    return min(a.norms_per_layer, 2) * element * a.hidden * tokens


def attention_bytes(run: Run) -> Column:
    """Queries, keys, values, attention output and log-sum-exp: 2d_q + 4d_kv + 2d_q + 4h a token, /tp.

    Without flash attention the S scores of each head and token instead of the log-sum-exp. The
    output is the projection's GEMM input: recompute of `core_attn` cannot drop it, except that in
    FP8 only the quantised copy stays. Source: Dao 2023 (FlashAttention-2), section 3.1.
    """
    a, p = run.architecture, run.stack.memory
    low, again = is_low_precision(run.precision), "core_attn" in run.recompute_modules
    output = (0 if low and again else BF16 * a.v_width) + (p.fp8_input_bytes * a.v_width if low else 0)
    statistics = (
        FP32 * a.heads if run.stack.attention.kernel == "flash" else p.score_bytes * a.heads * run.seq_len
    )
    core = output + (0 if again else statistics)
    return core * run.tokens / run.tp + (latent_bytes(run) if a.mla else _query_key_value(run))


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
    latents = BF16 * (2 * (mla.q_lora or 0) + 2 * mla.kv_lora + mla.qk_rope) * _split_tokens(run)
    if "mla_up_proj" in run.recompute_modules:
        return latents
    heads = 2 * a.q_width + a.heads * (mla.qk_nope + mla.v_dim)
    return latents + BF16 * heads * run.tokens / run.tp


def mlp_bytes(run: Run, width: int) -> Column:
    """FFN of a width: gate, up and product (gated), or input and output of the activation: 6 or 4 a unit.

    The product is a GEMM input, one byte in FP8. Source: Korthikanti et al. 2022; Shazeer 2020 (GLU).
    """
    return (_before_product(run) + _input(run)) * width * run.tokens / run.tp


def moe_bytes(run: Run) -> Column:
    """Router, permuted tokens, routed and shared experts of a MoE layer.

    A token: 2d*k*copies + k*(4d_e + 2d_e) + 6E + shared experts as an FFN. Experts split over etp see
    the tokens of all etp ranks. Recompute of `moe`, `shared_experts` or `moe_act` drops all, the shared
    experts or the routed experts' products. Source: Megatron-Core MoE (token dispatcher, router).
    """
    moe, p = run.architecture.moe, run.stack.memory
    if moe is None or "moe" in run.recompute_modules:
        return 0.0
    product = 0 if "moe_act" in run.recompute_modules else _input(run)
    tokens = routed_tokens(run)
    permuted = _input(run) * run.architecture.hidden * p.moe_copies * tokens
    experts = (_before_product(run) + product) * moe.moe_ffn * tokens / run.etp
    router = (BF16 + FP32) * moe.experts * _split_tokens(run)
    shared = 0.0 if "shared_experts" in run.recompute_modules else mlp_bytes(run, moe.shared_expert_ffn)
    return permuted + experts + router + shared


def routed_tokens(run: Run) -> Column:
    """Token copies that the experts of the fullest rank receive: b*S/cp * k*etp/tp * imbalance."""
    moe = run.architecture.moe
    top_k = moe.top_k if moe else 0
    return _split_tokens(run) * top_k * run.etp * run.stack.memory.expert_imbalance


def _split_tokens(run: Run) -> Column:
    """Tokens of tensors that sequence parallelism splits."""
    return run.tokens / run.tp if run.stack.tensor_parallel.sequence_parallel else run.tokens


def _input(run: Run) -> float:
    """Bytes per element of a kept GEMM input."""
    return run.stack.memory.fp8_input_bytes if is_low_precision(run.precision) else BF16


def _before_product(run: Run) -> float:
    """Bytes per unit of width that the activation function keeps."""
    gated = run.architecture.gated_mlp
    eager = BF16 if gated and run.stack.memory.unfused_glu else 0
    return (2 * BF16 if gated else BF16) + eager


def _query_key_value(run: Run) -> Column:
    """Queries, keys and values, and what query/key norms keep before them."""
    a = run.architecture
    normed = a.q_width + a.kv_width if a.qk_norm else 0
    return BF16 * (a.q_width + 2 * a.kv_width + normed) * run.tokens / run.tp


def _extra(run: Run) -> Column:
    """Bytes of the profile that no tensor explains."""
    p, d = run.stack.memory, run.architecture.hidden
    unsplit = np.where(np.asarray(run.tp) > 1, p.extra_bytes_tp, 0.0)
    return d * run.tokens * (p.extra_bytes_sharded / run.tp + unsplit)


def _stage_output(run: Run) -> Column:
    """A stage's kept output, spread over its layers: 2d a token / (layers / (pp*vpp))."""
    a = run.architecture
    if not run.stack.memory.stage_output_kept:
        return 0.0
    return BF16 * a.hidden * _split_tokens(run) * run.pp * run.vpp / a.layers
