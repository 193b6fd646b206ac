"""Requirements: limits of the user's own on any decision or prediction, such as `tp == 8` or `mfu >= 0.35`.

A closed grammar, not a language: one name, one comparison, one value (or a list of them after `in`). A
decision may be compared in any way. A prediction can only be limited where limits can be proved: what makes
a run slower, dearer or larger from above, how quickly GPUs train and what is left of them from below.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from costmodel.units import DAY, GIB
from planner import units
from planner.errors import Refused, nearest, shown
from planner.narrowing import PRECISIONS, RECOMPUTE, ZERO_SCOPES, module_set
from planner.site_units import energy, tonnes
from planner.switches import SWITCHES, switch, word

Scalar = int | float | str
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}
OPERATORS = (*COMPARISONS, "in")
COUNTS = (
    "gpus", "nodes", "tp", "cp", "pp", "vpp", "dp", "ep", "etp",
    "micro_batch", "num_microbatches", "global_batch",
)  # fmt: skip
"""Decisions that are whole numbers from 1 up."""
WORDS = {"recompute": RECOMPUTE, "zero_scope": ZERO_SCOPES, "precision": PRECISIONS}
"""Decisions that are one of a few words."""
SWITCH = "ep_overlap"
"""The decision that is on or off."""
MODULES = "recompute_modules"
"""The decision that is a set of modules, or none: what selective recompute repeats."""
NO_MODULES = "none"
DECISIONS = (*COUNTS, "zero", *WORDS, MODULES, SWITCH, "gpu")
COLUMNS = {"gpus": "num_gpus"}
"""What a decision is called in plans, where requirements have a shorter word for it."""


def _in(unit: str, parse: Callable[[object], float], scale: float) -> Callable[[str], float]:
    """Reads a number, in the quantity's own unit if none is given."""

    def read(text: str) -> float:
        bare = re.fullmatch(r"[-+0-9_,.eE]+", text)
        return units.plain(text) if bare else parse(text) / scale

    return read


@dataclass(frozen=True, slots=True)
class Quantity:
    """A prediction that can be limited."""

    unit: str
    """Of a number without a unit."""
    at_most: bool
    """Whether it is limited from above, else from below."""
    read: Callable[[str], float]
    accepted: str


