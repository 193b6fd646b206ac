"""JSON and TOML files, read with the place of their first error."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from planner.errors import InvalidInput
from planner.yaml_file import read_text


def read_json(path: Path, what: str) -> dict[str, Any]:
    """A JSON object, or the place of the first error. Raises InvalidInput."""
    text = read_text(path, what)
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        place = f"{path}:{error.lineno}:{error.colno}"
        raise InvalidInput(file=place, found=f"not valid JSON: {error.msg}", accepted=what) from None
    except RecursionError:
        raise InvalidInput(file=str(path), found="is nested too deeply", accepted=what) from None
    if not isinstance(data, dict):
        raise InvalidInput(file=str(path), found="holds no object", accepted=what)
    return data


def parsed_toml(path: Path, text: str, what: str) -> dict[str, Any]:
    """A TOML table, or the place of the first error. Raises InvalidInput."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidInput(file=str(path), found=f"not valid TOML: {error}", accepted=what) from None
