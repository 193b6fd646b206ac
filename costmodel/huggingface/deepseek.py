"""DeepSeek-V2 and V3, Kimi-K2 and GLM-4-MoE: leading dense layers, shared experts by number."""

from __future__ import annotations

from pydantic import NonNegativeInt, PositiveInt

from costmodel.huggingface.errors import ConfigError
from costmodel.huggingface.keys import Biased, Decoder, Routed, Shapes
from costmodel.huggingface.layers import listed_layers, moe_positions


class SharedExperts(Decoder, Routed):
    """The first layers are dense; `n_shared_experts` are each `moe_intermediate_size` wide."""

    n_routed_experts: PositiveInt
    num_experts_per_tok: PositiveInt
    moe_intermediate_size: PositiveInt
    n_shared_experts: NonNegativeInt | None = None
    first_k_dense_replace: NonNegativeInt = 0
    moe_layer_freq: PositiveInt = 1
    mlp_layer_types: list[str] | None = None
    num_nextn_predict_layers: NonNegativeInt = 0

    def sparse(self) -> list[bool]:
        """As `mlp_layer_types` lists them, else i >= first_k_dense_replace and i mod moe_layer_freq = 0."""
        layers = self.num_hidden_layers
        if kinds := listed_layers(self.mlp_layer_types, layers, "mlp_layer_types"):
            return [kind == "sparse" for kind in kinds]
        first, every = self.first_k_dense_replace, self.moe_layer_freq
        return [i >= first and i % every == 0 for i in range(layers)]

    def shapes(self) -> Shapes:
        """The decoder's, with experts and modules for multi-token prediction."""
        sparse = self.sparse()
        moe = {
            "experts": self.n_routed_experts,
            "top_k": self.num_experts_per_tok,
            "moe_ffn": self.moe_intermediate_size,
            "shared_expert_ffn": (self.n_shared_experts or 0) * self.moe_intermediate_size,
        } | moe_positions(sparse)
        more = {"moe": moe if any(sparse) else None, "mtp_layers": self.num_nextn_predict_layers}
        return super().shapes() | more


class Latent(SharedExperts):
    """`deepseek_v2`, `deepseek_v3`, `kimi_k2`: latent attention; `head_dim` in a file is not its width."""

    kv_lora_rank: PositiveInt
    q_lora_rank: NonNegativeInt | None
    qk_nope_head_dim: PositiveInt
    qk_rope_head_dim: PositiveInt
    v_head_dim: PositiveInt
    attention_bias: bool = False

    def shapes(self) -> Shapes:
        """The decoder's, with latent attention; queries and keys are nope + rope wide."""
        if self.attention_bias:
            raise ConfigError("attention_bias", "found true", "false, as in all published models")
        width = self.qk_nope_head_dim + self.qk_rope_head_dim
        keys = self.model_copy(update={"head_dim": width, "num_key_value_heads": self.num_attention_heads})
        mla = {
            "q_lora": self.q_lora_rank or None,
            "kv_lora": self.kv_lora_rank,
            "qk_nope": self.qk_nope_head_dim,
            "qk_rope": self.qk_rope_head_dim,
            "v_dim": self.v_head_dim,
        }
        return super(Latent, keys).shapes() | {"mla": mla}


class Glm4Moe(SharedExperts, Biased):
    """`glm4_moe`: grouped queries; the bias is on queries, keys and values only."""

    use_qk_norm: bool = False

    def shapes(self) -> Shapes:
        """The decoder's, with experts, and norms on queries and keys where asked for."""
        return super().shapes() | {"output_bias": False, "qk_norm": self.use_qk_norm}
