"""The architecture of a run: a card, a config.json, or shapes with what a card of the same shapes adds."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from costmodel.architecture import Architecture, LatentAttention, MixtureOfExperts
from costmodel.cards import card_names, load_card
from planner.complaints import first_fault
from planner.model import Model

SHAPES = ("hidden", "ffn", "heads", "kv_heads", "head_dim", "vocab", "gated_mlp")
DETAILS = ("qkv_bias", "output_bias", "mlp_bias", "qk_norm", "attention_sinks", "norm", "norms_per_layer")
WINDOW = re.compile(r"alternate layers use a (\d+)-token sliding window", re.IGNORECASE)


def architecture_of(written: str | dict[str, Any], folder: Path = Path()) -> Architecture:
    """The shapes of a run's model; a config.json it names lies in `folder`. Raises Refused."""
    if isinstance(written, str):
        return Model.spelled(written, folder).architecture
    shapes = _known(written, Architecture)
    for key, part in (("moe", MixtureOfExperts), ("mla", LatentAttention)):
        if isinstance(shapes.get(key), dict):
            shapes[key] = _known(shapes[key], part)
    if window := WINDOW.search(str(written.get("notes") or "")):
        layers = shapes.get("layers")
        half = layers // 2 if isinstance(layers, int) else 0
        shapes = {"sliding_window": int(window.group(1)), "sliding_layers": half} | shapes
    try:
        read = Architecture.model_validate({"name": "custom"} | shapes)
    except ValidationError as error:
        raise first_fault(error).below("model") from None
    details = _details(tuple(getattr(read, name) for name in SHAPES), read.moe is not None)
    return read.model_copy(update={key: value for key, value in details.items() if key not in shapes})


def _known(written: dict[str, Any], part: Any) -> dict[str, Any]:
    """The fields that are given and known; nulls and provenance are left out."""
    return {key: value for key, value in written.items() if key in part.model_fields and value is not None}


@cache
def _details(shapes: tuple[Any, ...], moe: bool) -> dict[str, Any]:
    """Biases, norms and the like of the card with these shapes, if there is one."""
    for name in card_names():
        card = load_card(name)
        if tuple(getattr(card, field) for field in SHAPES) == shapes and (card.moe is not None) == moe:
            return {field: getattr(card, field) for field in DETAILS}
    return {}
