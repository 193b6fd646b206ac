"""How far a predicted step time can be off, from runs that were not used to fit the model.

Each run is compared with the measured ones: the nearer the nearest, the stronger the evidence and the
narrower the band. Distances, measured configurations and bands are data (`confidence.yaml`,
`measured.csv`), made by `scripts/fit_bands.py` from errors with the whole source left out of the fit.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml
from numpy.typing import NDArray

from costmodel.memory.profile import is_low_precision
from costmodel.parameters import active_parameters
from costmodel.run import Run

Evidence = Literal["strong", "fair", "weak"]
GRADES: tuple[Evidence, ...] = ("strong", "fair", "weak")
DATA = Path(__file__).parent
NUMBERS = ("layer", "gpus", "seq_len", "tp", "pp", "cp", "ep", "micro_batch", "num_microbatches")
"""Compared by ratio: their difference counts in doublings."""
KINDS = ("gpu", "precision", "moe", "profile")
"""Compared as equal or not."""


@dataclass(frozen=True, slots=True)
class Band:
    """Measured over predicted step time: four of five runs lie between `low` and `high`."""

    low: float
    high: float
    evidence: Evidence


def band_of(run: Run) -> Band:
    """The band of one run."""
    kinds, numbers = features(run)
    measured = _measured()
    distance = distances(kinds, numbers, measured).min()
    limits = _settings()["grades"]
    grade: Evidence = (
        "strong" if distance <= limits["strong"] else "fair" if distance <= limits["fair"] else "weak"
    )
    bands = _settings()["bands"]
    low, high = bands[kind_of(run)][grade]
    return Band(low, high, grade)


def coverage() -> dict[str, float]:
    """Percent of runs within bands that were made without their source, by what the fit left out."""
    return dict(_settings()["coverage"])


def kind_of(run: Run) -> str:
    """Runs of one kind share bands: dense runs of Megatron's line, MoE, and other stacks."""
    if run.architecture.moe is not None:
        return "moe"
    return "megatron" if run.stack.name in _settings()["megatron_profiles"] else "other"


def features(run: Run) -> tuple[tuple[str, ...], NDArray[np.float64]]:
    """What runs are compared by: kinds as text, numbers as log2."""
    architecture = run.architecture
    kinds = (
        run.gpu.name,
        "low" if is_low_precision(run.precision) else "16",
        "moe" if architecture.moe else "dense",
        run.stack.name,
    )
    per_layer = active_parameters(architecture) / architecture.layers
    numbers = (per_layer, run.num_gpus, run.seq_len, run.tp, run.pp, run.cp, run.ep, run.micro_batch)
    return kinds, np.log2(np.array([*numbers, run.num_microbatches], dtype=float))


@dataclass(frozen=True, slots=True)
class Measured:
    """Features of the measured configurations: (rows, kinds) and (rows, numbers)."""

    kinds: NDArray[np.str_]
    numbers: NDArray[np.float64]

    def but(self, left_out: NDArray[np.bool_]) -> Measured:
        """Without some rows."""
        return Measured(self.kinds[~left_out], self.numbers[~left_out])


def distances(
    kinds: tuple[str, ...], numbers: NDArray[np.float64], measured: Measured
) -> NDArray[np.float64]:
    """Distance to each measured configuration: weights of what differs, and doublings times weights."""
    weights: Mapping[str, Any] = _settings()["weights"]
    unlike = (measured.kinds != np.array(kinds)) @ np.array([weights[name] for name in KINDS])
    return unlike + np.abs(measured.numbers - numbers) @ np.array([weights[name] for name in NUMBERS])


@cache
def _measured() -> Measured:
    with (DATA / "measured.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return Measured(
        np.array([[row[name] for name in KINDS] for row in rows]),
        np.array([[float(row[name]) for name in NUMBERS] for row in rows]),
    )


@cache
def _settings() -> dict[str, Any]:
    return yaml.safe_load((DATA / "confidence.yaml").read_text(encoding="utf-8"))
