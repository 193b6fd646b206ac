"""Regular expressions of quantities for the JSON schema, from the tables that the parsers read.

Everything a parser accepts matches; what matches may still be refused for its size. They are written
in the part of the syntax that JSON schema (ECMA 262) and Python share.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from planner.numerals import BINARY_SCALES, SCALES
from planner.units import BITS, BYTES, DOLLARS, SECONDS

NUMBER = r"\+?(?:[0-9][0-9_,]*\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\s*"


def any_of(words: Iterable[str]) -> str:
    """One of some words, longest first."""
    return "(?:" + "|".join(map(re.escape, sorted(words, key=lambda word: (-len(word), word)))) + ")"


def any_case(words: Iterable[str]) -> str:
    """One of some words, whatever its case: schemas have no flag for that."""
    folded = ("".join(f"[{c}{c.upper()}]" if c.isalpha() else re.escape(c) for c in word) for word in words)
    return "(?:" + "|".join(sorted(folded, key=lambda text: (-len(text), text))) + ")"


def whole(pattern: str) -> str:
    """The pattern from the first to the last character, blanks aside."""
    return rf"^\s*{pattern}\s*$"


DECIMAL = NUMBER + any_of(scale for scale in SCALES if scale) + "?"
SCALED = NUMBER + any_of(scale for scale in (*SCALES, *BINARY_SCALES) if scale) + "?"
UNAMBIGUOUS = NUMBER + any_of(s for s in (*SCALES, *BINARY_SCALES) if s.lower() not in ("", "k")) + "?"
AMOUNT = rf"(?:(?:\$|USD)\s*{DECIMAL}|{DECIMAL}\s*{any_of(DOLLARS)})"

TOKENS = whole(rf"{SCALED}\s*(?:tokens?)?")
PARAMETERS = whole(rf"{DECIMAL}\s*(?:parameters|params)?")
SEQUENCE_LENGTH = whole(rf"{UNAMBIGUOUS}\s*(?:tokens?)?")
BATCH = whole(rf"{SCALED}\s*(?:tokens?|sequences?|seqs?)")
MONEY = whole(AMOUNT)
PRICE = whole(rf"{AMOUNT}[/\s]*[gG][pP][uU][-/ ]?[hH](?:[oO][uU][rR][sS]?|[rR])?")
VALUE_OF_TIME = whole(rf"{AMOUNT}\s*/\s*{any_of(SECONDS)}")
DURATION = whole(rf"{NUMBER}{any_case(SECONDS)}")
BANDWIDTH = whole(rf"{NUMBER}{any_of((*BYTES, *BITS))}\s*/\s*s")
FRACTION = whole(rf"{NUMBER}%?")
