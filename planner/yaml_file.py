"""YAML read without its traps.

Numbers and booleans follow YAML 1.2: `1e9` is a number, `on`, `no` and `60:00` are text, `010` is
ten, dates are text. Duplicate keys and aliases are refused, so that a file says everything once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from planner.errors import InvalidInput, nearest

MOST_BYTES = 4 * 2**20
NOT_A_FILE = "a YAML file (see `planner schema` for its keys)"


ALIAS = re.compile(r"(?:^|[\s\[{,:?-])\*\S", re.MULTILINE)
"""Where an alias could stand (or the text of a scalar that looks like one)."""


class Loader(yaml.SafeLoader):
    """SafeLoader with YAML 1.2's idea of a number."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark
            raise yaml.MarkedYAMLError(
                problem="aliases (*name) are not read: write the value out", problem_mark=mark
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        _check_keys(self, node)
        return super().construct_mapping(node, deep=deep)


class FastLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # pyright: ignore[reportGeneralTypeIssues]
    """The same in C, which cannot refuse aliases: for texts without any, ten times as fast."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        _check_keys(self, node)
        return super().construct_mapping(node, deep=deep)


def _check_keys(loader: Any, node: Any) -> None:
    """Raises where a key is no plain text or is there twice."""
    seen: set[Any] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, (str, int, float)):
            raise yaml.MarkedYAMLError(problem="keys must be plain text", problem_mark=key_node.start_mark)
        if key in seen:
            raise yaml.MarkedYAMLError(
                problem=f"the key {key!r} is there twice", problem_mark=key_node.start_mark
            )
        seen.add(key)


LOADERS = (Loader, FastLoader)
for loader in LOADERS:
    loader.yaml_implicit_resolvers = {}
for tag, pattern, first in (
    ("tag:yaml.org,2002:bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("tag:yaml.org,2002:null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("tag:yaml.org,2002:int", r"[-+]?[0-9]+", "-+0123456789"),
    ("tag:yaml.org,2002:float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("tag:yaml.org,2002:float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", "-+."),
):
    for loader in LOADERS:
        loader.add_implicit_resolver(tag, re.compile(rf"^(?:{pattern})$"), list(first))


def _int(loader: Any, node: Any) -> int:
    return int(loader.construct_scalar(node))


def _float(loader: Any, node: Any) -> float:
    return float(str(loader.construct_scalar(node)).lower().replace(".inf", "inf").replace(".nan", "nan"))


for loader in LOADERS:
    loader.add_constructor("tag:yaml.org,2002:int", _int)
    loader.add_constructor("tag:yaml.org,2002:float", _float)


def read_text(path: Path, what: str = NOT_A_FILE, most: int = MOST_BYTES) -> str:
    """The text of a file of at most `most` bytes, or what is there instead."""
    file = str(path)
    if path.is_dir():
        raise InvalidInput(file=file, found="is a folder", accepted=what)
    try:
        if path.is_file() and path.stat().st_size > most:
            raise InvalidInput(file=file, found=f"is larger than {most >> 20} MiB", accepted=what)
        data = path.read_bytes()
    except FileNotFoundError:
        raise InvalidInput(
            file=file, found="no such file", accepted=what, suggestion=_neighbour(path)
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidInput(file=file, found=f"cannot be read: {reason}", accepted=what) from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise InvalidInput(file=file, found="is not text (UTF-8)", accepted=what)
    if not text.strip():
        raise InvalidInput(file=file, found="is empty", accepted=what)
    return text


def _neighbour(path: Path) -> str:
    try:
        names = [each.name for each in path.parent.iterdir() if each.is_file()]
    except OSError:
        return ""
    return nearest(path.name, names)


def parse(text: str, file: str) -> Any:
    """YAML text as plain data, or the place of its first error."""
    if not ALIAS.search(text):
        try:
            return yaml.load(text, FastLoader)
        except (yaml.YAMLError, RecursionError, ValueError):
            pass  # the slow loader says what is wrong
    try:
        return yaml.load(text, Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{file}:{mark.line + 1}:{mark.column + 1}" if mark else file
        raise InvalidInput(file=place, found=f"not valid YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise InvalidInput(file=file, found=f"not valid YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise InvalidInput(file=file, found="is nested too deeply", accepted=NOT_A_FILE) from None
    except ValueError as error:
        raise InvalidInput(file=file, found=f"not valid YAML: {error}") from None


def read_mapping(path: Path) -> dict[str, Any]:
    """A YAML file whose top is a mapping."""
    data = parse(read_text(path), str(path))
    if not isinstance(data, Mapping):
        kind = "a list" if isinstance(data, list) else "nothing" if data is None else "a single value"
        raise InvalidInput(file=str(path), found=f"holds {kind}", accepted="a mapping of keys to values")
    return dict(data)
