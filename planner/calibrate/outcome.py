"""What a calibration found: fitted values, and how far measurements are from what was expected."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from costmodel.calibration.descent import Values


@dataclass(frozen=True, slots=True)
class Deviation:
    """Measurements of one link or kernel over a range of sizes against what was expected there."""

    what: str
    sizes: str
    points: int
    measured: str
    expected: str
    ratio: float
    """Measured over expected time: above 1 the cluster is slower than expected."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Mean |log(predicted/measured)| of one curve, or of the steps."""

    what: str
    points: int
    before: float
    """As catalogue and profiles have it."""
    after: float
    left_out: float | None
    """Points predicted by fits that have not seen them; none where there is one point only."""
    constants: dict[str, float]


@dataclass(slots=True)
class Outcome:
    """Everything that `planner calibrate` says and writes."""

    overlay: dict[str, Any] = field(default_factory=dict)
    """Content of the calibration file."""
    deviations: list[Deviation] = field(default_factory=list)
    fits: list[Fit] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def middle(ratios: Values) -> float:
    """The geometric middle of ratios: their median."""
    return float(np.exp(np.median(np.log(ratios))))


def rounded(value: float, digits: int = 5) -> float:
    """To a few significant digits: a file is read by people."""
    return float(f"{value:.{digits}g}")
