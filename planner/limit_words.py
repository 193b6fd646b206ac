"""Limits in words, rounded so that what is said is enough."""

from __future__ import annotations

import math

from costmodel.units import DAY, TB
from planner.english import counted


def label_of(limit: str) -> str:
    """A limit as a heading: memory headroom, but tokens_per_s_per_gpu >= 5000 and search.micro_batch."""
    written = any(sign in limit for sign in ("search.", "<", ">", "=", " in ["))
    return limit if written else limit.replace("_", " ")


def limit_words(name: str, limit: float, least: float) -> tuple[str, str]:
    """A limit on a run, and what would be enough. Seconds, USD, kWh, tonnes of CO2, bytes of storage."""
    if name == "deadline":
        return days_words(limit / DAY), days_words(least / DAY)
    if name == "budget":
        return dollar_words(limit), dollar_words(least)
    unit, word = {"energy": (1e3, "MWh"), "carbon": (1.0, "t"), "storage": (TB, "TB")}[name]
    return f"{limit / unit:,.4g} {word}", f"{enough(least / unit)} {word}"


def days_words(days: float) -> str:
    """Days rounded up, so that what is said is enough: 66.4 days, 0.3403 days."""
    return counted(rounded_up(days, 1 if days >= 10 else 4), "day", "g")


def dollar_words(cost: float) -> str:
    """Dollars rounded up: $2,130,400, $232.05."""
    return f"${rounded_up(cost, 0 if cost >= 10_000 else 2):,.{0 if cost >= 10_000 else 2}f}"


def enough(value: float) -> str:
    """Rounded up to four digits: 1,235, 0.3142."""
    digits = 3 - math.floor(math.log10(value))
    return f"{rounded_up(value, digits):,.{max(digits, 0)}f}"


def rounded_up(value: float, digits: int) -> float:
    """The least decimal of so many digits that is not below the value."""
    return math.ceil(value * 10**digits * (1 - 1e-12)) / 10**digits


def safer_words(headroom: float) -> str:
    """The setting with which plans leave enough memory free, where too many run out of it."""
    return f"`limits.memory_headroom: {headroom:.0%}` or more plans for a moderate risk at most"
