"""Parameter counts, exact to the last weight: Python integers from an `Architecture`.

Symbols as in `costmodel.architecture`: d hidden, d_ff FFN width, V vocabulary, E experts, k top-k.
Checked against the parameters of the published model classes (Hugging Face transformers).
"""

from __future__ import annotations

from dataclasses import dataclass

from costmodel.architecture import Architecture, LatentAttention, LayerKind


@dataclass(frozen=True, slots=True)
class LayerParameters:
    """Parameters of one transformer layer by part; the parts do not overlap."""

    attention: int
    """Projections with their biases, MLA's latent norms, query/key norms and sinks."""
    ffn: int
    """The FFN of a dense layer; the shared experts with their gate of a MoE layer."""
    router: int
    experts: int
    """All routed experts."""
    norms: int

    @property
    def total(self) -> int:
        return self.attention + self.ffn + self.router + self.experts + self.norms

    def active(self, architecture: Architecture) -> int:
        """Parameters a token meets: the routed experts count k/E, everything else in full."""
        if architecture.moe is None:
            return self.total
        per_expert = self.experts // architecture.moe.experts
        return self.total - self.experts + architecture.moe.top_k * per_expert


def layer_parameters(architecture: Architecture, kind: LayerKind) -> LayerParameters:
    """Parameters of one layer of a kind.

    attention + FFN + norms, with (E*expert + d*E) of experts and router instead of the dense FFN in
    a MoE layer. Biases on the MLP (`mlp_bias`) mean biases on experts and router too, as in gpt-oss.
    """
    a = architecture
    attention = attention_parameters(a)
    norms = a.norms_per_layer * norm_parameters(a)
    if kind == "dense":
        return LayerParameters(attention, mlp_parameters(a, a.ffn), 0, 0, norms)
    if a.moe is None:
        raise ValueError(f"{a.name} has no MoE layers")
    moe = a.moe
    shared = mlp_parameters(a, moe.shared_expert_ffn) if moe.shared_expert_ffn else 0
    gate = a.hidden if moe.shared_expert_gate else 0
    router = a.hidden * moe.experts + (moe.experts if a.mlp_bias else 0)
    return LayerParameters(
        attention, shared + gate, router, moe.experts * mlp_parameters(a, moe.moe_ffn), norms
    )


def mlp_parameters(architecture: Architecture, width: int) -> int:
    """One FFN or expert of that width with a bias on each matrix, if any."""
    inputs = 2 if architecture.gated_mlp else 1
    bias = inputs * width + architecture.hidden if architecture.mlp_bias else 0
    return mlp_matrices(architecture, width) + bias


def mlp_matrices(architecture: Architecture, width: int) -> int:
    """Weights of one FFN or expert: 3*d*width gated (SwiGLU, GeGLU), 2*d*width plain."""
    return (3 if architecture.gated_mlp else 2) * architecture.hidden * width


def attention_parameters(architecture: Architecture) -> int:
    """Projections with biases, norms inside the attention (query/key, MLA's latents) and sinks."""
    a = architecture
    bias = (a.q_width + 2 * a.kv_width if a.qkv_bias else 0) + (a.hidden if a.output_bias else 0)
    latent_norms = (a.mla.q_lora or 0) + a.mla.kv_lora if a.mla else 0
    extras = (2 * a.head_dim if a.qk_norm else 0) + (a.heads if a.attention_sinks else 0)
    return attention_matrices(a) + bias + latent_norms + extras


def attention_matrices(architecture: Architecture) -> int:
    """Weights of the attention projections: 2*d*d_q + 2*d*d_kv, or MLA's.

    d_q = h*d_h need not equal d (Qwen3, Gemma).
    """
    a = architecture
    if a.mla:
        return latent_attention_matrices(a.hidden, a.heads, a.mla)
    return 2 * a.hidden * a.q_width + kv_projection_parameters(a)


def kv_projection_parameters(architecture: Architecture) -> int:
    """Key and value projections 2*d*d_kv, d_kv = h_kv*d_h: what GQA and MQA save on."""
    return 2 * architecture.hidden * architecture.kv_width


