"""Estimates of described runs, as other programs read them (the JSON of `planner estimate`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from costmodel.estimate import Estimate, estimate
from costmodel.memory.breakdown import PeakMemory, as_reported
from costmodel.units import GIB
from planner.confidence import Band, band_of
from planner.runs import DescribedRun, RefusedRun

TERA = 1e12
CATEGORIES = ("weights", "gradients", "optimizer", "activations", "buffers", "overhead", "total")


def estimated(described: DescribedRun) -> Estimate:
    """The prediction of a described run, its peak memory as that software tells it.

    Whether it fits does not depend on how memory is told.
    """
    predicted = estimate(
        described.run,
        described.layers,
        described.recomputed,
        assume_mfu=described.facts.assume_mfu,
        nominal_parameters=described.facts.nominal_parameters,
    )
    run, figure = described.run, described.facts.memory_figure or described.run.stack.memory.figure
    return replace(predicted, memory=as_reported(run, predicted.memory, figure))


def reported(runs: Iterable[DescribedRun | RefusedRun]) -> list[dict[str, Any]]:
    """One object a run in its order: the estimate, or `{id, error}`."""
    return [_one(each) for each in runs]


def _one(described: DescribedRun | RefusedRun) -> dict[str, Any]:
    if isinstance(described, RefusedRun):
        return {"id": described.id, "error": described.error}
    try:
        predicted = estimated(described)
    except ValueError as error:
        return {"id": described.id, "error": " ".join(str(error).split())}
    return (
        {"id": described.id}
        | as_data(predicted, band_of(described.run))
        | {"warnings": list(described.warnings)}
    )


def as_data(predicted: Estimate, band: Band) -> dict[str, Any]:
    """An estimate in the units that people read: seconds, TFLOP/s, GiB."""
    seconds = predicted.step_time
    return {
        "step_time_s": seconds,
        "tokens_per_s_per_gpu": predicted.tokens_per_second_per_gpu,
        "model_tflops_per_gpu": predicted.model_flops_per_second_per_gpu / TERA,
        "mfu": predicted.mfu,
        "hfu": predicted.hfu,
        "interval_80": [seconds * band.low, seconds * band.high],
        "evidence": band.evidence,
        "fits": predicted.fits,
        "memory_gib": memory_gib(predicted.memory),
        "breakdown_s": predicted.breakdown,
    }


def memory_gib(memory: PeakMemory) -> dict[str, float]:
    """Memory of the fullest rank by category."""
    return {name: float(getattr(memory, name)) / GIB for name in CATEGORIES}
