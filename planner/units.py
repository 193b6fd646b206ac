"""Numbers with units, by a small closed table.

A general unit library would read `3T` as three tesla and `70B` as bytes. Here every field says what
it holds, and each parser knows the handful of spellings that make sense for it. Results are SI:
seconds, bytes, bytes/s, dollars; prices are USD per GPU-hour as everybody quotes them. Everything
else raises `Refused` and says what is accepted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal

from costmodel.units import DAY, HOUR
from planner.errors import Refused, nearest, shown
from planner.numerals import count, scaled, split, whole, within

SECONDS = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1),
    **dict.fromkeys(("min", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hr", "hour", "hours"), int(HOUR)),
    **dict.fromkeys(("d", "day", "days"), int(DAY)),
    **dict.fromkeys(("w", "wk", "week", "weeks"), 7 * int(DAY)),
}
CALENDAR = ("month", "months", "mo", "year", "years", "yr", "y", "quarter", "quarters")
BYTES = {
    **{"B": 1, "KB": 10**3, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "PB": 10**15},
    **{"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50},
}
BITS = {
    f"{scale}{bit}": 10**power // 8 for scale, power in (("G", 9), ("T", 12)) for bit in ("b", "bit", "bits")
}
PER_GPU_HOUR = ("gpu-hour", "gpu-hours", "gpu-hr", "gpu-h", "gpu/hour", "gpu/h", "gpuh", "gpu hour")
DOLLARS = ("USD", "usd", "$", "dollars", "dollar")

# What is larger is a slip of the unit, not a plan.
MOST_TOKENS = 10**16
MOST_PARAMETERS = 10**15
MOST_SECONDS = 100 * 366 * DAY
MOST_DOLLARS = 1e13
MOST_DOLLARS_PER_GPU_HOUR = 1000.0
MOST_BYTES = 1e18


def tokens(value: object) -> int:
    """Training tokens: 3T, 300B, 2M tokens, 1e12."""
    accepted = "a number of tokens such as 3T, 300B or 1.5T tokens"
    number, unit = scaled(value, accepted)
    if unit not in ("", "token", "tokens"):
        raise Refused(f"found {shown(value)}", accepted, nearest(unit, ("tokens",)))
    return whole(within(number, value, accepted, MOST_TOKENS), value, accepted)


def parameters(value: object) -> float:
    """Parameters of a model: 70B."""
    accepted = "a number of parameters such as 70B or 1.8T"
    number, unit = scaled(value, accepted, binary=False)
    if unit not in ("", "parameters", "params"):
        raise Refused(f"found {shown(value)}", accepted)
    return float(within(number, value, accepted, MOST_PARAMETERS))


def sequence_length(value: object) -> int:
    """Tokens in a sequence: 4096 or 4Ki; 4K is refused, since people mean both 4000 and 4096 by it."""
    accepted = "tokens in a sequence, such as 4096 or 4Ki"
    number, unit = scaled(value, accepted)
    if isinstance(value, str) and re.search(r"\d\s*[kK](?!i)", value):
        raise Refused(f"found {shown(value)}, which may mean 1000s or 1024s", accepted)
    if unit not in ("", "token", "tokens"):
        raise Refused(f"found {shown(value)}", accepted)
    return whole(within(number, value, accepted, 2**27), value, accepted)


def batch(value: object) -> tuple[Decimal, str]:
    """A batch: its size and `tokens` or `sequences`."""
    accepted = "a batch such as 4Mi tokens, 2M tokens or 1024 sequences"
    number, unit = scaled(value, accepted)
    within(number, value, accepted, 10**12)
    if unit in ("sequence", "sequences", "seq", "seqs"):
        return Decimal(whole(number, value, accepted)), "sequences"
    if unit in ("token", "tokens"):
        return number, "tokens"
    hint = "say tokens or sequences" if not unit else nearest(unit, ("tokens", "sequences"))
    raise Refused(f"found {shown(value)}", accepted, hint)


def money(value: object) -> float:
    """US dollars: 2M USD, $2M, 1,500,000 USD."""
    accepted = "an amount in US dollars such as 2M USD, $2M or 150k USD"
    number, unit = dollars_with_rest(value, accepted)
    if unit:
        raise Refused(f"found {shown(value)}", accepted, nearest(unit, ("USD",)))
    return float(within(number, value, accepted, MOST_DOLLARS))


def dollars_with_rest(value: object, accepted: str) -> tuple[Decimal, str]:
    """An amount with its currency, and what follows the currency."""
    text = value.strip() if isinstance(value, str) else value
    leading = ""
    if isinstance(text, str):
        leading = next((sign for sign in ("$", "USD") if text.startswith(sign)), "")
        text = text[len(leading) :].strip()
    try:
        number, rest = scaled(text, accepted, binary=False)
    except Refused as refused:
        raise Refused(refused.found.replace(shown(text), shown(value)), accepted, refused.hint) from None
    trailing = "" if leading else next((sign for sign in DOLLARS if rest.startswith(sign)), "")
    if not leading and not trailing:
        hint = (
            "say USD; other currencies are not known"
            if rest and rest[0] != "/"
            else f"write {text} USD" + rest
        )
        raise Refused(f"found {shown(value)}", accepted, hint)
    return number, rest[len(trailing) :].strip()


def price(value: object) -> float:
    """USD per GPU-hour: 0.80 USD/gpu-hour, $2/gpu-hour."""
    accepted = "a price such as 2.00 USD/gpu-hour or $0.80/gpu-hour"
    number, unit = dollars_with_rest(value, accepted)
    unit = unit.lstrip("/ ").lower()
    if unit not in PER_GPU_HOUR:
        hint = "a price is per GPU and hour: USD/gpu-hour" if not unit or unit in SECONDS else ""
        raise Refused(f"found {shown(value)}", accepted, hint or nearest(unit, PER_GPU_HOUR))
    if number == 0:
        hint = "for GPUs you own, put what an hour costs in power and depreciation"
        raise Refused(f"found {shown(value)}, which is not positive", accepted, hint)
    return float(within(number, value, accepted, MOST_DOLLARS_PER_GPU_HOUR))


def value_of_time(value: object) -> float:
    """USD per second from what finishing a day earlier is worth: 20k USD/day."""
    accepted = "what time is worth, such as 20k USD/day or 500 USD/h"
    number, unit = dollars_with_rest(value, accepted)
    if not unit.startswith("/") or unit[1:].strip() not in SECONDS:
        raise Refused(f"found {shown(value)}", accepted)
    return float(within(number, value, accepted, MOST_DOLLARS) / SECONDS[unit[1:].strip()])


def duration(value: object, *, zero: bool = False) -> float:
    """Seconds: 60 days, 8 weeks, 36 h. Months and years are refused: their length is not fixed."""
    accepted = "a duration such as 60 days, 8 weeks or 36 h"
    number, unit = split(value, accepted)
    if not unit:
        raise Refused(f"found {shown(value)} without a unit", accepted, "YAML 1.1 reads 60:00 as 3600")
    if unit.startswith(":"):
        raise Refused(f"found {shown(value)}", accepted, "write 60:00 as 60 min or 60 h, whichever is meant")
    if unit.lower() in CALENDAR:
        raise Refused(
            f"found {shown(value)}", accepted, f"the length of a {unit.rstrip('s')} varies: give days"
        )
    if unit.lower() in ("m", "mins"):
        raise Refused(
            f"found {shown(value)}, which may mean minutes or months", accepted, "write min or days"
        )
    if unit.lower() not in SECONDS:
        raise Refused(f"found {shown(value)}", accepted, nearest(unit, SECONDS))
    return float(within(number * SECONDS[unit.lower()], value, accepted, MOST_SECONDS, zero=zero))


def with_unit(
    value: object,
    accepted: str,
    scales: Mapping[str, int | Decimal],
    most: float,
    *,
    bare: Callable[[str], str] = str.strip,
    zero: bool = False,
) -> float:
    """A number with one of the units of `scales`, in the unit whose scale is 1.

    `bare` takes away what a unit may be written with: of tCO2eq it leaves t.
    """
    number, written = split(value, accepted)
    unit = bare(written)
    if unit not in scales:
        raise Refused(f"found {shown(value)}", accepted, nearest(unit, scales) if unit else "")
    return float(within(number * scales[unit], value, accepted, most, zero=zero))


def size(value: object) -> float:
    """Bytes: 80 GB (1e9), 75 GiB (2^30)."""
    return with_unit(value, "a size such as 80 GB (10^9 bytes) or 75 GiB (2^30 bytes)", BYTES, MOST_BYTES)


def bandwidth(value: object) -> float:
    """Bytes per second in one direction: 50 GB/s, 400 Gbit/s."""
    accepted = "a bandwidth such as 50 GB/s (bytes) or 400 Gbit/s (bits)"
    number, unit = split(value, accepted)
    unit = unit.replace(" ", "")
    scale = {**BYTES, **BITS}.get(unit.removesuffix("/s")) if unit.endswith("/s") else None
    if scale is None:
        raise Refused(f"found {shown(value)}", accepted)
    return float(within(number * scale, value, accepted, MOST_BYTES))


def fraction(value: object) -> float:
    """A share between 0 and 1: 0.05 or 5%."""
    accepted = "a fraction from 0 to 1, such as 0.05 or 5%"
    number, unit = split(value, accepted)
    if unit not in ("", "%"):
        raise Refused(f"found {shown(value)}", accepted)
    share = number / 100 if unit else number
    if not 0 <= share <= 1:
        hint = f"did you mean {float(number):g}%?" if not unit and 1 < number <= 100 else ""
        raise Refused(f"found {shown(value)}", accepted, hint)
    return float(share)


def plain(value: object) -> float:
    """A finite number without a unit."""
    accepted = "a positive number"
    number, rest = split(value, accepted)
    if rest:
        raise Refused(f"found {shown(value)}", accepted)
    return float(within(number, value, accepted, 1e15))


__all__ = [
    "bandwidth",
    "batch",
    "count",
    "duration",
    "fraction",
    "money",
    "parameters",
    "plain",
    "price",
    "sequence_length",
    "size",
    "tokens",
    "value_of_time",
]
