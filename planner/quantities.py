"""Named types of the problem file: how a field is read, written back, and shown in the schema.

A value is written back with its unit, so that a problem survives a round trip through a file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, floor
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema, core_schema

from costmodel.units import DAY
from hardware.documented import Documented
from planner import patterns, units
from planner.english import counted
from planner.errors import Refused, nearest, shown


class Strict(Documented):
    """Frozen, and closed: an unknown key is an error that names the nearest known one."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        keys = list(cls.model_fields)
        if isinstance(data, BaseModel):
            return data
        if not isinstance(data, dict):
            raise Refused(f"found {shown(data)}", f"a mapping with keys {', '.join(keys)}")
        for key in data:
            if key not in cls.model_fields:
                raise Refused("unknown key", ", ".join(keys), nearest(key, keys), where=(str(key),))
        return data


def written_duration(seconds: float) -> str:
    """Days where that is exact, else seconds."""
    days = seconds / DAY
    return counted(days, "day", "g") if float(f"{days:g}") * DAY == seconds else f"{seconds!r} s"


@dataclass(frozen=True)
class Quantity:
    """How a number with a unit is read, written back and shown in the schema; annotates a type."""

    read: Callable[[Any], Any]
    write: Callable[[Any], Any]
    examples: tuple[str | float, ...]
    pattern: str = ""
    """What text has to look like, for editors (`planner.patterns`)."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Reads before pydantic's own check of the type."""
        written = core_schema.plain_serializer_function_ser_schema(self.write)
        return core_schema.no_info_before_validator_function(
            self.read, handler(source), serialization=written
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Text, or a number where one without a unit is accepted."""
        kinds = sorted({"string" if isinstance(each, str) else "number" for each in self.examples})
        pattern = {"pattern": self.pattern} if self.pattern else {}
        return {"type": kinds if len(kinds) > 1 else kinds[0], "examples": list(self.examples)} | pattern


def _value_of_time(dollars_per_second: float) -> str:
    a_day = dollars_per_second * DAY
    exact = float(f"{a_day:g}") / DAY == dollars_per_second
    return f"{a_day:g} USD/day" if exact else f"{dollars_per_second!r} USD/s"


Tokens = Annotated[
    int, Quantity(units.tokens, lambda n: f"{n} tokens", ("3T", "300B", 3e12), patterns.TOKENS)
]
Parameters = Annotated[float, Quantity(units.parameters, float, ("70B", 7e10), patterns.PARAMETERS)]
SequenceLength = Annotated[int, Quantity(units.sequence_length, int, (4096, "8Ki"), patterns.SEQUENCE_LENGTH)]
Dollars = Annotated[float, Quantity(units.money, lambda x: f"{x!r} USD", ("2M USD", "$150k"), patterns.MONEY)]
Price = Annotated[
    float, Quantity(units.price, lambda x: f"{x!r} USD/gpu-hour", ("2.00 USD/gpu-hour",), patterns.PRICE)
]
ValueOfTime = Annotated[
    float, Quantity(units.value_of_time, _value_of_time, ("20k USD/day",), patterns.VALUE_OF_TIME)
]
Duration = Annotated[
    float,
    Quantity(units.duration, written_duration, ("60 days", "36 h", "8 weeks"), patterns.DURATION),
]
Bandwidth = Annotated[
    float,
    Quantity(units.bandwidth, lambda x: f"{x!r} B/s", ("50 GB/s", "400 Gbit/s"), patterns.BANDWIDTH),
]
Fraction = Annotated[float, Quantity(units.fraction, float, (0.05, "5%"), patterns.FRACTION)]
Number = Annotated[float, Quantity(units.plain, float, (1, 0.5))]
Count = Annotated[int, Quantity(units.count, int, (8,))]

T = TypeVar("T")


class Range(Strict, Generic[T]):
    """From `min` to `max`, both included."""

    min: T
    max: T


def as_bounds(value: Any, *, least: Any = None) -> dict[str, Any]:
    """One value or {min, max} as {min, max}; `min` may be left out where `least` says what it is then."""
    if isinstance(value, Range):
        return {"min": value.min, "max": value.max}
    if not isinstance(value, dict):
        return {"min": value, "max": value}
    for key in value:
        if key not in ("min", "max"):
            raise Refused("unknown key", "min, max", nearest(key, ("min", "max")), where=(str(key),))
    if value.get("max") is None:
        raise Refused("no max", "one value, or {min: ..., max: ...}", where=("max",))
    low = least if value.get("min") is None else value["min"]
    if low is None:
        raise Refused("no min", "one value, or {min: ..., max: ...}", where=("min",))
    return {"min": low, "max": value["max"]}


def counted_range(value: Any) -> dict[str, int]:
    """GPUs or nodes: a number (exactly that many) or {min, max}; min is 1 unless given."""
    bounds = as_bounds(value, least=1)
    read: dict[str, int] = {}
    for key, each in bounds.items():
        try:
            read[key] = units.count(each)
        except Refused as refused:
            raise refused.below(key) if isinstance(value, dict) else refused from None
    if read["min"] > read["max"]:
        raise Refused(f"min {read['min']} is above max {read['max']}", "min not above max")
    return read


def batch_range(value: Any, seq_len: int) -> dict[str, int]:
    """A batch or {min, max}, in tokens or sequences, as sequences of `seq_len` tokens.

    A range in tokens keeps the whole sequences inside it; a single value must be whole sequences,
    since otherwise the planner would have to guess which batch is meant.
    """
    bounds = as_bounds(value)
    size: dict[str, Any] = {}
    for key, each in bounds.items():
        try:
            number, unit = units.batch(each)
        except Refused as refused:
            raise refused.below(key) if isinstance(value, dict) else refused from None
        size[key] = number if unit == "sequences" else number / seq_len
    low, high = ceil(size["min"]), floor(size["max"])
    if not isinstance(value, dict) and low != high:
        below, above = f"{high} sequences", f"{low} sequences"
        raise Refused(
            f"found {shown(value)}, which is {float(size['max']):.2f} sequences of {seq_len} tokens",
            f"whole sequences, such as {below if high else above} or {above}, or {{min: ..., max: ...}}",
        )
    if size["min"] > size["max"]:
        raise Refused("min is above max", "min not above max")
    if low > high or high < 1:
        raise Refused(f"no whole number of sequences of {seq_len} tokens is in the range", "a wider range")
    return {"min": low, "max": high}
