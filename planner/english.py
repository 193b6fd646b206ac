"""Counted nouns and lists in sentences."""

from __future__ import annotations

from collections.abc import Sequence


def counted(number: float, noun: str, form: str = ",") -> str:
    """1 day, 2 days, 1.0 days: a number as it is shown, and its noun."""
    shown = format(number, form)
    plural = noun + ("es" if noun.endswith(("ch", "s", "x")) else "s")
    return f"{shown} {noun if shown == '1' else plural}"


def enumerated(words: Sequence[str], last: str = "and") -> str:
    """A, B and C."""
    return f" {last} ".join(part for part in (", ".join(words[:-1]), *words[-1:]) if part)
