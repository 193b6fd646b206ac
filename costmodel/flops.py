"""Floating-point operations per token, a multiply and an add counted as two.

Model FLOPs are what training needs whatever the software does: forward and backward, causal
attention halved, LM head in, no recompute. Embedding look-ups, norms and activations are left out
(below 0.1 %). Symbols as in `costmodel.architecture`; S sequence length.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from costmodel.architecture import Architecture, LayerKind
from costmodel.parameters import attention_matrices, mlp_matrices, mtp_kind

if TYPE_CHECKING:
    from costmodel.run import Column

FORWARD_AND_BACKWARD = 3
"""Backward computes two products (input and weight gradient) for each one of the forward pass."""


@dataclass(frozen=True, slots=True)
class LayerFlops:
    """Forward FLOPs of one token in one layer, by part."""

    projections: int
    """Attention's linear layers."""
    core: Column
    """Scores and weighted values."""
    ffn: int
    """Dense FFN, or the shared experts of a MoE layer."""
    router: int
    experts: int
    """The k routed experts of a token."""

    @property
    def linear(self) -> int:
        """Everything but the core: 2 FLOPs for each weight a token meets."""
        return self.projections + self.ffn + self.router + self.experts

    @property
    def total(self) -> Column:
        return self.linear + self.core


def matmul_flops(m: Column, k: Column, n: Column) -> Column:
    """(m,k) x (k,n): 2*m*k*n."""
    return 2 * m * k * n


def layer_flops(
    architecture: Architecture, kind: LayerKind, seq_len: Column, *, causal: bool = True
) -> LayerFlops:
    """Forward FLOPs of one token in one layer: 2 a weight it meets, and the attention core."""
    a = architecture
    projections = 2 * attention_matrices(a)
    core = core_flops(a, seq_len, causal=causal)
    if kind == "dense":
        return LayerFlops(projections, core, 2 * mlp_matrices(a, a.ffn), 0, 0)
    if a.moe is None:
        raise ValueError(f"{a.name} has no MoE layers")
    shared = 2 * mlp_matrices(a, a.moe.shared_expert_ffn)
    gate = 2 * a.hidden if a.moe.shared_expert_gate else 0
    experts = 2 * a.moe.top_k * mlp_matrices(a, a.moe.moe_ffn)
    return LayerFlops(projections, core, shared + gate, 2 * a.hidden * a.moe.experts, experts)


def core_flops(architecture: Architecture, seq_len: Column, *, causal: bool = True) -> Column:
    """Attention core of one token in an average layer, forward: 2*span*(d_q + d_v).

    span as in `layer_span`; 4*S*d_q in full without MLA. GQA and MQA do not change it.
    """
    a = architecture
    return 2 * layer_span(a, seq_len, causal=causal) * (a.q_width + a.v_width)


def layer_span(architecture: Architecture, seq_len: Column, *, causal: bool = True) -> Column:
    """Mean number of keys a query meets, averaged over layers: those with a window see less.

    (1 - f)*span(S) + f*span(S, window), f the share of layers with the window (`attention_span`).
    """
    a = architecture
    span = attention_span(seq_len, causal=causal)
    if not (a.sliding_window and a.sliding_layers):
        return span
    local = attention_span(seq_len, window=a.sliding_window, chunked=a.chunked_window, causal=causal)
    share = a.sliding_layers / a.layers
    return share * local + (1 - share) * span


def attention_span(
    seq_len: Column, *, window: int | None = None, chunked: bool = False, causal: bool = True
) -> Column:
    """Mean number of keys a query meets.

    Full: S, at most the window. Causal: S/2, or w - w^2/(2S) with a window w < S (the first w rows
    see w/2 on average, the others w). Chunked: S = q*w + r tokens in q whole chunks and a rest,
    (q*w^2 + r^2)/S, half of it causal.
    """
    visible = seq_len if window is None else np.minimum(seq_len, window)
    if chunked:
        rest = seq_len % visible
        block = ((seq_len - rest) * visible + rest * rest) / seq_len
        return block / 2 if causal else block
    if not causal:
        return visible
    return visible - visible * (visible / seq_len) / 2


def head_flops(architecture: Architecture) -> int:
    """LM head of one token, forward: 2*d*V, tied or not."""
    return 2 * architecture.hidden * architecture.vocab


