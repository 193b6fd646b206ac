"""Gemma 1 to 3: gated FFN, a wide head, tied embeddings, and from Gemma 2 on four norms and local layers."""

from __future__ import annotations

from pydantic import NonNegativeInt, PositiveInt

from costmodel.huggingface.keys import Biased, Shapes
from costmodel.huggingface.layers import alternating, listed_layers, windowed

NORMS = 4
GEMMA2_PERIOD = 2
GEMMA3_PERIOD = 6


class Gemma(Biased):
    """`gemma`: `head_dim` is explicit, heads*head_dim need not be hidden."""

    tie_word_embeddings: bool | None = True


class Gemma2(Gemma):
    """`gemma2`: every other layer has a window, the first one included."""

    sliding_window: NonNegativeInt | None = None
    layer_types: list[str] | None = None

    def period(self) -> int:
        """Of so many layers the last sees the whole sequence."""
        return GEMMA2_PERIOD

    def shapes(self) -> Shapes:
        """The decoder's, with norms before and after each block, and the window."""
        layers = self.num_hidden_layers
        listed = listed_layers(self.layer_types, layers, "layer_types")
        kinds = listed or (alternating(layers, self.period()) if self.sliding_window else [])
        return super().shapes() | {"norms_per_layer": NORMS} | windowed(self.sliding_window, kinds)


class Gemma3(Gemma2):
    """`gemma3_text`: five local layers, one global; norms on queries and keys."""

    sliding_window_pattern: PositiveInt | None = None
    """Older files; transformers writes it with a leading underscore too."""

    def period(self) -> int:
        """As the file has it."""
        return self.sliding_window_pattern or GEMMA3_PERIOD

    def shapes(self) -> Shapes:
        """Gemma 2's, with the norms."""
        return super().shapes() | {"qk_norm": True}
