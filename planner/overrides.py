"""`key.path=value` laid over a problem before it is validated, so that a typo is an error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Any

from planner import yaml_file
from planner.errors import InvalidInput, nearest, shown

ACCEPTED = "key.path=value, lists by index: limits.deadline=45 days, hardware.1.price=0.5 USD/gpu-hour"


def parse_setting(text: str) -> tuple[str, Any]:
    """`hardware.1.price=0.5 USD/gpu-hour` as a path and a YAML value."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise InvalidInput(file=f"-s {text}", found="is not an assignment", accepted=ACCEPTED)
    return key.strip(), yaml_file.parse(value, f"-s {key.strip()}")


def apply(
    data: dict[str, Any], overrides: Iterable[tuple[str, Any]], *, source: str = "-s"
) -> dict[str, Any]:
    """A copy of the data with each path set to its value."""
    changed = deepcopy(data)
    for key, value in overrides:
        _set(changed, key, deepcopy(value), f"{source} {key}")
    return changed


def _set(data: dict[str, Any], key: str, value: Any, source: str) -> None:
    """Sets one path; mappings on the way that are not there are made, list entries are not."""
    parts = key.split(".")
    here: Any = data
    for depth, part in enumerate(parts):
        done, last = ".".join(parts[: depth + 1]), depth == len(parts) - 1
        if isinstance(here, list):
            slot: Any = _index(here, part, source, done)
        elif isinstance(here, dict):
            slot = _own_key(here, part)
        else:
            holder = ".".join(parts[:depth])
            found = f"{holder} is {shown(here)}, which has nothing inside"
            raise InvalidInput(file=source, path=done, found=found, accepted=f"a value for {holder} itself")
        if last:
            here[slot] = value
        else:
            if isinstance(here, dict) and here.get(slot) is None:
                here[slot] = {}
            here = here[slot]


def _own_key(mapping: dict[Any, Any], part: str) -> Any:
    """The mapping's key that is written so (`1` may be a number in YAML), or the part itself."""
    return next((key for key in mapping if str(key) == part), part)


def _index(here: Sequence[Any], part: str, source: str, path: str) -> int:
    if part.isdecimal() and int(part) < len(here):
        return int(part)
    names = [str(each.get("gpu")) for each in here if isinstance(each, dict)]
    hint = f"{part} is entry {names.index(part)}" if part in names else nearest(part, names)
    accepted = f"an index from 0 to {len(here) - 1}" if here else "nothing: the list is empty"
    raise InvalidInput(file=source, path=path, found="no such entry", accepted=accepted, suggestion=hint)
