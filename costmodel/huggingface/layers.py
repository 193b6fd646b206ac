"""Which layers have experts and which a window: what files say, as fields of an architecture."""

from __future__ import annotations

from collections.abc import Sequence

from costmodel.huggingface.errors import ConfigError, shown
from costmodel.huggingface.keys import Shapes

WINDOWS = ("sliding_attention", "chunked_attention")
FULL = "full_attention"


def moe_positions(is_moe: Sequence[bool]) -> Shapes:
    """Fields of `MixtureOfExperts` that say which layers these are; none where every layer has experts.

    Leading dense layers and a period where that says it, else the layers one by one.
    """
    layers = [number for number, moe in enumerate(is_moe) if moe]
    if all(is_moe) or not layers:
        return {}
    every = layers[1] - layers[0] if len(layers) > 1 else 1
    first = layers[0] - every + 1
    fits = [i >= first and (i - first) % every == every - 1 for i in range(len(is_moe))]
    if first < 0 or fits != list(is_moe):
        return {"moe_layers": tuple(layers)}
    return {"first_dense_layers": first, "moe_every_n_layers": every}


def listed_layers(kinds: Sequence[str] | None, layers: int, key: str) -> Sequence[str] | None:
    """A list with one entry a layer, or None where the file has none. Raises `ConfigError`."""
    if kinds is not None and len(kinds) != layers:
        raise ConfigError(key, f"has {len(kinds)} entries", f"one for each of the {layers} layers")
    return kinds


def windowed(window: int | None, kinds: Sequence[str]) -> Shapes:
    """Window fields from the kind of each layer; none where no layer has one. Raises `ConfigError`."""
    local = [kind for kind in kinds if kind in WINDOWS]
    if not local:
        return {}
    if len(set(local)) > 1:
        raise ConfigError("layer_types", "found sliding and chunked layers together", "one kind of window")
    if not window:
        key = "attention_chunk_size" if local[0] == "chunked_attention" else "sliding_window"
        found = f"found {shown(window)}, but {len(local)} layers have a window"
        raise ConfigError(key, found, "the tokens of a window")
    shapes: Shapes = {"sliding_window": window, "sliding_layers": len(local)}
    return shapes | ({"chunked_window": True} if local[0] == "chunked_attention" else {})


def alternating(layers: int, period: int, local: str = WINDOWS[0]) -> list[str]:
    """All but every period-th layer have a window: (i + 1) mod period > 0."""
    return [local if (number + 1) % period else FULL for number in range(layers)]
