"""What measurements of some collectives say about the others: curves and factors of a link as a whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np

from costmodel.calibration.descent import Values
from costmodel.calibration.links import RINGS
from costmodel.collectives import domain_curve
from hardware.accelerator import Accelerator, Collective
from planner.calibrate.outcome import rounded

TRAFFIC = {**dict.fromkeys(RINGS, "ring"), "all_to_all": "all_to_all", "point_to_point": "point_to_point"}
"""The factor that each operation says something about."""
KINDS = ("ring", "all_to_all", "point_to_point")


def known_curve(gpu: Accelerator, op: Collective, ranks: int) -> Values:
    """The catalogue's (alpha, B, c) of so many GPUs, as this GPU's links have it."""
    alpha, bandwidth, root = (float(each) for each in domain_curve(gpu, op, ranks))
    speed = gpu.link.bandwidth_scale
    return np.array([alpha, bandwidth * speed, root / speed**0.5])


def written_curve(constants: Values, error: float, source: str) -> dict[str, Any]:
    """A curve as hardware files have it."""
    alpha, bandwidth, root = (rounded(float(each)) for each in constants)
    return {
        "alpha": alpha,
        "bandwidth": bandwidth,
        "root": root,
        "error": rounded(error, 2),
        "source": source,
    }


def all_curves(
    gpu: Accelerator,
    measured: Mapping[tuple[Collective, int], dict[str, Any]],
    factors: Mapping[str, list[float]],
) -> dict[str, dict[int, dict[str, Any]]]:
    """Curves of every operation and group size: what was not measured moves with the link.

    B*f and c/sqrt(f), f the factor of the same operation at other sizes, else of all that was measured.
    """
    shared = mean([each for some in factors.values() for each in some])
    result: dict[str, dict[int, dict[str, Any]]] = {}
    for op, known in gpu.curves.collectives.items():
        factor = mean(factors[op]) if op in factors else shared
        sizes = sorted({*known, *(ranks for name, ranks in measured if name == op)})
        result[op] = {}
        for ranks in sizes:
            alpha, bandwidth, root = known_curve(gpu, op, ranks)
            moved = np.array([alpha, bandwidth * factor, root / factor**0.5])
            source = f"not measured: the catalogue's curve, its link at {factor:.3f} of the expected rate"
            error = known[min(known, key=lambda size: abs(size - ranks))].error
            result[op][ranks] = measured.get((op, ranks)) or written_curve(moved, error, source)
    return result


def by_kind(factors: Mapping[str, list[float]]) -> dict[str, float]:
    """Factors by kind of traffic; a kind that was not measured takes the mean of those that were.

    Gradients and weights move in reduce-scatters and all-gathers, so these speak for rings where both
    they and all-reduce (which in-network reduction may speed up) were measured.
    """
    found: dict[str, list[float]] = defaultdict(list)
    sharded = any(factors.get(op) for op in ("all_gather", "reduce_scatter"))
    for op, some in factors.items():
        if not (op == "all_reduce" and sharded):
            found[TRAFFIC[op]] += some
    every = mean([mean(some) for some in found.values() if some])
    return {kind: rounded(mean(found[kind]) if found[kind] else every, 4) for kind in KINDS}


def mean(values: list[float]) -> float:
    """Geometric mean; 1 of nothing."""
    return float(np.exp(np.mean(np.log(values)))) if values else 1.0
