"""Llama 1 to 3, Mistral and Mixtral: gated FFN, RMSNorm, grouped queries."""

from __future__ import annotations

from pydantic import NonNegativeInt, PositiveInt

from costmodel.huggingface.keys import Biased, Decoder, Routed, Shapes
from costmodel.huggingface.layers import WINDOWS, windowed


class Llama(Biased):
    """`llama`: no key-value heads given means as many as heads."""

    mlp_bias: bool = False

    def shapes(self) -> Shapes:
        """The decoder's, with biases on the FFN."""
        return super().shapes() | {"mlp_bias": self.mlp_bias}


class Mistral(Decoder):
    """`mistral`: a window in every layer, unless it is null (from 7B v0.2 on)."""

    sliding_window: NonNegativeInt | None = None

    def shapes(self) -> Shapes:
        """The decoder's, with the window in all layers."""
        kinds = [WINDOWS[0]] * self.num_hidden_layers if self.sliding_window else []
        return super().shapes() | windowed(self.sliding_window, kinds)


class Mixtral(Mistral, Routed):
    """`mixtral`: `intermediate_size` is the width of an expert, and every layer has experts."""

    num_local_experts: PositiveInt
    num_experts_per_tok: PositiveInt

    def shapes(self) -> Shapes:
        """Mistral's, with experts."""
        moe = {
            "experts": self.num_local_experts,
            "top_k": self.num_experts_per_tok,
            "moe_ffn": self.intermediate_size,
        }
        return super().shapes() | {"moe": moe}
