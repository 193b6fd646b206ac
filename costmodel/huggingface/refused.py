"""Models that are not read, and why: a plan for something else than what is trained is worse than none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, cast

import yaml

from costmodel.huggingface.errors import ConfigError, shown
from costmodel.huggingface.layers import FULL, WINDOWS

FORBIDDEN = {
    "is_encoder_decoder": "it is an encoder with a decoder",
    "add_cross_attention": "cross-attention layers are not modelled",
    "index_topk": "sparse attention is not modelled",
    "linear_attn_config": "linear attention is not modelled",
    "block_configs": "blocks that differ from layer to layer are not modelled",
}
"""Keys of files whose model_type is known and that still mean another model."""
PICTURES = ("patch_size", "image_size", "num_channels")
"""Keys that only a vision model has at its top."""
INLINE = "if its layers are like those of a known model, write the shapes under `model` of the problem file"


@cache
def reasons() -> Mapping[str, str]:
    """Why a model_type is not read, by model_type."""
    path = Path(__file__).parent / "refused.yaml"
    table = cast("dict[str, list[list[str]]]", yaml.safe_load(path.read_text(encoding="utf-8")))
    return {name: reason for reason, rows in table.items() for row in rows for name in row}


def unknown_type(name: Any, known: Sequence[str], config: Mapping[str, Any], where: str) -> ConfigError:
    """Why a model_type is not read, with the ones that are."""
    key, accepted = f"{where}model_type", ", ".join(known)
    reason = reasons().get(name, "") if isinstance(name, str) else ""
    if not reason and any(each in config for each in PICTURES):
        reason = reasons()["vit"]
    found = "missing" if name is None else f"found {shown(name)}"
    near = get_close_matches(str(name), known, n=1, cutoff=0.8)
    hint = "" if reason or name is None else f"did you mean {near[0]!r}?" if near else INLINE
    return ConfigError(key, f"{found}: {reason}" if reason else found, accepted, hint)


def refuse_unmodelled(config: Mapping[str, Any], where: str) -> None:
    """Raises `ConfigError` for what a known model_type must not have."""
    for key, reason in FORBIDDEN.items():
        if config.get(key):
            raise ConfigError(f"{where}{key}", f"found {shown(config[key])}: {reason}", "a file without it")
    kinds = config.get("layer_types")
    if isinstance(kinds, list):
        listed = cast("list[Any]", kinds)
        strange = Counter(str(kind) for kind in listed if kind not in (FULL, *WINDOWS))
        for kind, number in strange.most_common(1):
            found = f"found {kind} in {number} of {len(listed)} layers, which is not modelled"
            raise ConfigError(f"{where}layer_types", found, ", ".join((FULL, *WINDOWS)))
