"""What came out of a sweep, in figures: how many of each status, and the best lines."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

Line = dict[str, Any]
BEST = 10
"""Lines that a summary shows unless told otherwise."""
SOLVED = ("optimal", "feasible")


@dataclass(frozen=True, slots=True)
class Best:
    """What-ifs with one and the same plan."""

    line: Line
    """Of the first of them."""
    what_ifs: int
    """How many there are."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Figures of a sweep."""

    by_status: dict[str, int]
    cheapest: tuple[Best, ...]
    """Different plans, the ones that cost least first."""
    fastest: Best | None
    faults: tuple[tuple[str, int], ...]
    """What is wrong with what-ifs that have no answer, most frequent first: (message, how many)."""


def summary(lines: Sequence[Line], best: int = BEST) -> Summary:
    """The figures of some lines."""
    found: dict[str, Best] = {}
    for line in lines:
        if line["status"] in SOLVED:
            money_and_time = [line["estimate"][name] for name in ("dollars", "days")]
            plan = json.dumps(
                [line["decisions"], *(f"{value:.9g}" for value in money_and_time)], sort_keys=True
            )
            old = found.get(plan)
            found[plan] = Best(line, 1) if old is None else replace(old, what_ifs=old.what_ifs + 1)
    by_cost = sorted(found.values(), key=lambda of: _figures(of.line))
    by_time = min(found.values(), key=lambda of: _figures(of.line)[::-1], default=None)
    faults = Counter(line["error"] for line in lines if "error" in line)
    status = dict(sorted(Counter(line["status"] for line in lines).items()))
    return Summary(status, tuple(by_cost[:best]), by_time, tuple(faults.most_common(best)))


def _figures(line: Line) -> tuple[float, float]:
    return line["estimate"]["dollars"], line["estimate"]["days"]
