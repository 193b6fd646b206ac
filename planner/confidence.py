"""How far a predicted step time can be off, from runs that were not used to fit the model.

Each run is compared with the measured ones: the nearer the nearest, the stronger the evidence and the
narrower the band, which widens with every step away from what was measured. Distances, measured
configurations and bands are data (`confidence.yaml`, `measured.csv`), made by `scripts/fit_bands.py`
from errors with the whole source left out of the fit.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from costmodel.memory.profile import is_low_precision
from costmodel.parameters import active_parameters
from costmodel.run import Run
from hardware import yaml_text

Evidence = Literal["strong", "fair", "weak"]
GRADES: tuple[Evidence, ...] = ("strong", "fair", "weak")
DATA = Path(__file__).parent
NUMBERS = ("layer", "gpus", "seq_len", "tp", "pp", "cp", "ep", "micro_batch", "num_microbatches")
"""Compared by ratio: their difference counts in doublings."""
LAYER, SEQ_LEN = NUMBERS.index("layer"), NUMBERS.index("seq_len")
KINDS = ("gpu", "precision", "moe", "profile")
"""Compared as equal or not."""
TAIL = 0.1
"""Share of runs beyond either edge of a band."""
EDGE = NormalDist().inv_cdf(1 - TAIL)
ROWS = 512
"""Runs that are compared with the measured ones at once."""


@dataclass(frozen=True, slots=True)
class Band:
    """Measured over predicted step time: four of five runs lie between `low` and `high`."""

    low: float
    high: float
    evidence: Evidence

    def quantile(self, share: float) -> float:
        """Measured over predicted step time that such a share of runs stays below: exp(z/z90 * ln edge).

        A lognormal of two halves that meet at the prediction, each matched to its edge: half of the runs
        take longer than predicted, one in ten longer than `high`, one in ten less than `low`.
        """
        z = NormalDist().inv_cdf(share) / EDGE
        return float(np.exp(z * np.log(self.high) if z > 0 else -z * np.log(self.low)))

    def share_below(self, ratio: float) -> float:
        """Share of runs whose measured over predicted step time is at most `ratio`: inverse of `quantile`."""
        edge = np.log(self.high) if ratio > 1 else -np.log(self.low)
        if ratio <= 0 or not edge:
            return float(ratio >= 1)
        return NormalDist().cdf(float(np.log(ratio) / edge) * EDGE)


def band_of(run: Run) -> Band:
    """The band of one run: log(measured/predicted) between -(a + b*d) and a' + b'*d, d = `distance`.

    The wider of its kind's and of other stacks' where its kind was not measured on its GPU's generation.
    """
    away = distance(run)
    low, high = (float(_edge(run, side, away)) for side in ("low", "high"))
    return Band(float(np.exp(-low)), float(np.exp(high)), grade_of(away))


def _edge(run: Run, side: Literal["low", "high"], away: Any) -> Any:
    """Logarithm of an edge at such distances."""
    kind = kind_of(run)
    measured = run.gpu.generation in _settings()["generations"][kind]
    edges = [_settings()["bands"][each][side] for each in ([kind] if measured else [kind, "other"])]
    return np.max([start + slope * np.asarray(away) for start, slope in edges], axis=0)


def least_margins(run: Run, fewest: Any, share: float) -> NDArray[np.float64]:
    """`Band.quantile(share)` of columns of runs, the least of any number of micro-batches from `fewest`.

    `share` is above one half: then the quantile grows with the distance, and the nearest is the least.
    """
    kinds, most = features(run)
    least = most.copy()
    least[..., NUMBERS.index("num_microbatches")] = np.log2(np.asarray(fewest, dtype=float))
    rows, away = most.reshape(-1, len(NUMBERS)), np.empty(most.size // len(NUMBERS))
    low = least.reshape(rows.shape)
    measured = _nearest(kinds, float(rows[0, LAYER]), float(rows[0, SEQ_LEN])) if len(rows) else _measured()
    for start in range(0, len(rows), ROWS):
        at = slice(start, start + ROWS)
        away[at] = distances(kinds, rows[at], measured, low[at]).min(axis=-1)
    z = NormalDist().inv_cdf(share) / EDGE
    return np.exp(z * _edge(run, "high", away.reshape(most.shape[:-1])))


@cache
def _nearest(kinds: tuple[str, ...], layer: float, seq_len: float) -> Measured:
    """Measured configurations that can be nearest to a run of these kinds, layer and sequence length.

    Whatever else it is: i is never farther than j if c_i + |x_i - x_j| <= c_j, where c is what the kinds,
    the layer and the sequence length make and |x_i - x_j| the distance in all other numbers.
    """
    measured, some = _measured(), [LAYER, SEQ_LEN]
    numbers = measured.numbers.copy()
    numbers[:, some] = [layer, seq_len]
    fixed = np.array([distances(kinds, row, measured)[i] for i, row in enumerate(numbers)])
    between = distances(kinds, numbers, Measured(np.array([kinds] * len(numbers)), numbers))
    order = np.argsort(fixed, kind="stable")
    kept: list[int] = []
    for j in order.tolist():
        if not kept or (fixed[kept] + between[j, kept]).min() > fixed[j]:
            kept.append(j)
    return Measured(measured.kinds[kept], measured.numbers[kept])


def distance(run: Run) -> float:
    """How far a run lies from the nearest measured configuration: shape, layout, scale, GPU and software."""
    return float(distances(*features(run), _measured()).min())


def grade_of(away: float) -> Evidence:
    """Grade of a distance."""
    limits = _settings()["grades"]
    return "strong" if away <= limits["strong"] else "fair" if away <= limits["fair"] else "weak"


def coverage() -> dict[str, float]:
    """Percent of runs within bands that were made without their source, by what the fit left out."""
    return dict(_settings()["coverage"])


def kind_of(run: Run) -> str:
    """Runs of one kind share bands: dense runs of Megatron's line, MoE, and other stacks."""
    if run.architecture.moe is not None:
        return "moe"
    return "megatron" if run.stack.name in _settings()["megatron_profiles"] else "other"


