"""From pydantic's list of errors to one message for the person at the terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from planner.errors import InvalidInput, Refused, nearest, shown

SPELLED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
} | {
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "dict_type": "a mapping",
    "tuple_type": "a list",
    "list_type": "a list",
}


def refusal(error: Mapping[str, Any]) -> Refused:
    """One pydantic error as a refusal, its path included."""
    where = tuple(error["loc"])
    raised = error.get("ctx", {}).get("error")
    if isinstance(raised, Refused):
        return raised.below(*where)
    found = f"found {shown(error['input'])}"
    if error["type"] == "missing":
        return Refused("missing", "this key is required", "", where)
    if error["type"] == "extra_forbidden":
        return Refused("unknown key", "the keys that the documentation lists", "", where)
    if error["type"] == "literal_error":
        choices = re.findall(r"'([^']*)'", error["ctx"]["expected"]) or [error["ctx"]["expected"]]
        return Refused(found, ", ".join(choices), nearest(error["input"], choices), where)
    if isinstance(raised, ValueError):
        return Refused(str(raised), "values that agree with each other", "", where)
    accepted = SPELLED.get(error["type"]) or error["msg"].removeprefix("Input should be ")
    return Refused(found, accepted, "", where)


def first_fault(error: ValidationError) -> Refused:
    """The first fault of a nested validation, to be raised in the outer one."""
    return refusal(error.errors(include_url=False)[0])  # pyright: ignore[reportArgumentType]


def dotted(where: Iterable[str | int]) -> str:
    """A path in a file: `hardware.1.price`."""
    return ".".join(str(part) for part in where)


def invalid_input(error: ValidationError, file: str, overrides: Iterable[str] = ()) -> InvalidInput:
    """Everything that is wrong: the first in full, the others by their path."""
    faults = [refusal(each) for each in error.errors(include_url=False)]  # pyright: ignore[reportArgumentType]
    first, path = faults[0], dotted(faults[0].where)
    others = dict.fromkeys(dotted(fault.where) for fault in faults[1:])
    source = next((key for key in overrides if path == key or path.startswith(f"{key}.")), None)
    return InvalidInput(
        file=file if source is None else f"{file} with -s {source}",
        path=path,
        found=first.found,
        accepted=first.accepted,
        suggestion=first.hint,
        others=[other for other in others if other != path],
    )
