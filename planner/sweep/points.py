"""What-ifs by their words: `key.path=a,b,c`, `key.path=LO:HI:NUM`, scenarios, grids and pairs."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from operator import itemgetter
from typing import Any

from planner import yaml_file
from planner.errors import InvalidInput, Refused, nearest
from planner.numerals import scaled

MOST_POINTS = 1_000_000
"""More what-ifs are a slip, not a sweep."""
DIGITS = 12
"""Significant digits of the values of a range."""
ACCEPTED = "KEY.PATH=a,b,c or KEY.PATH=LO:HI:NUM: limits.budget=1M USD:3M USD:50, hardware.0.nodes.max=64,128"
NUMERIC = re.compile(r"\s*(?:USD\s*)?[$]?\s*[+-]?\.?\d")


@dataclass(frozen=True, slots=True)
class Vary:
    """A key and the values it takes, in order."""

    key: str
    values: tuple[Any, ...]
    ranged: bool = False
    """Whether some of them come from `LO:HI:NUM`."""


@dataclass(frozen=True, slots=True)
class Point:
    """One what-if: what it changes in the problem."""

    index: int
    scenario: str | None
    overrides: tuple[tuple[str, Any], ...]
    """By dotted path, those of the scenario first."""

    @property
    def id(self) -> str:
        """What tells what-ifs of a problem apart, whatever sweep they are part of.

        Whatever comes first as well, unless one key changes what lies below another.
        """
        keys, pairs = [key for key, _ in self.overrides], list(self.overrides)
        if not any(key != of and key.startswith(f"{of}.") for key in keys for of in keys):
            pairs.sort(key=itemgetter(0))
        text = json.dumps([self.scenario, pairs], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def parse_vary(text: str) -> Vary:
    """`limits.budget=1M USD:3M USD:50`. Raises `InvalidInput`."""
    key, equals, rest = text.partition("=")
    key = key.strip()
    if not equals or not key or not rest.strip():
        raise InvalidInput(file=f"--vary {text}", found="is not a key with values", accepted=ACCEPTED)
    source = f"--vary {key}"
    values, ranged = list[Any](), False
    for item in cut(rest, ","):
        if not item.strip():
            found = "an empty value between commas"
            raise InvalidInput(file=source, found=found, accepted=ACCEPTED, suggestion=f"found {rest!r}")
        parts = cut(item, ":")
        if len(parts) == 3 and all(NUMERIC.match(part) for part in parts):
            low, high, number = (part.strip() for part in parts)
            values += spaced(low, high, number, source)
            ranged = True
        else:
            values.append(yaml_file.parse(item, source))
    return Vary(key, tuple(_distinct(values)), ranged)


def _distinct(values: list[Any]) -> list[Any]:
    """Without repeats, in order."""
    return list({json.dumps(value, sort_keys=True): value for value in values}.values())


def cut(text: str, at: str) -> list[str]:
    """Parts between separators that stand outside quotes and brackets."""
    parts, depth, quote, start = [], 0, "", 0
    for place, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'" and not text[start:place].strip():
            quote = letter
        elif letter in "[{":
            depth += 1
        elif letter in "]}":
            depth -= 1
        elif letter == at and depth <= 0:
            parts.append(text[start:place])
            start = place + 1
    return [*parts, text[start:]]


def spaced(low: str, high: str, number: str, source: str) -> list[Any]:
    """Evenly spaced values from `low` to `high`, both included, in the unit that they are written in."""
    if not number.isdecimal() or not 1 <= int(number) <= MOST_POINTS:
        found = f"{number!r} as the number of values"
        raise InvalidInput(file=source, found=found, accepted="LO:HI:NUM with a whole NUM, 1 or more")
    (first, unit), (last, other) = quantity(low, source), quantity(high, source)
    if unit != other and unit and other:
        found = f"{low!r} and {high!r} are in different units"
        raise InvalidInput(file=source, found=found, accepted="both ends in one unit: 1M USD:3M USD:50")
    steps = max(int(number) - 1, 1)
    values = [first + (last - first) * Fraction(i, steps) for i in range(int(number))]
    return [written(value, unit or other) for value in values]


def quantity(text: str, source: str) -> tuple[Fraction, str]:
    """A number and its unit; a currency may stand before it. Raises `InvalidInput`."""
    match = re.match(r"\s*(USD|[$]|)\s*(.*)", text, re.DOTALL)
    assert match is not None
    try:
        value, unit = scaled(match[2], "a number with its unit")
    except Refused as refused:
        raise InvalidInput(file=source, found=refused.found, accepted=refused.accepted) from None
    # As units are written behind the number: USD, USD/gpu-hour.
    return Fraction(value), f"USD{unit}" if match[1] else unit


def written(value: Fraction, unit: str) -> Any:
    """A number as plain data; with a unit as text."""
    number = int(value) if value.denominator == 1 else float(f"{float(value):.{DIGITS}g}")
    return number if not unit else f"{number} {unit}"


def points(
    varied: Sequence[Vary], scenarios: Mapping[str, Mapping[str, Any]] | None = None, paired: bool = False
) -> list[Point]:
    """All what-ifs: every combination, or with `paired` the first values together, the second, and so on.

    Given scenarios, each of them with each of these. Raises `InvalidInput`.
    """
    for vary, other in itertools.combinations(varied, 2):
        if vary.key == other.key:
            found, accepted = "is varied twice", f"all its values in one: --vary {vary.key}=a,b,c"
            raise InvalidInput(file=f"--vary {vary.key}", found=found, accepted=accepted)
    rows = _paired(varied) if paired else _grid(varied, 1 if scenarios is None else len(scenarios))
    of = {None: {}} if scenarios is None else dict(scenarios)
    found = []
    for (name, changes), row in itertools.product(of.items(), rows):
        own = {vary.key: value for vary, value in zip(varied, row, strict=True)}
        found.append(Point(len(found), name, tuple((dict(changes) | own).items())))
    return found


def _grid(varied: Sequence[Vary], times: int) -> list[tuple[Any, ...]]:
    number = prod(len(vary.values) for vary in varied) * times
    if number > MOST_POINTS:
        found = f"{number:,} what-ifs"
        raise InvalidInput(file="--vary", found=found, accepted=f"at most {MOST_POINTS:,}; or --paired")
    return list(itertools.product(*(vary.values for vary in varied)))


def _paired(varied: Sequence[Vary]) -> list[tuple[Any, ...]]:
    lengths = {vary.key: len(vary.values) for vary in varied}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{key} has {number}" for key, number in lengths.items())
        raise InvalidInput(file="--paired", found=f"lists of different lengths: {found}",
                           accepted="as many values for every key")  # fmt: skip
    return list(zip(*(vary.values for vary in varied), strict=True)) if varied else [()]


def chosen_scenarios(known: Mapping[str, Mapping[str, Any]], names: Sequence[str]) -> dict[str, Any]:
    """The named scenarios, or all of them. Raises `InvalidInput`."""
    for name in names:
        if name not in known:
            accepted = ", ".join(known) or "none: the problem has no scenarios"
            hint = nearest(name, known)
            raise InvalidInput(file=f"--scenario {name}", found="no such scenario", accepted=accepted,
                               suggestion=hint)  # fmt: skip
    if not known:
        raise InvalidInput(file="--scenarios", found="the problem has no scenarios",
                           accepted="scenarios: {name: {key.path: value}} in the problem file")  # fmt: skip
    return {name: known[name] for name in names or known}
