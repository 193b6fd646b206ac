"""GPT-2 and GPT-NeoX: LayerNorm, a plain FFN of two matrices, biases everywhere."""

from __future__ import annotations

from typing import Any

from pydantic import PositiveInt, model_validator

from costmodel.huggingface.keys import Biased, Keys, Shapes, whole_head

PLAIN: Shapes = {"gated_mlp": False, "norm": "layer", "mlp_bias": True}
FFN_OVER_HIDDEN = 4
"""GPT-2's FFN where `n_inner` is null."""

GPT2_NAMES = {
    "num_hidden_layers": "n_layer",
    "hidden_size": "n_embd",
    "num_attention_heads": "n_head",
    "max_position_embeddings": "n_positions",
}


class Gpt2(Keys):
    """`gpt2`: learned positions; the head shares the embedding's weights unless the file says otherwise."""

    n_layer: PositiveInt
    n_embd: PositiveInt
    n_head: PositiveInt
    n_positions: PositiveInt
    n_inner: PositiveInt | None = None
    vocab_size: PositiveInt
    tie_word_embeddings: bool | None = True

    @model_validator(mode="before")
    @classmethod
    def _own_names(cls, data: Any) -> Any:
        """The names of other classes are accepted for GPT-2's own."""
        given = {own: data[other] for other, own in GPT2_NAMES.items() if other in data}
        return given | dict(data)

    def shapes(self) -> Shapes:
        """d_ff = 4d unless `n_inner` is given."""
        return PLAIN | {
            "layers": self.n_layer,
            "hidden": self.n_embd,
            "ffn": self.n_inner or FFN_OVER_HIDDEN * self.n_embd,
            "heads": self.n_head,
            "kv_heads": self.n_head,
            "head_dim": whole_head(self.n_embd, self.n_head),
            "vocab": self.vocab_size,
            "qkv_bias": True,
            "output_bias": True,
            "tied_embeddings": self.tie_word_embeddings is not False,
            "learned_positions": self.n_positions,
            "max_seq_len": self.n_positions,
        }


class GptNeoX(Biased):
    """`gpt_neox`: attention and FFN side by side or not, each has its norm; no grouped queries."""

    attention_bias: bool = True

    def shapes(self) -> Shapes:
        """The decoder's, with biases and LayerNorm."""
        return super().shapes() | PLAIN
