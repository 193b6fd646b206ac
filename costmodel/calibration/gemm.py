"""Fits the constants of the tile-wave GEMM curve to a measured table."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from costmodel.calibration.descent import Values, descend
from costmodel.kernels import gemm_time, isolated_gemm_rate
from hardware.accelerator import Accelerator, GemmCurve

CONSTANTS = ("eff_compute", "eff_memory", "t0", "k0", "tile_penalty", "droop")
PRIOR_SD = np.array([0.10, 0.15, 0.5, 0.5, 0.7, 0.5])
"""Standard deviation of each constant's logarithm around the known curve: GPUs of one kind differ by a few
percent in clocks; launch costs and tile effects by library."""
NOISE = 0.06
"""Expected error of a shape, as a logarithm: what the curves reach on held-out shapes."""
LARGE = 1024
"""GEMMs with m, n, k of at least this are what training runs; they weigh most in the fit."""
SMALL_WEIGHT = 0.2
LEAST_DROOP = 1e-3
"""The fit moves constants by factors, so none may start at 0."""
FOLDS = 5


@dataclass(frozen=True, slots=True)
class GemmTable:
    """Measured products (m,k) x (k,n), one entry a shape."""

    m: Values
    n: Values
    k: Values
    seconds: Values

    def take(self, chosen: NDArray[np.bool_] | NDArray[np.int64]) -> GemmTable:
        return GemmTable(self.m[chosen], self.n[chosen], self.k[chosen], self.seconds[chosen])

    @property
    def large(self) -> NDArray[np.bool_]:
        return np.minimum(np.minimum(self.m, self.n), self.k) >= LARGE

    @property
    def weight(self) -> Values:
        return np.where(self.large, 1.0, SMALL_WEIGHT)

    def __len__(self) -> int:
        return len(self.m)


def constants_of(curve: GemmCurve) -> Values:
    """The constants of a curve in the order of `CONSTANTS`, all positive."""
    values = {name: float(getattr(curve, name)) for name in CONSTANTS}
    values["droop"] = max(values["droop"], LEAST_DROOP)
    return np.array(list(values.values()))


def with_constants(curve: GemmCurve, constants: Values) -> GemmCurve:
    """The curve with other constants."""
    return curve.model_copy(update=dict(zip(CONSTANTS, map(float, constants), strict=True)))


def gemm_seconds(
    gpu: Accelerator, constants: Values, table: GemmTable, speedup: float | None = None
) -> Values:
    """Time of each shape running alone; with the FP8 `speedup`, one byte an input element instead of two."""
    curve = with_constants(gpu.curves.gemm, constants)
    chip = gpu.model_copy(update={"curves": gpu.curves.model_copy(update={"gemm": curve})})
    rate = isolated_gemm_rate(chip)
    if speedup is not None:
        rate = replace(rate, flops=rate.flops * speedup, input_bytes=1.0)
    return np.asarray(gemm_time(rate, table.m, table.n, table.k))


def fit_gemm(gpu: Accelerator, table: GemmTable, *, rounds: int = 60, prior: bool = True) -> Values:
    """Constants with the least mean |log error|, large shapes first.

    With `prior` few shapes cannot move the constants far from the known curve:
    loss = sum(w*|e|)/noise + sum((log ratio / sd)^2)/2.
    """
    known = constants_of(gpu.curves.gemm)
    weight = table.weight

    def loss(constants: Values) -> float:
        errors = np.abs(np.log(gemm_seconds(gpu, constants, table) / table.seconds))
        if not prior:
            return float(np.average(errors, weights=weight))
        pull = float((np.log(constants / known) / PRIOR_SD) @ (np.log(constants / known) / PRIOR_SD))
        return float(weight @ errors) / NOISE + pull / 2

    return descend(loss, known, rounds)


def gemm_error(gpu: Accelerator, constants: Values, table: GemmTable) -> float:
    """Mean |log error|, weighted as in the fit."""
    errors = np.abs(np.log(gemm_seconds(gpu, constants, table) / table.seconds))
    return float(np.average(errors, weights=table.weight))


def left_out_error(gpu: Accelerator, table: GemmTable) -> float:
    """The same where each shape is predicted by a fit that has not seen it: every fifth is left out."""
    fold = np.arange(len(table)) % min(FOLDS, len(table))
    errors = np.empty(len(table))
    for each in np.unique(fold):
        constants = fit_gemm(gpu, table.take(fold != each), rounds=30)
        out = fold == each
        errors[out] = np.abs(np.log(gemm_seconds(gpu, constants, table.take(out)) / table.seconds[out]))
    return float(np.average(errors, weights=table.weight))


def fit_fp8_speedup(gpu: Accelerator, constants: Values, table: GemmTable) -> float:
    """FP8 rate over BF16 rate: the known one times what the median shape says."""
    known = gpu.sustained.fp8_speedup
    assert known is not None
    seconds = gemm_seconds(gpu, constants, table, known)
    compute = table.large if table.large.any() else np.ones(len(table), dtype=bool)
    return float(known * np.exp(np.median(np.log(seconds / table.seconds)[compute])))
