"""Llama 4's text model: interleaved experts with one shared, attention in chunks where there is RoPE."""

from __future__ import annotations

from pydantic import NonNegativeInt, PositiveInt

from costmodel.huggingface.errors import ConfigError
from costmodel.huggingface.keys import Biased, Routed, Shapes
from costmodel.huggingface.layers import FULL, WINDOWS, alternating, listed_layers, moe_positions, windowed


class Llama4(Biased, Routed):
    """`llama4_text`: `intermediate_size` is an expert's width, `intermediate_size_mlp` a dense layer's.

    `use_qk_norm` is a norm without weights and adds no parameters.
    """

    intermediate_size_mlp: PositiveInt
    num_local_experts: PositiveInt
    num_experts_per_tok: PositiveInt
    interleave_moe_layer_step: PositiveInt = 1
    moe_layers: list[NonNegativeInt] | None = None
    attention_chunk_size: NonNegativeInt | None = None
    no_rope_layers: list[int] | None = None
    """One entry a layer, 1 where there *is* RoPE (transformers' spelling)."""
    no_rope_layer_interval: PositiveInt = 4
    layer_types: list[str] | None = None

    def sparse(self) -> list[bool]:
        """As listed, else every step-th layer."""
        step, layers = self.interleave_moe_layer_step, range(self.num_hidden_layers)
        if self.moe_layers is None:
            return [(number + 1) % step == 0 for number in layers]
        if beyond := [number for number in self.moe_layers if number not in layers]:
            raise ConfigError("moe_layers", f"found {beyond[0]}", f"layers from 0 to {layers[-1]}")
        return [number in self.moe_layers for number in layers]

    def kinds(self) -> list[str]:
        """Chunked where there is RoPE, else full."""
        layers, local = self.num_hidden_layers, WINDOWS[1]
        if listed := listed_layers(self.layer_types, layers, "layer_types"):
            return list(listed)
        if not self.attention_chunk_size:
            return []
        if not self.no_rope_layers:
            return alternating(layers, self.no_rope_layer_interval, local)
        if len(self.no_rope_layers) != layers:
            found = f"has {len(self.no_rope_layers)} entries"
            raise ConfigError("no_rope_layers", found, f"one for each of the {layers} layers")
        return [local if rope else FULL for rope in self.no_rope_layers]

    def shapes(self) -> Shapes:
        """The decoder's, with experts, a shared one as wide as they are, and chunks."""
        sparse = self.sparse()
        moe = {
            "experts": self.num_local_experts,
            "top_k": self.num_experts_per_tok,
            "moe_ffn": self.intermediate_size,
            "shared_expert_ffn": self.intermediate_size,
        } | moe_positions(sparse)
        more = {"ffn": self.intermediate_size_mlp, "moe": moe if any(sparse) else None}
        return super().shapes() | more | windowed(self.attention_chunk_size, self.kinds())
