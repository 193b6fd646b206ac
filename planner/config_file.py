"""A Hugging Face `config.json` as the model of a problem or a run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from costmodel.architecture import Architecture
from planner.errors import InvalidInput
from planner.yaml_file import read_text

WHAT = "a Hugging Face config.json of a language model"
CONFIG = "config.json"


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """What a file says: the architecture, remarks on it, and how to recognise the file again."""

    path: str
    """As it was written."""
    architecture: Architecture
    notes: tuple[str, ...]
    digest: str
    """SHA-256 of the text."""


def looks_like_path(name: str) -> bool:
    """Whether a model is named by a file (or by a folder that holds config.json) and not by a card."""
    return name.endswith(".json") or "/" in name or "\\" in name


def read_config(written: str, folder: Path = Path()) -> ConfigFile:
    """The architecture in a config.json, or in the one of a folder, relative to `folder`.

    Raises `InvalidInput`: the file, the key, what was found, what is accepted.
    """
    from costmodel.huggingface import ConfigError, read  # most problems name a card and need none of it

    path = folder / written
    if (path / CONFIG).is_file():
        path = path / CONFIG
    text = read_text(path, WHAT)
    config = _parsed(text, str(path))
    name = path.resolve().parent.name if path.name == CONFIG else path.stem
    try:
        reading = read(config, name or "model", _source(config, written))
    except ConfigError as error:
        raise InvalidInput(
            file=str(path),
            path=error.key,
            found=error.found,
            accepted=error.accepted,
            suggestion=error.hint,
        ) from None
    return ConfigFile(written, reading.architecture, reading.notes, sha256(text.encode()).hexdigest())


def _parsed(text: str, file: str) -> Mapping[str, Any]:
    """JSON whose top is an object, or the place of its first error."""
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        place = f"{file}:{error.lineno}:{error.colno}"
        cut = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated")
        found = "ends in the middle: the file is not whole" if cut else f"not valid JSON: {error.msg}"
        raise InvalidInput(file=place, found=found, accepted=WHAT) from None
    except (RecursionError, ValueError) as error:
        found = "is nested too deeply" if isinstance(error, RecursionError) else f"not valid JSON: {error}"
        raise InvalidInput(file=file, found=found, accepted=WHAT) from None
    if not isinstance(data, dict):
        kind = "a list" if isinstance(data, list) else "a single value"
        raise InvalidInput(file=file, found=f"holds {kind}", accepted=WHAT)
    return data


def _source(config: Mapping[str, Any], written: str) -> str:
    """Where the shapes come from: the file, and the published model that it says it is."""
    public = config.get("_name_or_path")
    of = f" of {public}" if isinstance(public, str) and public and not public.startswith((".", "/")) else ""
    return f"Hugging Face config.json{of}: {written}"
