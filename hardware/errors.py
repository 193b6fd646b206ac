"""What can go wrong with hardware facts, said to the person who wrote them.

ValueError
    UnknownAccelerator   a name that the catalogue does not have
    HardwareFileError    a hardware file or overlay that says something impossible
"""

from __future__ import annotations

import difflib
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from hardware.accelerator import Accelerator


class UnknownAccelerator(ValueError):
    """No GPU of that name is in the catalogue."""

    def __init__(self, name: str, *, likely: tuple[str, ...], known: tuple[str, ...]) -> None:
        guess = f"; did you mean {' or '.join(likely)}?" if likely else "."
        super().__init__(f"unknown GPU {name!r}{guess} Known: {', '.join(known)}")
        self.name = name
        self.likely = likely
        self.known = known

    @property
    def hint(self) -> str:
        """The likely names as a question; nothing where no known name is close."""
        return f"did you mean {' or '.join(map(repr, self.likely))}?" if self.likely else ""


class HardwareFileError(ValueError):
    """A hardware file or overlay says something that cannot be.

    `problems` holds one line a mistake: key path, what was found, what is accepted.
    """

    def __init__(self, where: str, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join(f"{where}: {problem}" for problem in problems))
        self.where = where
        self.problems = problems


def problems(error: ValidationError) -> tuple[str, ...]:
    """One line for each mistake that pydantic found in the facts of an Accelerator."""
    return tuple(
        _problem(detail["type"], detail["loc"], detail["msg"], detail["input"]) for detail in error.errors()
    )


def _problem(kind: str, location: tuple[int | str, ...], message: str, found: Any) -> str:
    path = ".".join(str(step) for step in location)
    if kind == "missing":
        return f"{path}: missing"
    if kind != "extra_forbidden":
        return f"{path}: found {found!r}; {message}"
    fields = _fields_at(location[:-1])
    close = difflib.get_close_matches(str(location[-1]), fields, n=1)
    guess = f"did you mean {close[0]}? " if close else ""
    return f"{path}: unknown key; {guess}accepted: {', '.join(fields)}"


def _fields_at(location: tuple[int | str, ...]) -> list[str]:
    """Keys that the model at a path accepts; plain dictionaries on the way have no fields of their own."""
    model: type[BaseModel] = Accelerator
    for step in location:
        field = model.model_fields.get(str(step))
        if field is not None:
            inner = _model_in(field.annotation)
            model = inner or model
    return list(model.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The pydantic model in `X`, `X | None`, `dict[..., X]` or `dict[..., dict[..., X]]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in get_args(annotation):
        found = _model_in(argument)
        if found is not None:
            return found
    return None
