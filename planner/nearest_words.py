"""By how much the nearest plan breaks the limits, in words."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log10

from planner.english import counted, enumerated
from planner.loosening import MEMORY, NumberLimit
from planner.near import Near
from planner.reason_words import label

VERBS = {
    "deadline": "is",
    "budget": "is",
    "energy": "takes",
    "carbon": "emits",
    "storage": "keeps",
    MEMORY: "needs",
}
"""What a plan does that breaks a limit; of requirements it has what breaks them."""
SHARES = {"mfu": "MFU", "hfu": "HFU", "goodput": "goodput"}
"""Predictions that are shown in percent."""
COUNTED = {"gpus": "GPUs", "nodes": "nodes", "num_microbatches": "micro-batches"}
"""Decisions that are numbers of something."""
TOO_MANY = 10
"""Beyond a limit by more than so many times it is told as how many times it is."""


def nearest_words(near: Near, broken: Sequence[NumberLimit], gone: Sequence[str], proved: bool) -> str:
    """The nearest plan is 12.3 days too long (20 %) and $4,000 too dear (2 %)."""
    by_verb: dict[str, list[str]] = {does: [] for does in (*VERBS.values(), "has")}
    for of in broken:
        by_verb[VERBS.get(of.of, "has")].append(beyond_words(of, near))
    said = [f"{does} {enumerated(words)}" for does, words in by_verb.items() if words]
    said += [f"does without {enumerated(gone)}"] if gone else []
    which = "plan" if near.phase is None else "run in phases"
    found = "" if proved else " that was found in time"
    last = "" if proved else " There may be nearer ones."
    return f"The nearest {which}{found} {enumerated(said)}.{last}"


def beyond_words(of: NumberLimit, near: Near) -> str:
    """How far a plan is beyond a limit."""
    over, (used, allowed) = near.over(of), (near.used(of), near.allowed(of))
    part = share_words(over / allowed)
    if of.of == "deadline":
        return f"{long_words(over)} too long ({part})"
    if of.of == "budget":
        return f"{money_words(over)} too dear ({part})"
    used_words, allowed_words = apart(used, allowed, 100 if of.of in SHARES else 1)
    if of.of in SHARES:
        return f"{SHARES[of.of]} {used_words} % instead of {allowed_words} %"
    change = f"({part})" if over / allowed >= TOO_MANY else f"({part} {'more' if of.at_most else 'less'})"
    if of.of == MEMORY:
        return f"{used_words} GiB of a GPU instead of {allowed_words} {change}"
    if of.of in COUNTED:
        return f"{used_words} {COUNTED[of.of]} instead of {allowed_words} {change}"
    if not of.unit:
        return f"{label(of.of)} {used_words} instead of {allowed_words} {change}"
    unit = "tokens/s a GPU" if of.unit == "tokens/s" else of.unit
    what = {"step_time_s": "steps of ", "memory_gib": "a fullest GPU of "}.get(of.of, "")
    return f"{what}{used_words} {unit} instead of {allowed_words} {change}"


def long_words(days: float) -> str:
    """Days, or hours and minutes of less than one."""
    if days >= 1:
        return counted(days, "day", ",.1f")
    hours = days * 24
    return counted(hours, "hour", ".2g") if hours >= 1 else counted(hours * 60, "minute", ".2g")


def money_words(dollars: float) -> str:
    """$4,000, or $0.31."""
    return f"${dollars:,.0f}" if dollars >= 100 else f"${dollars:,.2f}"


def share_words(share: float) -> str:
    """How far beyond a limit: 20 %, 0.31 %, or 25 times the limit."""
    if share >= TOO_MANY:
        return f"{1 + share:,.0f} times the limit"
    return f"{share * 100:,.0f} %" if share >= 0.1 else f"{share * 100:.2g} %"


def apart(used: float, allowed: float, scale: float) -> tuple[str, str]:
    """Two numbers in as many digits as it takes to tell them apart, three at least.

    The last digit is no more than a tenth of what they differ by: 99.83 and 99.95 are not 99.8 and 100.
    """
    size, difference = floor(log10(max(used, allowed))) + 1, abs(used - allowed)
    for digits in range(3, 9):
        words = number_words(used * scale, digits), number_words(allowed * scale, digits)
        if words[0] != words[1] and 10.0 ** (size - digits) <= difference / 10:
            break
    return words


def number_words(value: float, digits: int) -> str:
    """A number of so many digits at least, without zeros at its end: 1,180, 41.2, 60."""
    return f"{value:,.0f}" if value >= 10**digits else f"{value:,.{digits}g}"