def mtp_flops(architecture: Architecture, seq_len: Column, *, causal: bool = True) -> Column:
    """Multi-token-prediction modules of one token, forward.

    Each a layer, a 2d -> d projection (4*d^2) and a pass through the shared LM head. They are
    trained like the rest, so their work counts.
    """
    a = architecture
    if not a.mtp_layers:
        return 0
    layer = layer_flops(a, mtp_kind(a), seq_len, causal=causal).total
    return a.mtp_layers * (layer + 4 * a.hidden * a.hidden + head_flops(a))


def forward_flops_per_token(architecture: Architecture, seq_len: Column, *, causal: bool = True) -> Column:
    """All layers, LM head and multi-token prediction of one token, forward."""
    a = architecture
    layers = sum(
        a.pattern().count(kind) * layer_flops(a, kind, seq_len, causal=causal).total for kind in a.kinds
    )
    return layers + head_flops(a) + mtp_flops(a, seq_len, causal=causal)


def model_flops_per_token(architecture: Architecture, seq_len: Column) -> Column:
    """Forward and backward of one token, 3x forward: the numerator of MFU.

    Causal attention halved, LM head and multi-token prediction in, no recompute. The convention of
    recent Megatron-Core and Megatron-Bridge.
    """
    return FORWARD_AND_BACKWARD * forward_flops_per_token(architecture, seq_len)


def recomputed_flops_per_token(
    architecture: Architecture,
    seq_len: Column,
    modules: Collection[str],
    recomputed_layers: Mapping[LayerKind, Column],
    *,
    per_op_share: Column = 0.0,
) -> Column:
    """Forward FLOPs of one token that are executed a second time for the backward pass.

    `recomputed_layers` of each kind run again whole; of the others only `modules` do. `moe` covers
    `shared_experts`; `per_op` (torchtitan) repeats `per_op_share` of a layer. With model FLOPs this
    is the numerator of HFU (Korthikanti et al., arXiv:2205.05198, section 5).
    """
    a, total = architecture, 0.0
    single = set(modules) - {"shared_experts"} if "moe" in modules else set(modules)
    for kind in a.kinds:
        layer, whole = layer_flops(a, kind, seq_len), recomputed_layers.get(kind, 0)
        part = sum(module_flops(layer, a, module) for module in single)
        part = part + per_op_share * layer.total * ("per_op" in modules)
        total = total + whole * layer.total + (a.pattern().count(kind) - whole) * part
    return total


def module_flops(layer: LayerFlops, architecture: Architecture, module: str) -> Column:
    """Forward FLOPs of one token in a module of a layer, by Megatron-Core's module names.

    Norms and activation functions have no matrix products, and `per_op` is no module: 0.
    """
    if module == "core_attn":
        return layer.core
    if module == "mla_up_proj":
        return up_projection_flops(architecture)
    if module == "mlp":
        return 0 if layer.experts else layer.ffn
    if module == "moe":
        return layer.ffn + layer.router + layer.experts if layer.experts else 0
    if module == "shared_experts":
        return layer.ffn if layer.experts else 0
    return 0


def up_projection_flops(architecture: Architecture) -> int:
    """MLA's projections from the latents to heads, forward: 2*(r_q*h*(d_n + d_r) + r*h*(d_n + d_v))."""
    a = architecture
    if a.mla is None:
        return 0
    query = (a.mla.q_lora or 0) * a.q_width
    return 2 * (query + a.mla.kv_lora * a.heads * (a.mla.qk_nope + a.mla.v_dim))


def recompute_factor(share: Column) -> Column:
    """Executed over model FLOPs when a share f of the forward pass runs twice: (3 + f)/3; 4/3 in full."""
    return (FORWARD_AND_BACKWARD + share) / FORWARD_AND_BACKWARD


def flops_6nd(parameters: Column, tokens: Column) -> Column:
    """Training FLOPs of a whole run without attention's core: 6*P*D, active parameters for a MoE.

    Kaplan et al. (arXiv:2001.08361), section 2.1.
    """
    return 2 * FORWARD_AND_BACKWARD * parameters * tokens


def forward_flops_2n(parameters: Column, layers: Column, seq_len: Column, q_width: Column) -> Column:
    """Forward FLOPs of one token from a parameter count: 2*P + 4*L*S*d_q, attention not halved."""
    return 2 * parameters + 4 * layers * seq_len * q_width


def core_share(parameters: Column, layers: Column, seq_len: Column, q_width: Column) -> Column:
    """Attention core's share of those: 4*L*S*d_q/(2*P + 4*L*S*d_q); selective recompute repeats it."""
    total = forward_flops_2n(parameters, layers, seq_len, q_width)
    return (total - 2 * parameters) / total
