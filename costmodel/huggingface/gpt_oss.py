"""gpt-oss: experts in every layer, biases on everything, attention sinks, alternating windows."""

from __future__ import annotations

from pydantic import NonNegativeInt, PositiveInt

from costmodel.huggingface.keys import Biased, Routed, Shapes
from costmodel.huggingface.layers import alternating, listed_layers, windowed

PERIOD = 2


class GptOss(Biased, Routed):
    """`gpt_oss`: `intermediate_size` is the width of an expert; experts and router always have a bias."""

    attention_bias: bool = True
    num_local_experts: PositiveInt
    num_experts_per_tok: PositiveInt
    sliding_window: NonNegativeInt | None = None
    layer_types: list[str] | None = None

    def shapes(self) -> Shapes:
        """The decoder's, with experts, biases, a sink a head, and the window in every other layer."""
        layers = self.num_hidden_layers
        listed = listed_layers(self.layer_types, layers, "layer_types")
        kinds = listed or (alternating(layers, PERIOD) if self.sliding_window else [])
        moe = {
            "experts": self.num_local_experts,
            "top_k": self.num_experts_per_tok,
            "moe_ffn": self.intermediate_size,
        }
        more = {"mlp_bias": True, "attention_sinks": True, "moe": moe}
        return super().shapes() | more | windowed(self.sliding_window, kinds)
