"""From the contents of a `config.json` to an `Architecture`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

import yaml
from pydantic import ValidationError

from costmodel.architecture import Architecture
from costmodel.huggingface.deepseek import Glm4Moe, Latent
from costmodel.huggingface.errors import ConfigError, first_error, shown
from costmodel.huggingface.gemma import Gemma, Gemma2, Gemma3
from costmodel.huggingface.gpt import Gpt2, GptNeoX
from costmodel.huggingface.gpt_oss import GptOss
from costmodel.huggingface.keys import Keys
from costmodel.huggingface.llama import Llama, Mistral, Mixtral
from costmodel.huggingface.llama4 import Llama4
from costmodel.huggingface.qwen import Qwen2, Qwen2Moe, Qwen3, Qwen3Moe
from costmodel.huggingface.refused import reasons, refuse_unmodelled, unknown_type

READERS: dict[str, type[Keys]] = {
    "llama": Llama,
    "mistral": Mistral,
    "mixtral": Mixtral,
    "qwen2": Qwen2,
    "qwen2_moe": Qwen2Moe,
    "qwen3": Qwen3,
    "qwen3_moe": Qwen3Moe,
    "deepseek_v2": Latent,
    "deepseek_v3": Latent,
    "gpt2": Gpt2,
    "gpt_neox": GptNeoX,
    "gemma": Gemma,
    "gemma2": Gemma2,
    "gemma3_text": Gemma3,
    "gpt_oss": GptOss,
    "llama4_text": Llama4,
    "glm4_moe": Glm4Moe,
}
SAME = {
    "kimi_k2": "deepseek_v3",
    "qwen2_vl": "qwen2",
    "qwen2_vl_text": "qwen2",
    "qwen2_5_vl": "qwen2",
    "qwen2_5_vl_text": "qwen2",
    "qwen3_vl_text": "qwen3",
    "qwen3_vl_moe_text": "qwen3_moe",
}
"""Model types whose language model has another's layers, weight by weight."""
WRAPPED = {
    "gemma3": "gemma3_text",
    "llama4": "llama4_text",
    "mistral3": "mistral",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
    "kimi_k25": "deepseek_v3",
}
"""The language model of multimodal ones whose nested config does not say what it is."""
MODEL_TYPES = (*READERS, *SAME)

UNDERSCORED = "sliding_window_pattern"
"""transformers writes this key with a leading underscore at times."""


@dataclass(frozen=True, slots=True)
class Reading:
    """An architecture, the model_type it was read as, and what a reader of the plan should know."""

    architecture: Architecture
    model_type: str
    notes: tuple[str, ...] = ()


def read(config: Mapping[str, Any], name: str, source: str = "") -> Reading:
    """The architecture that a config describes: of its language model, where it is nested.

    Raises `ConfigError`: the key, what was found, what is accepted.
    """
    inner, where = _language_model(config)
    written = _model_type(config, inner)
    kind = SAME.get(written, written) if isinstance(written, str) else None
    if kind not in READERS:
        raise unknown_type(written, MODEL_TYPES, inner, where)
    for part, above in ((config, ""), (inner, where)):
        refuse_unmodelled(part, above)
    data = _with_defaults(inner, kind, nested=bool(where))
    if where:
        data |= _tied(config, inner)
    try:
        shapes = READERS[kind].model_validate(data).shapes()
        architecture = Architecture.model_validate({"name": name, "source": source} | shapes)
    except ValidationError as error:
        raise first_error(error, where.rstrip(".")) from None
    except ConfigError as error:
        raise ConfigError(f"{where}{error.key}", error.found, error.accepted, error.hint) from None
    return Reading(architecture, str(written), tuple(_notes(config, inner, kind, where)))


def _language_model(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """The config itself, or its `text_config` with the path to it."""
    inner = config.get("text_config")
    if inner is None:
        return config, ""
    if not isinstance(inner, Mapping):
        raise ConfigError("text_config", f"found {shown(inner)}", "an object")
    return cast("Mapping[str, Any]", inner), "text_config."


def _model_type(outer: Mapping[str, Any], inner: Mapping[str, Any]) -> Any:
    """That of the language model; where its config does not say, what its wrapper usually holds."""
    written, wrapper = inner.get("model_type"), outer.get("model_type")
    if written is not None or not isinstance(wrapper, str):
        return written
    return WRAPPED.get(wrapper, wrapper if wrapper in reasons() else None)


def _with_defaults(config: Mapping[str, Any], kind: str, *, nested: bool) -> dict[str, Any]:
    """The class's defaults under the keys that are there; sizes only for a nested config."""
    read = _defaults(kind, nested=nested) | dict(config)
    if read.get(UNDERSCORED) is None and f"_{UNDERSCORED}" in read:
        read[UNDERSCORED] = read[f"_{UNDERSCORED}"]
    return read


def _defaults(kind: str, *, nested: bool) -> dict[str, Any]:
    always: Mapping[str, Any] = _default_table("always").get(kind, {})
    return dict(always) | (dict(_sizes(kind)) if nested else {})


def _sizes(kind: str) -> Mapping[str, Any]:
    return _default_table("nested").get(kind, {})


@cache
def _default_table(name: str) -> Mapping[str, Mapping[str, Any]]:
    path = Path(__file__).parent / "defaults.yaml"
    return cast("Mapping[str, Any]", yaml.safe_load(path.read_text(encoding="utf-8")))[name]


def _tied(outer: Mapping[str, Any], inner: Mapping[str, Any]) -> dict[str, bool]:
    """`tie_word_embeddings` may stand on either level; true on one of them ties."""
    said = [level["tie_word_embeddings"] for level in (outer, inner) if "tie_word_embeddings" in level]
    if wrong := next((value for value in said if not isinstance(value, bool) and value is not None), None):
        raise ConfigError("tie_word_embeddings", f"found {shown(wrong)}", "true or false")
    given = [value for value in said if value is not None]
    return {"tie_word_embeddings": any(given)} if given else {}


def _notes(outer: Mapping[str, Any], inner: Mapping[str, Any], kind: str, where: str) -> Iterator[str]:
    """A sentence each for what the architecture leaves out or takes for granted."""
    if where or outer.get("vision_config"):
        yield "Only the language model is read: other parts of a multimodal model are not counted."
    sizes: Mapping[str, Any] = _sizes(kind) if where else {}
    if absent := [f"{key} {value}" for key, value in sizes.items() if key not in inner]:
        yield f"text_config leaves out {', '.join(absent)}: the class's defaults are taken."
    if outer.get("quantization_config") or inner.get("quantization_config"):
        yield "quantization_config describes the checkpoint, not the training: it is not used."
    if inner.get("attn_logit_softcapping"):
        yield "Attention logits are capped: attention is priced as with kernels that can do so."
