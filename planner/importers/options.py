"""Options of a Megatron-LM command line, as its parser would take them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from planner.errors import Refused, nearest, shown
from planner.importers.findings import Finding
from planner.importers.shell_expand import unset_in

FILE = Path(__file__).parent / "megatron_options.yaml"
OPTION = re.compile(r"--[A-Za-z][\w-]*")


@cache
def table() -> dict[str, Any]:
    """`megatron_options.yaml`."""
    return yaml.safe_load(FILE.read_text(encoding="utf-8"))


@cache
def arities() -> dict[str, str]:
    """Every option of the parser and how many values follow it: flags, values or lists."""
    return {name: kind for kind in ("flags", "values", "lists") for name in table()[kind]}


@dataclass
class Options:
    """What was given, by option without its dashes."""

    given: dict[str, list[str]]
    """Values of each option; the last one counts where it is there twice."""
    unknown: dict[str, list[str]] = field(default_factory=dict)
    """Options that the parser does not have."""
    open: dict[str, str] = field(default_factory=dict)
    """Keys of the run whose value is not in the script."""

    def has(self, name: str) -> bool:
        """The flag is set."""
        return name in self.given

    def text(self, name: str, default: str | None = None, key: str = "") -> str | None:
        """An option's value; one that the script does not have is noted under the run's key."""
        values = self.given.get(name)
        if not values:
            return default
        if unset := unset_in(values[0]):
            self.open[key or name] = outside(name, unset[0])
            return default
        return values[0]

    def all(self, name: str) -> list[str]:
        """Values of an option that takes several."""
        return [each for each in self.given.get(name, []) if not unset_in(each)]

    def whole(self, name: str, default: int | None = None, key: str = "", *, least: int = 0) -> int | None:
        """A whole number of a sane size, `least` or more. Raises Refused where it is none."""
        value = self.text(name, key=key)
        if value is None:
            return default
        if not re.fullmatch(r"[+-]?\d{1,9}", value) or int(value) < least:
            raise Refused(f"--{name} {shown(value)}", f"a whole number, {least} or more (below a billion)")
        return int(value)

    def number(self, name: str, default: float | None = None) -> float | None:
        """A number. Raises Refused where it is none."""
        value = self.text(name)
        try:
            return default if value is None else float(value)
        except ValueError:
            raise Refused(f"--{name} {shown(value)}", "a number") from None


def said(name: str) -> str:
    """A variable, or what else stands for a value that comes from outside."""
    return f"${name}" if re.fullmatch(r"\w+", name) else f"`{name}`"


def outside(option: str, name: str) -> str:
    """An option whose value comes from outside the script."""
    hint = f" (--var {name}=...)" if re.fullmatch(r"\w+", name) else ""
    return f"--{option} takes {said(name)}, which the script does not set{hint}"


def parse(words: Sequence[str]) -> Options:
    """Options and values of the words behind the training script. Raises Refused."""
    found = Options({})
    at = 0
    while at < len(words):
        word, at = words[at], at + 1
        if not OPTION.match(word):
            continue
        name, equals, value = word[2:].partition("=")
        values = [value] if equals else []
        while not equals and at < len(words) and not OPTION.match(words[at]):
            values.append(words[at])
            at += 1
        _take(found, name, values)
    return found


def _take(found: Options, name: str, values: list[str]) -> None:
    kinds, renamed = arities(), table()["renamed"]
    spelled = name.replace("_", "-")
    known = (
        renamed[name] if name in renamed else next((each for each in (name, spelled) if each in kinds), None)
    )
    if name != known:
        found.unknown[name] = values
    if known is None:
        return
    if kinds[known] == "values" and not values:
        raise Refused(f"--{name} has no value", f"--{name} VALUE")
    found.given[known] = values


def unknown_options(found: Options) -> list[Finding]:
    """Options that Megatron-LM's parser does not have, each with what was probably meant."""
    kinds, renamed = arities(), table()["renamed"]
    findings: list[Finding] = []
    for name in found.unknown:
        if name in renamed:
            now = f"today it is --{renamed[name]}" if renamed[name] else "it has no successor"
            level, does = ("error", "Megatron-LM stops at it") if name in kinds else ("note", "read as that")
            text = (
                f"--{name} is of an earlier Megatron-LM; {now}; {does if renamed[name] else 'passed over'}."
            )
            findings.append(Finding("removed_option", level, text, f"Drop --{name}."))
            continue
        spelled = name.replace("_", "-")
        near = f"did you mean '--{spelled}'?" if spelled in kinds else dashed(nearest(name, kinds))
        text = f"Megatron-LM (core 0.20) has no --{name} and stops at it, unless the training script adds it."
        findings.append(Finding("unknown_option", "warning", text, near[:1].upper() + near[1:]))
    return findings


def dashed(hint: str) -> str:
    """`did you mean 'x'?` with the dashes of an option."""
    return hint.replace("mean '", "mean '--")
