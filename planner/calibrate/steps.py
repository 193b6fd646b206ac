"""Factors of a cluster from measured steps: what is left once its curves are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from costmodel.calibration.apply import calibrated_stack
from costmodel.calibration.descent import Values
from costmodel.calibration.factors import Priors, fit_factors, left_out, priors
from costmodel.estimate import estimate
from hardware.accelerator import Accelerator, Calibration
from planner.calibrate.outcome import Deviation, Fit, Outcome, rounded
from planner.calibrate.step_log import StepTimes
from planner.runs import DescribedRun

NUDGE = 0.02
"""Step of the logarithms by which slopes are taken."""
ROUNDS = 3
DOUBTFUL = 0.35
"""A logarithm of measured over expected step time beyond which the description of the run is in doubt."""


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A run and how long its steps took."""

    described: DescribedRun
    times: StepTimes


def predicted_seconds(described: DescribedRun, gpu: Accelerator) -> float:
    """Step time of a run that is described without calibration, on a calibrated GPU.

    A run that names no interconnect has the line rate of the calibration.
    """
    run = described.run
    fabric = run.fabric
    if described.facts.interconnect is None:
        fabric = replace(fabric, nic=fabric.nic * gpu.network.nic / run.gpu.network.nic)
    run = replace(run, gpu=gpu, fabric=fabric, stack=calibrated_stack(run.stack, gpu))
    return estimate(run, described.layers, described.recomputed).step_time


def with_factors(gpu: Accelerator, names: Sequence[str], logarithms: Values) -> Accelerator:
    """The GPU with factors of whole steps in its calibration."""
    base = gpu.calibration or Calibration(source="being fitted")
    values = dict(zip(names, map(float, np.exp(logarithms)), strict=True))
    return gpu.model_copy(update={"calibration": base.model_copy(update=values)})


def errors_and_slopes(
    runs: Sequence[DescribedRun], measured: Values, gpu: Accelerator, known: Priors, at: Values
) -> tuple[Values, Values]:
    """log(predicted/measured) of each run and its derivatives by the logarithms of the factors."""

    def errors(x: Values) -> Values:
        calibrated = with_factors(gpu, known.names, x)
        return np.log([predicted_seconds(each, calibrated) for each in runs]) - np.log(measured)

    here = errors(at)
    slopes = [(errors(at + NUDGE * axis) - here) / NUDGE for axis in np.eye(len(at))]
    return here, np.stack(slopes, axis=1)


def calibrate_steps(
    usual: Accelerator, curves: Accelerator, runs: Sequence[MeasuredRun], outcome: Outcome
) -> None:
    """Adds the factors that fit the steps, given a GPU with measured curves, and how good they are."""
    known = priors()
    described = [each.described for each in runs]
    measured = np.array([each.times.seconds for each in runs])
    before = np.array([predicted_seconds(each, usual) for each in described])
    x = np.zeros(len(known.names))
    for _ in range(ROUNDS):
        errors, slopes = errors_and_slopes(described, measured, curves, known, x)
        x = fit_factors(errors - slopes @ x, slopes, known)
    errors, slopes = errors_and_slopes(described, measured, curves, known, x)
    others = left_out(errors - slopes @ x, slopes, known) if len(runs) > 1 else None
    factors = {name: rounded(float(np.exp(each)), 4) for name, each in zip(known.names, x, strict=True)}
    outcome.overlay.setdefault("calibration", {}).update(factors)
    outcome.fits.append(
        Fit(
            "steps",
            len(runs),
            float(np.abs(np.log(before / measured)).mean()),
            float(np.abs(errors).mean()),
            None if others is None else float(np.abs(others).mean()),
            factors,
        )
    )
    for each, expected in zip(runs, before, strict=True):
        outcome.deviations.append(_compared(each, float(expected)))
        outcome.notes.append(_spread(each))
        if abs(np.log(each.times.seconds / expected)) > DOUBTFUL:
            outcome.notes.append(
                f"{each.described.id}: measured {each.times.seconds / expected:.2f} times what is expected, "
                "further than clusters differ; does the run file say what was run?"
            )


def _compared(each: MeasuredRun, expected: float) -> Deviation:
    return Deviation(
        f"step of {each.described.id}",
        f"{each.described.run.num_gpus} GPUs",
        each.times.steps,
        f"{each.times.seconds:.4g} s",
        f"{expected:.4g} s",
        each.times.seconds / expected,
    )


def _spread(each: MeasuredRun) -> str:
    times = each.times
    if times.steps == 1:
        return f"{times.file}: one step time, so how much steps differ is not known"
    return (
        f"{times.file}: median {times.seconds:.4g} s of {times.steps} lines, 80 % between {times.low:.4g} "
        f"and {times.high:.4g} s; {times.dropped} lines of warm-up left out"
    )