def latent_attention_matrices(hidden: int, heads: int, mla: LatentAttention) -> int:
    """MLA's projections.

    q: d*r_q + r_q*h*(d_n + d_r), or d*h*(d_n + d_r) without query compression;
    kv: d*(r + d_r) + r*h*(d_n + d_v); out: h*d_v*d. DeepSeek-V2 (arXiv:2405.04434), section 2.1.
    """
    q_width = heads * (mla.qk_nope + mla.qk_rope)
    query = mla.q_lora * (hidden + q_width) if mla.q_lora else hidden * q_width
    down = hidden * (mla.kv_lora + mla.qk_rope)
    up = mla.kv_lora * heads * (mla.qk_nope + mla.v_dim)
    return query + down + up + heads * mla.v_dim * hidden


def norm_parameters(architecture: Architecture) -> int:
    """One norm: d for RMSNorm, 2d for LayerNorm (weight and bias)."""
    return architecture.hidden * (2 if architecture.norm == "layer" else 1)


def embedding_parameters(architecture: Architecture) -> int:
    """Input embedding V*d plus a learned position table, if any."""
    return (architecture.vocab + architecture.learned_positions) * architecture.hidden


def head_parameters(architecture: Architecture) -> int:
    """LM head V*d; 0 when it shares the embedding's weights."""
    return 0 if architecture.tied_embeddings else architecture.vocab * architecture.hidden


def vocabulary_parameters(architecture: Architecture) -> int:
    """Embedding and LM head together: 2*V*d untied, V*d tied."""
    return embedding_parameters(architecture) + head_parameters(architecture)


def final_norm_parameters(architecture: Architecture) -> int:
    """The norm before the LM head."""
    return norm_parameters(architecture)


def mtp_parameters(architecture: Architecture) -> int:
    """Multi-token-prediction modules: each a layer, a 2d -> d projection and three norms.

    Embedding and head are shared with the main model. DeepSeek-V3 (arXiv:2412.19437), section 2.2.
    """
    a = architecture
    layer = layer_parameters(a, mtp_kind(a)).total
    return a.mtp_layers * (layer + 2 * a.hidden * a.hidden + 3 * norm_parameters(a))


def mtp_kind(architecture: Architecture) -> LayerKind:
    """A multi-token-prediction module holds a layer like the model's last one."""
    return architecture.pattern()[-1]


def total_parameters(architecture: Architecture) -> int:
    """All parameters without multi-token prediction: what a model's name counts."""
    a = architecture
    layers = sum(a.pattern().count(kind) * layer_parameters(a, kind).total for kind in a.kinds)
    return layers + vocabulary_parameters(a) + final_norm_parameters(a)


def active_parameters(architecture: Architecture) -> int:
    """Parameters a token meets: all but the experts it is not routed to; embedding and head count."""
    a = architecture
    layers = sum(a.pattern().count(kind) * layer_parameters(a, kind).active(a) for kind in a.kinds)
    return layers + vocabulary_parameters(a) + final_norm_parameters(a)


def active_share(architecture: Architecture) -> float:
    """Share of the parameters that a token meets: P_act/P."""
    return active_parameters(architecture) / total_parameters(architecture)


def embedding_share(architecture: Architecture) -> float:
    """Share of the parameters in the embedding and the LM head."""
    return vocabulary_parameters(architecture) / total_parameters(architecture)


def quick_layer_parameters(layers: int, hidden: int) -> int:
    """Rule of thumb for all layers: 12*L*d^2, MHA with d_ff = 4d plain or 8d/3 gated."""
    return 12 * layers * hidden * hidden


def gated_layer_parameters(layers: int, hidden: int, ffn: int) -> float:
    """Rule of thumb for all layers of a gated MHA model: 4*L*d^2*(1 + 3*d_ff/(4d))."""
    return 4 * layers * hidden * hidden * (1 + 3 * ffn / (4 * hidden))
