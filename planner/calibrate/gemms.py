"""GEMM curve from a table of measured shapes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from costmodel.calibration.descent import Values
from costmodel.calibration.gemm import (
    CONSTANTS,
    GemmTable,
    constants_of,
    fit_fp8_speedup,
    fit_gemm,
    gemm_error,
    gemm_seconds,
    left_out_error,
    with_constants,
)
from hardware.accelerator import Accelerator
from planner.calibrate.gemm_table import GemmRow
from planner.calibrate.outcome import Deviation, Fit, Outcome, middle, rounded
from planner.errors import InvalidInput

MOST = 3000
"""Shapes that are fitted; of a longer table so many at random."""
SEED = 20
TERA = 1e12
BOUNDS = (
    (0, 128, "smallest of m, n, k below 128"),
    (128, 1024, "smallest 128 to 1023"),
    (1024, np.inf, "smallest 1024 and more"),
)


def calibrate_gemms(gpu: Accelerator, rows: Sequence[GemmRow], outcome: Outcome) -> None:
    """Adds the curve (and the FP8 speed-up) of all tables, deviations and fits to the outcome."""
    for row in rows:
        _possible(gpu, row)
    table, low = (_table([row for row in rows if row.dtype == dtype]) for dtype in ("bf16", "fp8"))
    if len(low) and gpu.sustained.fp8_speedup is None:
        where = next(row.where for row in rows if row.dtype == "fp8")
        raise InvalidInput(file=where, found=f"fp8, which {gpu.name} has not", accepted="bf16, fp16")
    known = constants_of(gpu.curves.gemm)
    constants = known
    if len(table):
        constants = fit_gemm(gpu, table)
        outcome.deviations += _compared("GEMM, BF16", table, gemm_seconds(gpu, known, table))
        left_out = left_out_error(gpu, table) if len(table) > 1 else None
        after = gemm_error(gpu, constants, table)
        named = {str(name): float(each) for name, each in zip(CONSTANTS, constants, strict=True)}
        fit = Fit("GEMM, BF16", len(table), gemm_error(gpu, known, table), after, left_out, named)
        outcome.fits.append(fit)
        curve = with_constants(gpu.curves.gemm, np.array([rounded(float(each)) for each in constants]))
        shapes = f"{len(table)} BF16 shapes of {', '.join(dict.fromkeys(row.file for row in rows))}"
        changes = {name: getattr(curve, name) for name in CONSTANTS}
        outcome.overlay.setdefault("curves", {})["gemm"] = {
            **changes,
            "error": rounded(after, 2),
            "source": shapes,
        }
    if len(low):
        _low_precision(gpu, constants, low, outcome)


def _possible(gpu: Accelerator, row: GemmRow) -> None:
    """Refuses a product that is faster than the tensor cores are on paper."""
    peak = gpu.peak_flops.get("fp8" if row.dtype == "fp8" else "bf16", np.inf)
    shape = f"{row.m:.0f} x {row.n:.0f} x {row.k:.0f}"
    rate = 2 * row.m * row.n * row.k / row.seconds
    if rate > peak:
        found = f"{shape} in {row.seconds * 1e6:.4g} us is {rate / TERA:.4g} TFLOP/s"
        accepted = (
            f"no more than the dense peak of {gpu.name}, {peak / TERA:.4g} TFLOP/s (is the unit right?)"
        )
        raise InvalidInput(file=row.where, found=found, accepted=accepted)


def _low_precision(gpu: Accelerator, constants: Values, table: GemmTable, outcome: Outcome) -> None:
    known = gpu.sustained.fp8_speedup
    speedup = fit_fp8_speedup(gpu, constants, table)
    before, after = (gemm_seconds(gpu, constants, table, each) for each in (known, speedup))
    outcome.deviations += _compared("GEMM, FP8", table, before)
    errors = [float(np.abs(np.log(each / table.seconds)).mean()) for each in (before, after)]
    first, last = errors
    outcome.fits.append(Fit("GEMM, FP8", len(table), first, last, None, {"fp8_speedup": speedup}))
    outcome.overlay["sustained"] = {"fp8_speedup": rounded(speedup, 4)}


def _table(rows: Sequence[GemmRow]) -> GemmTable:
    """Rows as columns; of very many a random part."""
    if len(rows) > MOST:
        chosen = np.random.default_rng(SEED).choice(len(rows), MOST, replace=False)
        rows = [rows[index] for index in sorted(chosen)]
    columns = np.array([[row.m, row.n, row.k, row.seconds] for row in rows], dtype=float).reshape(-1, 4)
    return GemmTable(*columns.T)


def _compared(what: str, table: GemmTable, expected: Values) -> list[Deviation]:
    smallest = np.minimum(np.minimum(table.m, table.n), table.k)
    flops = 2 * table.m * table.n * table.k
    rows: list[Deviation] = []
    for low, high, name in BOUNDS:
        chosen = (smallest >= low) & (smallest < high)
        if chosen.any():
            measured, wanted = table.seconds[chosen], expected[chosen]
            fast, usual = (
                f"{middle(flops[chosen] / each) / TERA:.4g} TFLOP/s" for each in (measured, wanted)
            )
            ratio = middle(measured / wanted)
            rows.append(Deviation(what, name, int(chosen.sum()), fast, usual, ratio))
    return rows
