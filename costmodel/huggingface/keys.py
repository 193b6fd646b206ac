"""Keys that most model classes share, and the shapes that follow from them.

Names are those of the config classes of Hugging Face transformers (4 and 5). A key that is absent
takes the default of its class (`defaults.yaml`), where files are known to leave it out.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict, PositiveInt, model_validator

from costmodel.huggingface.errors import ConfigError

Shapes: TypeAlias = "dict[str, Any]"
"""Fields of an `Architecture`, by name."""


class Keys(BaseModel):
    """What a reader needs of a file; everything else in it is ignored. Text is no number, 1 no truth."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    def shapes(self) -> Shapes:
        """Fields of the architecture that follow from the keys. Raises `ConfigError`."""
        raise NotImplementedError


class Decoder(Keys):
    """A decoder with grouped-query attention, in the names that all but GPT-2 use."""

    num_hidden_layers: PositiveInt
    hidden_size: PositiveInt
    intermediate_size: PositiveInt
    num_attention_heads: PositiveInt
    num_key_value_heads: PositiveInt | None = None
    """As many as heads where it is null."""
    head_dim: PositiveInt | None = None
    """hidden/heads where it is null."""
    vocab_size: PositiveInt
    max_position_embeddings: PositiveInt | None = None
    tie_word_embeddings: bool | None = False

    def shapes(self) -> Shapes:
        """Sizes, heads and vocabulary."""
        return {
            "layers": self.num_hidden_layers,
            "hidden": self.hidden_size,
            "ffn": self.intermediate_size,
            "heads": self.num_attention_heads,
            "kv_heads": self.num_key_value_heads or self.num_attention_heads,
            "head_dim": self.head_dim or whole_head(self.hidden_size, self.num_attention_heads),
            "vocab": self.vocab_size,
            "tied_embeddings": bool(self.tie_word_embeddings),
            "max_seq_len": self.max_position_embeddings,
        }


class Biased(Decoder):
    """A decoder whose four attention projections may have a bias."""

    attention_bias: bool = False

    def shapes(self) -> Shapes:
        """The decoder's, with biases on queries, keys, values and the output."""
        return super().shapes() | {"qkv_bias": self.attention_bias, "output_bias": self.attention_bias}


class Routed(Keys):
    """Names of the experts' keys, of which transformers has three for their number and two for the rest."""

    @model_validator(mode="before")
    @classmethod
    def _one_name(cls, data: Any) -> Any:
        """The first name that is there, under each of the others too."""
        read = dict(data)
        for names in (
            ("num_experts", "num_local_experts", "n_routed_experts"),
            ("num_experts_per_tok", "experts_per_token"),
            ("num_nextn_predict_layers", "num_mtp_layers"),
        ):
            given = next((read[name] for name in names if read.get(name) is not None), None)
            if given is not None:
                read |= dict.fromkeys(names, given)
        return read


def whole_head(hidden: int, heads: int) -> int:
    """hidden/heads. Raises `ConfigError` where that is no whole number."""
    if hidden % heads:
        found = f"missing, and hidden_size {hidden} is no multiple of {heads} heads"
        raise ConfigError("head_dim", found, "the width of a head")
    return hidden // heads
