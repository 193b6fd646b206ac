"""From files of measurements to a calibration: reads, checks that they belong together, fits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costmodel.stack import load_stack
from hardware.accelerator import Accelerator
from hardware.calibration import calibrated_accelerator
from hardware.catalogue import accelerator_names, load_accelerator
from hardware.errors import UnknownAccelerator
from planner.calibrate.gemm_table import read_gemm_table
from planner.calibrate.gemms import calibrate_gemms
from planner.calibrate.links import calibrate_links
from planner.calibrate.nccl_tests import read_nccl_tests
from planner.calibrate.outcome import Outcome
from planner.calibrate.step_log import (
    StepTimes,
    TableRow,
    is_table,
    read_step_log,
    read_step_table,
    summarised,
)
from planner.calibrate.steps import MeasuredRun, calibrate_steps
from planner.errors import InvalidInput
from planner.narrowing import DEFAULT_STACK
from planner.runs import DescribedRun, RefusedRun, read_runs

WORDS = re.compile(r"[A-Z]+\d+[A-Z]*")
ONE_RUN = "a runs file with one run, or FILE#ID"


@dataclass(frozen=True, slots=True)
class Inputs:
    """Files as they are given on the command line."""

    nccl: Sequence[Path] = ()
    gemm: Sequence[Path] = ()
    steps: Sequence[Path] = ()
    runs: Sequence[str] = ()
    """Runs of the logs among `steps`, in their order."""


def calibrate(gpu: Accelerator, inputs: Inputs) -> Outcome:
    """The calibration of a cluster of such GPUs. Raises `InvalidInput`."""
    if not (inputs.nccl or inputs.gemm or inputs.steps):
        raise InvalidInput(
            file="calibrate", found="nothing was measured", accepted="--nccl, --gemm or --steps with files"
        )
    outcome = Outcome(overlay={"gpu": gpu.name})
    stack = load_stack(DEFAULT_STACK)
    measured = _measured_runs(gpu, inputs)
    if inputs.nccl:
        runs = [run for file in inputs.nccl for run in read_nccl_tests(file)]
        for run in runs:
            _same_gpu(gpu, run.device, f"{run.file}:{run.line}")
        calibrate_links(gpu, stack, runs, outcome)
    if inputs.gemm:
        rows = [row for file in inputs.gemm for row in read_gemm_table(file)]
        for row in rows:
            if row.gpu is not None:
                _same_gpu(gpu, row.gpu, row.where)
        calibrate_gemms(gpu, rows, outcome)
    if gpu.network != load_accelerator(gpu.name).network:
        outcome.overlay["network"] = {"nic": gpu.network.nic}
    files = [*inputs.nccl, *inputs.gemm, *inputs.steps]
    _factors(outcome)["source"] = ", ".join(map(str, files))
    if measured:
        curves = calibrated_accelerator(gpu, outcome.overlay, "calibration")
        calibrate_steps(gpu, curves, measured, outcome)
    calibrated_accelerator(gpu, outcome.overlay, "calibration")  # what is written can be read
    return outcome


def _factors(outcome: Outcome) -> dict[str, Any]:
    return outcome.overlay.setdefault("calibration", {})


def known_gpu(name: str) -> Accelerator:
    """A GPU of the catalogue. Raises `InvalidInput`."""
    try:
        return load_accelerator(name)
    except UnknownAccelerator as error:
        raise InvalidInput(
            file="--gpu", found=f"found {name!r}", accepted=", ".join(error.known), suggestion=error.hint
        ) from None


def _same_gpu(gpu: Accelerator, device: str, where: str) -> None:
    """Refuses measurements of another GPU of the catalogue; a device name that says nothing passes."""
    known = {name.split("-")[0] for name in accelerator_names()}
    named = known & set(WORDS.findall(device.upper()))
    if named and gpu.name.split("-")[0] not in named:
        raise InvalidInput(
            file=where, found=f"measured on {device}", accepted=f"measurements of {gpu.name}, the --gpu"
        )


def _measured_runs(gpu: Accelerator, inputs: Inputs) -> list[MeasuredRun]:
    """Each log with its run, and each line of each table."""
    logs = [file for file in inputs.steps if not is_table(file)]
    runs = list(inputs.runs) * len(logs) if len(inputs.runs) == 1 else list(inputs.runs)
    if len(runs) != len(logs):
        found = f"{len(logs)} logs and {len(inputs.runs)} runs"
        raise InvalidInput(file="--run", found=found, accepted="a --run for each log, or one for all")
    found_runs: list[MeasuredRun] = []
    for file, name in zip(logs, runs, strict=True):
        described = one_run(gpu, name, Path())
        batch = int(described.run.global_batch)
        found_runs.append(MeasuredRun(described, read_step_log(file, batch)))
    for file in filter(is_table, inputs.steps):
        found_runs += _table_runs(gpu, file)
    return found_runs


def _table_runs(gpu: Accelerator, file: Path) -> list[MeasuredRun]:
    """Runs of a table; lines of the same run count as steps of one."""
    rows = read_step_table(file)
    seconds: dict[str, list[float]] = {}
    described: dict[str, DescribedRun] = {}
    for row in rows:
        try:
            described.setdefault(row.run, one_run(gpu, row.run, file.parent))
        except InvalidInput as error:
            raise InvalidInput(file=f"{file}:{row.line}", path="run", found=str(error)) from None
        seconds.setdefault(row.run, []).append(_seconds(row, described[row.run]))
    return [MeasuredRun(described[run], _table_times(f"{file} {run}", seconds[run])) for run in seconds]


def _seconds(row: TableRow, described: DescribedRun) -> float:
    """Step time from what the table has."""
    if row.unit == "tokens_per_s_per_gpu":
        return float(described.run.tokens_per_step) / float(described.run.num_gpus) / row.value
    return row.value / 1e3 if row.unit == "step_time_ms" else row.value


def _table_times(name: str, seconds: list[float]) -> StepTimes:
    """A table holds results, not a warm-up: all of its lines count."""
    return summarised(name, seconds, warm_up=0.0)


def one_run(gpu: Accelerator, name: str, folder: Path) -> DescribedRun:
    """The run of FILE or FILE#ID on such a GPU. Raises `InvalidInput`."""
    file, _, wanted = name.partition("#")
    runs = read_runs(folder / file)
    chosen = [run for run in runs if not wanted or run.id == wanted]
    if len(chosen) != 1:
        ids = ", ".join(run.id for run in runs)
        found = f"{len(chosen)} runs" if not wanted else f"no run {wanted!r}" if not chosen else "several"
        raise InvalidInput(file=str(folder / file), found=f"{found} (there are {ids})", accepted=ONE_RUN)
    run = chosen[0]
    if isinstance(run, RefusedRun):
        raise InvalidInput(file=str(folder / file), path=run.id, found=run.error)
    if run.run.gpu.name != gpu.name:
        raise InvalidInput(
            file=str(folder / file), path="gpu", found=run.run.gpu.name, accepted=f"{gpu.name}, the --gpu"
        )
    if run.facts.calibration is not None:
        raise InvalidInput(
            file=str(folder / file), path="calibration", found="is there already", accepted="a run without"
        )
    return run
