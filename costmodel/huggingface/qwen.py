"""Qwen2 and Qwen3, dense and with experts."""

from __future__ import annotations

from pydantic import NonNegativeInt, PositiveInt

from costmodel.huggingface.keys import Biased, Decoder, Routed, Shapes
from costmodel.huggingface.layers import FULL, WINDOWS, listed_layers, moe_positions, windowed


class Windowed(Decoder):
    """`sliding_window` may be a number and still be off; `layer_types` overrules `max_window_layers`."""

    use_sliding_window: bool = False
    sliding_window: NonNegativeInt | None = None
    max_window_layers: NonNegativeInt = 0
    layer_types: list[str] | None = None

    def window(self) -> Shapes:
        """Layers from `max_window_layers` on have the window, if it is in use."""
        first, layers = self.max_window_layers, self.num_hidden_layers
        listed = listed_layers(self.layer_types, layers, "layer_types")
        if not (self.use_sliding_window and self.sliding_window):
            return {}
        kinds = [FULL if number < first else WINDOWS[0] for number in range(layers)]
        return windowed(self.sliding_window, listed or kinds)


class Qwen2(Windowed):
    """`qwen2`: the bias of queries, keys and values is part of the class, no key says so."""

    def shapes(self) -> Shapes:
        """The decoder's, with the bias and the window."""
        return super().shapes() | {"qkv_bias": True} | self.window()


class Qwen3(Windowed, Biased):
    """`qwen3`: norms on queries and keys; heads*head_dim need not be hidden."""

    def shapes(self) -> Shapes:
        """The decoder's, with the norms and the window."""
        return super().shapes() | {"qk_norm": True} | self.window()


class SparseLayers(Windowed, Routed):
    """Experts in every `decoder_sparse_step`-th layer, but for `mlp_only_layers`."""

    num_experts: PositiveInt
    num_experts_per_tok: PositiveInt
    moe_intermediate_size: PositiveInt
    decoder_sparse_step: PositiveInt = 1
    mlp_only_layers: list[NonNegativeInt] | None = None

    def sparse(self) -> list[bool]:
        """(i + 1) mod step = 0, and not a layer that has only an MLP."""
        step, dense = self.decoder_sparse_step, self.mlp_only_layers or []
        return [(i + 1) % step == 0 and i not in dense for i in range(self.num_hidden_layers)]

    def routed(self) -> Shapes | None:
        """Fields of the experts; None where no layer has any."""
        sparse = self.sparse()
        moe = {
            "experts": self.num_experts,
            "top_k": self.num_experts_per_tok,
            "moe_ffn": self.moe_intermediate_size,
        }
        return moe | moe_positions(sparse) if any(sparse) else None


class Qwen3Moe(SparseLayers, Biased):
    """`qwen3_moe`: no shared expert; `intermediate_size` is that of dense layers, of which most have none."""

    def shapes(self) -> Shapes:
        """The decoder's, with norms, experts and the window, which every layer has where it is in use."""
        return super().shapes() | {"qk_norm": True, "moe": self.routed()} | self.window()


class Qwen2Moe(SparseLayers):
    """`qwen2_moe`: one shared expert, given by its width, with a gate."""

    shared_expert_intermediate_size: PositiveInt
    qkv_bias: bool = True

    def shapes(self) -> Shapes:
        """The decoder's, with the bias, experts, the shared one and its gate."""
        shared = {"shared_expert_ffn": self.shared_expert_intermediate_size, "shared_expert_gate": True}
        moe = self.routed()
        return super().shapes() | {"qkv_bias": self.qkv_bias, "moe": moe and moe | shared} | self.window()