def features(run: Run) -> tuple[tuple[str, ...], NDArray[np.float64]]:
    """What runs are compared by: kinds as text, numbers as log2, (..., numbers) of columns."""
    architecture = run.architecture
    kinds = (
        run.gpu.name,
        "low" if is_low_precision(run.precision) else "16",
        "moe" if architecture.moe else "dense",
        run.stack.name,
    )
    per_layer = active_parameters(architecture) / architecture.layers
    numbers = (per_layer, run.num_gpus, run.seq_len, run.tp, run.pp, run.cp, run.ep, run.micro_batch)
    columns = np.broadcast_arrays(*numbers, run.num_microbatches)
    return kinds, np.log2(np.stack(columns, axis=-1).astype(float))


@dataclass(frozen=True, slots=True)
class Measured:
    """Features of the measured configurations: (rows, kinds) and (rows, numbers)."""

    kinds: NDArray[np.str_]
    numbers: NDArray[np.float64]

    def but(self, left_out: NDArray[np.bool_]) -> Measured:
        """Without some rows."""
        return Measured(self.kinds[~left_out], self.numbers[~left_out])


def distances(
    kinds: tuple[str, ...],
    numbers: NDArray[np.float64],
    measured: Measured,
    least: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Distance to each measured configuration: weights of what differs, and doublings times weights.

    (..., rows) of (..., numbers). With `least` a number may be anything from there on: the nearest counts.
    """
    weights: Mapping[str, Any] = _settings()["weights"]
    unlike = (measured.kinds != np.array(kinds)) @ np.array([weights[name] for name in KINDS])
    away = np.broadcast_to(unlike, (*numbers.shape[:-1], len(unlike))).copy()
    for column, name in enumerate(NUMBERS):
        above = measured.numbers[:, column] - numbers[..., column, None]
        if least is None or np.array_equal(least[..., column], numbers[..., column]):
            away += weights[name] * np.abs(above)
        else:
            below = least[..., column, None] - measured.numbers[:, column]
            away += weights[name] * np.maximum(np.maximum(above, below), 0.0)
    return away


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
    return yaml_text.load((DATA / "confidence.yaml").read_text(encoding="utf-8"))
