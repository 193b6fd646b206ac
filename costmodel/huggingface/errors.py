"""What can be wrong with a `config.json`, said to the person who has it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

LONGEST_SHOWN = 60

ACCEPTED = {
    "int_type": "a whole number",
    "greater_than": "a whole number above 0",
    "greater_than_equal": "a whole number, 0 or more",
    "bool_type": "true or false",
    "string_type": "text",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
}


class ConfigError(ValueError):
    """A config that cannot be read as an architecture: the key, what was found, what is accepted."""

    def __init__(self, key: str, found: str, accepted: str, hint: str = "") -> None:
        super().__init__(": ".join(part for part in (key, found, f"accepted: {accepted}", hint) if part))
        self.key, self.found, self.accepted, self.hint = key, found, accepted, hint


def first_error(error: ValidationError, where: str = "") -> ConfigError:
    """The first fault that pydantic found, below `where`; the others are named in the hint."""
    faults = error.errors(include_url=False)
    keys = [".".join(filter(None, (where, *map(str, fault["loc"])))) for fault in faults]
    others = [key for key in dict.fromkeys(keys[1:]) if key != keys[0]]
    return _fault(faults[0], keys[0], f"more is wrong at: {', '.join(others)}" if others else "")


def _fault(fault: Mapping[str, Any], key: str, hint: str) -> ConfigError:
    kind = str(fault["type"])
    raised = fault.get("ctx", {}).get("error")
    if kind == "missing":
        return ConfigError(key, "missing", "this key is required", hint)
    if isinstance(raised, ValueError):
        return ConfigError(key, str(raised), "sizes that agree with each other", hint)
    accepted = ACCEPTED.get(kind, str(fault["msg"]).removeprefix("Input should be "))
    return ConfigError(key, f"found {shown(fault['input'])}", accepted, hint)


def shown(value: object) -> str:
    """A value of JSON as it appears in a message: short, on one line."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, (list, tuple)):
        return "a list"
    plain = value is None or isinstance(value, bool)
    text = json.dumps(value) if plain else repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."
