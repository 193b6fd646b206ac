"""Activations kept for the backward pass: bytes a layer and micro-batch on one GPU."""

from __future__ import annotations

import numpy as np

from costmodel.architecture import LayerKind
from costmodel.closed_form.activations import full_recompute_bytes
from costmodel.memory.attention import attention_bytes, statistics
from costmodel.memory.elements import BF16, split_tokens
from costmodel.memory.ffn import dense_bytes, moe_bytes, routed_tokens
from costmodel.memory.profile import is_low_precision
from costmodel.memory.shape import per_layer
from costmodel.norms import fused_into_ffn, norms_before, separate_norms
from costmodel.parameters import mtp_kind
from costmodel.run import Column, Run
from costmodel.stage import Array, PerLayer


def kept_bytes(run: Run) -> PerLayer:
    """Bytes that one micro-batch in flight keeps, layer by layer, without full recompute.

    residual + norm outputs + attention + FFN or experts. On the last stage the final norm, the
    head's input and the MTP modules come on top, on the first the dropout mask of the embedding.
    Source: Korthikanti et al. 2022, section 4; FlashAttention-2 for the attention core.
    """
    a = run.architecture
    layers = {kind: layer_bytes(run, kind) for kind in a.kinds}
    head = 2 * BF16 * a.hidden * split_tokens(run)
    joint = (2 * BF16 * 2 * a.hidden) * split_tokens(run)
    last = head + a.mtp_layers * (layers[mtp_kind(a)] + joint + head)
    mask = a.hidden * split_tokens(run) if run.stack.memory.dropout else 0.0
    return per_layer(list(layers.values()), mask, last)


def checkpoint_bytes(run: Run) -> Array:
    """Bytes that one micro-batch in flight keeps of a fully recomputed layer: its input.

    2*b*S*d/(cp*tp), not split over tp where the stack does not shard checkpoints: (..., kinds).
    """
    tokens = split_tokens(run) if run.stack.memory.checkpoint_sharded else run.tokens
    inputs = full_recompute_bytes(tokens, run.architecture.hidden)
    return per_layer([inputs for _ in run.architecture.kinds], 0.0, 0.0).kinds


def stage_output_bytes(run: Run) -> Column:
    """Output of a virtual stage for one micro-batch in flight, where the stack keeps it: 2d a token."""
    return BF16 * run.architecture.hidden * split_tokens(run) if run.stack.memory.stage_output_kept else 0.0


def layer_bytes(run: Run, kind: LayerKind) -> Column:
    """Bytes one layer keeps for one micro-batch.

    Dense, BF16, gated, flash: b*S/cp * (8d + 4d_q + 4d_kv + 6d_ff + 4h)/tp with sequence parallelism.
    """
    shared = residual_bytes(run) + norm_output_bytes(run, kind) + attention_bytes(run) + _extra(run)
    kept = shared + (dense_bytes(run) if kind == "dense" else moe_bytes(run))
    return np.minimum(kept, per_op_bytes(run, kind)) if "per_op" in run.recompute_modules else kept


def per_op_bytes(run: Run, kind: LayerKind) -> Column:
    """Per-operator selective checkpointing: layer input, attention core, every other GEMM's output.

    (2d + 2d) + 2*d_v + 4h + 2*(d_q + d_kv + d_ff) a token: of q, k, v, projection, gate, up and down the
    second, fourth and sixth are computed again. Routed experts are computed again as a whole, but what
    their all-to-alls return stays: k*(2d + 2d) with ep > 1. Source: torchtitan, `activation_checkpoint`
    ("op"); its issue 1789 has 76 GiB at ep 1 with twice the tokens of 73.3 GiB at ep 8.
    """
    a, moe = run.architecture, run.architecture.moe
    ends = 2 * BF16 * a.hidden * split_tokens(run)
    core = (BF16 * (a.v_width + a.q_width + a.kv_width) + statistics(run)) * run.tokens / run.tp
    if kind == "dense" or moe is None:
        return ends + core + BF16 * a.ffn * run.tokens / run.tp
    shared = BF16 * moe.shared_expert_ffn * run.tokens / run.tp
    exchanged = np.where(np.asarray(run.ep) > 1, 2 * BF16 * a.hidden, 0) * routed_tokens(run)
    return ends + core + shared + exchanged


def residual_bytes(run: Run) -> Column:
    """Inputs of the norms, i.e. layer input and mid residual: norms*2d a token; dropout masks 2d.

    Sequence parallelism splits them. Source: Korthikanti et al. 2022, section 4.2.2. A stack may do without
    those of norms in front of GEMMs (`norm_inputs`), or rebuild all of them.
    """
    a, p = run.architecture, run.stack.memory
    masks, kept = 2 * a.hidden if p.dropout else 0, a.norms_per_layer
    if "layernorm" in run.recompute_modules:
        kept = 0 if p.residuals_rebuilt else kept
    elif not p.norm_inputs:
        kept -= norms_before(run)
    return (BF16 * kept * a.hidden + masks) * split_tokens(run)


def norm_output_bytes(run: Run, kind: LayerKind) -> Column:
    """GEMM inputs behind the norms before attention and FFN: 2d each, d in FP8.

    A router reads its input in BF16, so a MoE layer's second one is not kept in FP8; the difference
    (d a token) is left out. Recompute of `layernorm` drops those of `separate_norms`, recompute of `mlp` one
    that is fused into the FFN.
    """
    a, p, again = run.architecture, run.stack.memory, run.recompute_modules
    kept = norms_before(run) - separate_norms(run, kind) * ("layernorm" in again)
    kept -= fused_into_ffn(run, kind) and "mlp" in again
    if not kept:
        return 0.0
    low = is_low_precision(run.precision)
    element = min(p.fp8_input_bytes, p.norm_output_bytes) if low else p.norm_output_bytes
    tokens = run.tokens if p.gathered_inputs else split_tokens(run)
    return kept * element * a.hidden * tokens


def _extra(run: Run) -> Column:
    """Bytes of the profile that no tensor explains."""
    p, d = run.stack.memory, run.architecture.hidden
    unsplit = np.where(np.asarray(run.tp) > 1, p.extra_bytes_tp, 0.0)
    return d * run.tokens * (p.extra_bytes_sharded / run.tp + unsplit)