QUANTITIES = {
    "days": Quantity("days", True, _in("days", units.duration, DAY), "days, such as 60 or 8 weeks"),
    "dollars": Quantity("USD", True, _in("USD", units.money, 1), "an amount, such as 2e6 or 2M USD"),
    "step_time_s": Quantity("s", True, _in("s", units.duration, 1), "seconds, such as 10 or 10 s"),
    "memory_gib": Quantity("GiB", True, _in("GiB", units.size, GIB), "GiB of a GPU, such as 70 or 70 GiB"),
    "memory_headroom": Quantity("", False, units.fraction, "a share of each GPU, such as 0.1 or 10%"),
    "energy": Quantity("MWh", True, _in("MWh", energy, 1e3), "MWh, such as 900 or 2.5 GWh"),
    "carbon": Quantity("t", True, _in("t", tonnes, 1), "tonnes of CO2, such as 300 or 2 kt"),
    "mfu": Quantity("", False, units.fraction, "a share, such as 0.35 or 35%"),
    "hfu": Quantity("", False, units.fraction, "a share, such as 0.4 or 40%"),
    "goodput": Quantity("", False, units.fraction, "a share, such as 0.99 or 99%"),
    "tokens_per_s_per_gpu": Quantity("tokens/s", False, units.plain, "a number, such as 400"),
}
NAMES = (*DECISIONS, *QUANTITIES)
ALIASES = {
    "num_gpus": "gpus",
    "cost": "dollars",
    "budget": "dollars",
    "deadline": "days",
    "time": "days",
    "memory": "memory_gib",
    "headroom": "memory_headroom",
    "mwh": "energy",
    "tonnes_co2": "carbon",
    "step_time": "step_time_s",
}
"""Words of solutions and limits for the same."""
EXAMPLES = ("gpus <= 512", "tp == 8", "pp in [4, 8]", "mfu >= 0.35", "memory_gib <= 70")
ACCEPTED = "a name, a comparison and a value, such as gpus <= 512, pp in [4, 8] or mfu >= 0.35"
PATTERN = rf"^\s*(?:{'|'.join((*NAMES, *ALIASES))})\s*(?:<=|>=|==|!=|<|>|\bin\b)\s*[^\s<>=!].*$"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One of them, read."""

    name: str
    operator: str
    values: tuple[Scalar, ...]
    """One value, or those after `in`; predictions in the unit of `QUANTITIES`."""

    @property
    def text(self) -> str:
        """As it is written: what reports and the proof call it."""
        values = [_written(value) for value in self.values]
        return f"{self.name} {self.operator} " + (
            f"[{', '.join(values)}]" if self.operator == "in" else values[0]
        )

    @property
    def decision(self) -> str | None:
        """The decision it is about, by its name in plans; None if it is about a prediction."""
        return COLUMNS.get(self.name, self.name) if self.name in DECISIONS else None

    @property
    def value(self) -> Any:
        """The value, where there is one."""
        return self.values[0]

    def holds(self, found: Any) -> Any:
        """Whether a value keeps to it; elementwise for arrays."""
        if self.operator == "in":
            return reduce(operator.or_, (found == value for value in self.values))
        return COMPARISONS[self.operator](found, self.value)


def _written(value: Scalar) -> str:
    """Short where that is exact; switches as words."""
    if isinstance(value, bool):
        return word(value)
    short = f"{value:.12g}" if isinstance(value, float) else str(value)
    return short if not isinstance(value, float) or float(short) == value else repr(value)


def requirement(value: Any) -> Requirement:
    """Reads `tp == 8`. Raises `Refused`."""
    if isinstance(value, Requirement):
        return value
    if not isinstance(value, str) or not value.strip():
        raise Refused(f"found {shown(value)}", ACCEPTED)
    match = re.fullmatch(r"\s*([A-Za-z_]\w*)\s*(?:([<>=!~]+)|(\w+)(?=[\s\[]))?\s*(.*?)\s*", value)
    if match is None:
        raise Refused(f"found {shown(value)}", ACCEPTED)
    name, sign, word, rest = match.groups()
    name = _name(value, name)
    sign = sign or word or ""
    if sign not in OPERATORS:
        hint = "write == for equality" if sign == "=" else nearest(sign, OPERATORS) if sign else ""
        raise Refused(
            f"found {shown(value)}, in which {shown(sign) if sign else 'nothing'} compares",
            " ".join(OPERATORS), hint,
        )  # fmt: skip
    if not rest:
        raise Refused(f"found {shown(value)}, without a value", ACCEPTED)
    return Requirement(name, sign, _values(value, name, sign, rest))


def _name(text: str, name: str) -> str:
    name = ALIASES.get(name.lower(), name)
    if name in SWITCHES:
        why = "it is never slower on than off, so only what search says has it off"
        raise Refused(f"found {shown(text)}", f"`search: {{{name}: false}}`, or true", why)
    if name not in NAMES:
        raise Refused(f"found {shown(text)}, where {name} is no decision or prediction", ", ".join(NAMES),
                      nearest(name, (*NAMES, *ALIASES)))  # fmt: skip
    return name


def _values(text: str, name: str, sign: str, rest: str) -> tuple[Scalar, ...]:
    if name in QUANTITIES:
        return (_quantity(text, name, sign, rest),)
    if name in ("gpu", SWITCH, MODULES, *WORDS) and sign not in ("==", "!=", "in"):
        raise Refused(f"found {shown(text)}", f"{name} ==, != or in", f"{name} is a name, which has no order")
    inner = rest[1:-1] if rest.startswith("[") and rest.endswith("]") else rest
    if sign == "in":
        parts = [part.strip() for part in inner.split(",") if part.strip()]
        if not parts:
            raise Refused(f"found {shown(text)}, with nothing in the list", f"{name} in [..., ...]")
        return tuple(dict.fromkeys(_value(text, name, part) for part in parts))
    return (_value(text, name, rest),)


def _value(text: str, name: str, part: str) -> Scalar:
    """The value of a decision."""
    part = part.strip("'\"")
    if name == "gpu":
        return part
    if name == SWITCH:
        try:
            return switch(part)
        except Refused:
            raise Refused(f"found {shown(text)}", "on, off", nearest(part, ("on", "off"))) from None
    if name == MODULES:
        try:
            return NO_MODULES if part == NO_MODULES else module_set(part)
        except Refused as refused:
            raise Refused(
                f"found {shown(text)}", f"{NO_MODULES}, or {refused.accepted}", refused.hint
            ) from None
    if name in WORDS:
        if part not in WORDS[name]:
            raise Refused(f"found {shown(text)}", ", ".join(WORDS[name]), nearest(part, WORDS[name]))
        return part
    try:
        return units.count(part, "a ZeRO stage", least=0, most=3) if name == "zero" else units.count(part)
    except Refused as refused:
        raise Refused(
            f"found {shown(text)}", f"{name} compared with {refused.accepted}", refused.hint
        ) from None


def _quantity(text: str, name: str, sign: str, rest: str) -> float:
    """The value of a prediction."""
    of = QUANTITIES[name]
    signs = ("<=", "<") if of.at_most else (">=", ">")
    if sign not in signs:
        way = "from above" if of.at_most else "from below"
        why = f"the search proves plans by how quick and small they can be, so {name} is limited {way} only"
        raise Refused(f"found {shown(text)}", f"{name} {signs[0]} ...", why)
    try:
        found = float(of.read(rest))
    except Refused as refused:
        raise Refused(f"found {shown(text)}", f"{name} {signs[0]} {of.accepted}", refused.hint) from None
    if found <= 0:
        raise Refused(f"found {shown(text)}", f"{name} {signs[0]} a number above 0")
    return found


def _requirements(value: Any) -> tuple[Requirement, ...]:
    """A list of requirements; one may stand without the list."""
    if value is None:
        return ()
    found, each = [], value if isinstance(value, (list, tuple)) else [value]
    for index, one in enumerate(each):
        try:
            found.append(requirement(one))
        except Refused as refused:
            raise refused.below(index) if isinstance(value, (list, tuple)) else refused from None
    return tuple(dict.fromkeys(found))


def in_words(required: Iterable[Requirement], decision: str, words: Iterable[str]) -> None:
    """Refuses requirements on the GPU or the precision that the problem does not have, or that leave none."""
    words = list(dict.fromkeys(words))
    left = words
    where, what = {"gpu": ("no pool has", "a GPU"), "precision": ("training.precision is without", "one")}[
        decision
    ]
    for index, of in enumerate(required):
        if of.name != decision:
            continue
        for value in of.values:
            if value not in words:
                found = f"found {shown(of.text)}, and {where} {value}"
                raise Refused(found, ", ".join(words), nearest(value, words), (index,))
        left = [word for word in left if of.holds(word)]
        if not left:
            none = "pool" if decision == "gpu" else decision
            accepted = f"{what} among {', '.join(words)}"
            raise Refused(f"{shown(of.text)} leaves no {none}", accepted, "", (index,))


def texts(required: Iterable[Requirement]) -> list[str]:
    """As they are written."""
    return [each.text for each in required]


_TEXT = {"type": "string", "pattern": PATTERN, "examples": list(EXAMPLES)}
Requirements = Annotated[
    tuple[Requirement, ...],
    BeforeValidator(_requirements),
    PlainSerializer(texts),
    WithJsonSchema({"anyOf": [{"type": "array", "items": _TEXT}, _TEXT]}),
]
