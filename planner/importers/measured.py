"""Measured figures beside predicted ones: sparse peaks, MFU that cannot be, steps that are too slow."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from costmodel.estimate import Estimate
from planner.confidence import band_of
from planner.importers.findings import Finding
from planner.importers.launch import Launch
from planner.runs import DescribedRun

TERA = 1e12
SPARSITY = 2
"""The peak with structured sparsity over the dense one."""
CLOSE = 0.06
PLAUSIBLE = 0.65
"""No published large run has a higher MFU over the dense peak."""
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")


def measurements(launch: Launch, described: DescribedRun, estimate: Estimate) -> list[Finding]:
    """What measured figures (`measured: {step_time_s, tflops_per_gpu, mfu, ...}`) and peaks show."""
    measured = launch.written.get("measured")
    told = (
        {key: float(value) for key, value in measured.items() if _number(value)}
        if isinstance(measured, Mapping)
        else {}
    )
    return (
        sparse_peaks(launch, described)
        + implausible(told, described, estimate)
        + apart(told, described, estimate)
    )


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0


def sparse_peaks(launch: Launch, described: DescribedRun) -> list[Finding]:
    """Variables that hold the GPU's peak with sparsity, which no dense training reaches."""
    gpu, precision = described.run.gpu, described.run.precision
    dense = gpu.peak_flops.get(
        "fp8" if precision.startswith(("fp8", "mxfp8")) else "bf16", gpu.peak_flops["bf16"]
    )
    found: list[Finding] = []
    for name, text in launch.peaks.items():
        if not (match := NUMBER.search(text)):
            continue
        peak = float(match.group(0))
        peak = peak * TERA if peak < TERA / 1000 else peak
        if abs(peak / (SPARSITY * dense) - 1) < CLOSE:
            text = (
                f"{name} is {peak / TERA:,.0f} TFLOP/s, the peak of {gpu.name} with 2:4 sparsity; "
                "dense it is "
                f"{dense / TERA:,.0f}. An MFU over it reads half of what it is."
            )
            found.append(
                Finding("sparse_peak", "warning", text, f"{name}={dense / TERA:.0f}e12.", {"dense": dense})
            )
    return found


def measured_mfu(told: Mapping[str, float], described: DescribedRun, estimate: Estimate) -> float | None:
    """MFU over the dense BF16 peak that a measured step time or throughput means."""
    flops = estimate.model_flops_per_second_per_gpu
    for key, predicted in (
        ("tokens_per_s_per_gpu", estimate.tokens_per_second_per_gpu),
        ("tflops_per_gpu", flops / TERA),
    ):
        if key in told:
            return estimate.mfu * told[key] / predicted
    return estimate.mfu * estimate.step_time / told["step_time_s"] if "step_time_s" in told else None


def implausible(told: Mapping[str, float], described: DescribedRun, estimate: Estimate) -> list[Finding]:
    """An MFU that is half of what the throughput means, or above what any run reaches."""
    meant, stated = measured_mfu(told, described, estimate), told.get("mfu")
    low_precision = described.run.precision.startswith(("fp8", "mxfp8", "nvfp4"))
    found: list[Finding] = []
    if meant and stated and abs(stated * SPARSITY / meant - 1) < CLOSE:
        text = (
            f"an MFU of {stated:.1%} is told, but the throughput means {meant:.1%}: the peak was the "
            "one with sparsity."
        )
        found.append(Finding("sparse_peak", "warning", text, "The dense peak.", {"mfu": meant}))
    highest = max(filter(None, (meant, stated)), default=0.0)
    if highest > PLAUSIBLE and not low_precision:
        text = f"an MFU of {highest:.0%} is more than published runs reach ({PLAUSIBLE:.0%} and below)."
        fix = "Look whether all layers were built, and which FLOPs were counted."
        found.append(Finding("implausible_mfu", "warning", text, fix, {"mfu": highest}))
    return found


def apart(told: Mapping[str, float], described: DescribedRun, estimate: Estimate) -> list[Finding]:
    """A measured step outside the band of the prediction."""
    meant = measured_mfu(told, described, estimate)
    if meant is None:
        return []
    measured = estimate.step_time * estimate.mfu / meant
    band = band_of(described.run)
    if estimate.step_time * band.low <= measured <= estimate.step_time * band.high:
        return []
    side = "longer" if measured > estimate.step_time else "shorter"
    text = (
        f"a measured step of {measured:.3g} s is {abs(measured / estimate.step_time - 1):.0%} "
        f"{side} than the predicted "
        f"{estimate.step_time:.3g} s, outside the 80 % band of {estimate.step_time * band.low:.3g} to "
        f"{estimate.step_time * band.high:.3g} s."
    )
    fix = "Look at the findings, then at what no file shows: data loading, checkpoints, a slow GPU or link."
    return [
        Finding(
            "measured_apart", "note", text, fix, {"measured_s": measured, "predicted_s": estimate.step_time}
        )
    ]
