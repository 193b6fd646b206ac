"""Numbers as people write them: 1,000,000, 1_000, 2.5e9, 3T, 4Mi; exact, finite, of a sane size."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

from planner.errors import Refused, shown

SCALES = {"": 1, "K": 10**3, "k": 10**3, "M": 10**6, "B": 10**9, "G": 10**9, "T": 10**12}
MOST_DIGITS = 30
"""No plan has a number longer than this; arithmetic on one could overflow."""
BINARY_SCALES = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
NUMBER = re.compile(
    r"(?P<digits>[+-]?(?:\d[\d_,]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[+-]?\.?(?:nan|inf(?:inity)?))", re.I
)
GROUPED = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")


def split(value: object, accepted: str) -> tuple[Decimal, str]:
    """A finite number, and the text that follows it."""
    if isinstance(value, bool) or value is None or not isinstance(value, (int, float, str, Decimal)):
        hint = "YAML reads true and false as booleans" if isinstance(value, bool) else ""
        raise Refused(f"found {shown(value)}", accepted, hint)
    text = str(value).strip()
    match = NUMBER.match(text)
    if match is None:
        raise Refused(f"found {shown(value)}", accepted)
    digits, rest = match["digits"], text[match.end() :].strip()
    if "," in digits and not GROUPED.fullmatch(digits):
        raise Refused(f"found {shown(value)}", accepted, "a comma only groups thousands (1,000,000)")
    try:
        number = Decimal(re.sub("[,_]", "", digits).replace(".inf", "inf").replace(".nan", "nan"))
    except InvalidOperation:
        raise Refused(f"found {shown(value)}", accepted) from None
    if not number.is_finite():
        raise Refused(f"found {shown(value)}, which is not a finite number", accepted)
    if number and number.adjusted() > MOST_DIGITS:
        raise Refused(f"found {shown(value)}, which is more than any plan has", accepted)
    return number, rest


def scaled(value: object, accepted: str, *, binary: bool = True) -> tuple[Decimal, str]:
    """A number with an optional K, M, B, T (or Ki, Mi, Gi), and the unit that follows."""
    number, rest = split(value, accepted)
    scales = {**SCALES, **(BINARY_SCALES if binary else {})}
    for suffix in sorted(scales, key=len, reverse=True):
        after = rest[len(suffix) :]
        if rest.startswith(suffix) and (not after or not after[0].isalpha()):
            return number * scales[suffix], after.strip()
    if number and number.adjusted() > MOST_DIGITS:
        raise Refused(f"found {shown(value)}, which is more than any plan has", accepted)
    return number, rest


def within(number: Decimal, value: object, accepted: str, most: float, *, zero: bool = False) -> Decimal:
    """The number, if it is positive (or zero where that makes sense) and not absurd."""
    if number < 0 or (number == 0 and not zero):
        raise Refused(f"found {shown(value)}, which is not positive", accepted)
    if number > Decimal(most):
        raise Refused(f"found {shown(value)}, which is more than any plan has ({most:.6g})", accepted)
    if number and number < Decimal("1e-9"):
        raise Refused(f"found {shown(value)}, which is next to nothing", accepted)
    return number


def whole(number: Decimal, value: object, accepted: str) -> int:
    """The number as an integer, if it is one."""
    if number != number.to_integral_value():
        raise Refused(f"found {shown(value)}, which is not a whole number", accepted)
    return int(number)


def count(
    value: object, accepted: str = "a whole number, 1 or more", *, least: int = 1, most: int = 10**7
) -> int:
    """A plain whole number."""
    number, rest = split(value, accepted)
    if rest:
        raise Refused(f"found {shown(value)}", accepted)
    result = whole(number, value, accepted)
    if not least <= result <= most:
        raise Refused(f"found {shown(value)}", f"{accepted} (from {least} to {most})")
    return result
