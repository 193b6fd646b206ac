"""Refit the constants of the software profiles and GPUs on the published runs.

    python scripts/fit_profiles.py                  # fit, cross-validate, print
    python scripts/fit_profiles.py --rounds 0       # only cross-validate the constants as they are
    python scripts/fit_profiles.py --write          # also write validation/left_out.jsonl

`validation/priors.yaml` lists what is fitted: a field of a profile (and of all that inherit it) or of GPUs, the
value expected before any run was looked at, and how sure of it we are (standard deviation of its logarithm).
Gauss-Newton on log(predicted/measured) with a Huber loss and these priors; runs that repeat one model, GPU and
precision of a source share weight. Cross-validation leaves a source, a model or a GPU out and solves the
linearised fit again: constants are refitted, forms and priors are not. New values are printed, to be rounded and
written into the YAML files by hand with their standard deviations.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from priors import (
    Constant,
    covariance,
    kind_means,
    lineage,
    owner,
    read_constants,
    value_at,
    without_knowledge,
)
from published import FOLDER, Row, rows, seconds, timed, with_profile

from costmodel.memory.profile import is_low_precision
from costmodel.stack import Stack, load_stack
from hardware.accelerator import Accelerator
from planner.runs import DescribedRun
from planner.runs.software import replaced

Values = NDArray[np.float64]
NOISE = 0.06
"""Expected error of a run, as a logarithm."""
HUBER = 1.5
NUDGE = 0.02
LONGEST_STEP = 0.4
EXPERTS = re.compile(r"expert|moe|permute|grouped|dropped_tokens")
"""Fields that only mixtures of experts use."""
QUANTISED = re.compile(r"low_precision|quantise|mxfp8|fp8_speedup|nvfp4")
"""Fields that only FP8 and FP4 runs use."""
WRITTEN = ("fitted", "model", "source", "source_generic", "gpu")
"""Errors of validation/left_out.jsonl: in sample, and with a model, a source or a GPU left out."""
EVERY_VTRAIN = 8
"""Of the single-node series of small models every eighth run is fitted; they would outvote all others."""


class Fit:
    """The constants, the runs, and which constants a run depends on."""

    def __init__(self, constants: list[Constant], chosen: list[Row]) -> None:
        self.constants, self.rows = constants, chosen
        self.start = {constant.name: constant.now() for constant in constants}
        self.precision = np.linalg.inv(covariance(constants))
        self.measured = np.log([row.step_time for row in chosen])
        count = Counter(self._kind(row) for row in chosen)
        weight = np.array([count[self._kind(row)] ** -0.5 for row in chosen])
        self.weight = weight / weight.mean()
        self.depends = [[i for i, row in enumerate(chosen) if self._concerns(c, row)] for c in constants]

    @staticmethod
    def _kind(row: Row) -> tuple[Any, ...]:
        return (row.family, row.model, row.data["gpu"], row.data["precision"])

    @staticmethod
    def _concerns(constant: Constant, row: Row) -> bool:
        if constant.gpus and row.run.gpu.name not in constant.gpus:
            return False
        if EXPERTS.search(constant.path) and row.run.architecture.moe is None:
            return False
        if QUANTISED.search(constant.path) and not is_low_precision(row.data["precision"]):
            return False
        if constant.gpus:
            return True
        profile = row.run.stack.name
        return constant.where in lineage(profile) and owner(profile, constant.paths[0]) == constant.where

    def profile(self, name: str, values: dict[str, float]) -> Stack:
        stack = load_stack(name)
        for constant in self.constants:
            if constant.gpus or constant.where not in lineage(name):
                continue
            if owner(name, constant.paths[0]) == constant.where:
                factor = values[constant.name] / self.start[constant.name]
                for path in constant.paths:
                    stack = _set(stack, path, value_at(load_stack(name), path) * factor)
        return stack

    def gpu(self, gpu: Accelerator, values: dict[str, float]) -> Accelerator:
        changes = {c.path: values[c.name] for c in self.constants if gpu.name in c.gpus}
        return gpu.model_copy(update={"sustained": gpu.sustained.model_copy(update=changes)})

    def errors(self, x: Values, only: list[int] | None = None) -> Values:
        """log(predicted/measured) of all rows, or of some."""
        values = dict(zip([c.name for c in self.constants], map(float, x), strict=True))
        profiles: dict[str, Stack] = {}
        gpus: dict[str, Accelerator] = {}
        wanted = range(len(self.rows)) if only is None else only
        out = np.empty(len(wanted))
        for at, index in enumerate(wanted):
            row = self.rows[index]
            assert isinstance(row.described, DescribedRun)
            run = row.described.run
            if run.stack.name not in profiles:
                profiles[run.stack.name] = self.profile(run.stack.name, values)
            if run.gpu.name not in gpus:
                gpus[run.gpu.name] = self.gpu(run.gpu, values)
            stack = with_profile(row.described, profiles[run.stack.name])
            out[at] = np.log(seconds(row.described, stack, gpus[run.gpu.name])) - self.measured[index]
        return out

    def slopes(self, x: Values, y: Values) -> Values:
        """Derivative of the errors by the logarithm of each constant."""
        J = np.zeros((len(y), len(x)))
        for j, rows_of in enumerate(self.depends):
            if rows_of:
                moved = x.copy()
                moved[j] *= 1 + NUDGE
                J[rows_of, j] = (self.errors(moved, rows_of) - y[rows_of]) / np.log(1 + NUDGE)
        return J


def _set(part: Any, path: str, value: float) -> Any:
    """`replaced`, through the mappings that some fields are."""
    name, _, deeper = path.partition(".")
    if isinstance(part, dict):
        return {**part, name: value}
    inner = getattr(part, name)
    return replaced(part, [name], _set(inner, deeper, value) if deeper else value)


def solve(fit: Fit, J: Values, y: Values, at: Values, keep: NDArray[np.bool_]) -> tuple[Values, Values]:
    """Shift of the constants' logarithms that fits the kept rows best, and its standard deviations."""
    offset = np.log(at / np.array([c.prior for c in fit.constants]))
    shift = np.zeros(len(at))
    A = np.eye(len(at))
    for _ in range(8):
        error = y + J @ shift
        huber = np.minimum(1.0, HUBER * NOISE / np.maximum(np.abs(error), 1e-12))
        weight = fit.weight * keep * huber / NOISE**2
        A = J.T @ (weight[:, None] * J) + fit.precision
        shift = -np.linalg.solve(A, J.T @ (weight * y) + fit.precision @ offset)
    return shift, np.sqrt(np.diag(np.linalg.inv(A)))


def left_out(fit: Fit, J: Values, y: Values, x: Values, key: Callable[[Row], str]) -> Values:
    """log(predicted/measured) of each row with its group left out of the fit."""
    keys = np.array([key(row) for row in fit.rows])
    out = np.empty(len(y))
    for value in sorted(set(keys)):
        inside = keys == value
        shift, _ = solve(fit, J, y, x, ~inside)
        out[inside] = (y + J @ shift)[inside]
    return out


def stats(errors: Values) -> str:
    e = 100 * np.abs(np.expm1(errors))
    return (
        f"n {len(e):4d}  median {np.median(e):5.1f}  p90 {np.percentile(e, 90):5.1f}  mean {e.mean():5.1f}  "
        f"bias {100 * np.expm1(np.median(errors)):+5.1f}"
    )


def group(row: Row) -> str:
    """The three parts of the collection that the targets speak of, and vTrain's series."""
    if row.family.startswith("vtrain"):
        return row.family
    if row.data["model"].get("moe"):
        return "mixture of experts"
    nvidia = ("nemo", "megatron-bridge", "mlperf", "megatron-lm")
    own = row.run.stack.name in nvidia or row.run.stack.name.startswith("nemo")
    return "NVIDIA dense" if own else "older and FSDP"


def show(title: str, fit: Fit, errors: Values, by: Callable[[Row], str] = group) -> None:
    print(title)
    parts: dict[str, list[float]] = defaultdict(list)
    for row, error in zip(fit.rows, errors, strict=True):
        parts[by(row)].append(error)
    for name in sorted(parts):
        print(f"  {name:28s} {stats(np.array(parts[name]))}")
    sys.stdout.flush()


def chosen_rows(all_rows: list[Row]) -> list[Row]:
    """Timed rows of usable configurations; of vTrain's single-node series only some."""
    usable = [row for row in timed(all_rows) if isinstance(row.described, DescribedRun)]
    single = [row for row in usable if row.family == "vtrain-single"][::EVERY_VTRAIN]
    return [row for row in usable if row.family != "vtrain-single"] + single


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--detail", action="store_true", help="errors by source and by GPU and precision")
    asked = parser.parse_args()
    constants = read_constants()
    fit = Fit(constants, chosen_rows(rows()))
    x = np.array([constant.now() for constant in constants])
    start, began = x.copy(), time.time()
    everything = np.ones(len(fit.rows), dtype=bool)
    y = fit.errors(x)
    show(f"as the files are ({time.time() - began:.1f} s)", fit, y)
    J = fit.slopes(x, y)
    post = np.zeros(len(x))
    for turn in range(asked.rounds):
        shift, post = solve(fit, J, y, x, everything)
        x = x * np.exp(np.clip(shift, -LONGEST_STEP, LONGEST_STEP))
        y = fit.errors(x)
        show(f"round {turn + 1} ({time.time() - began:.1f} s)", fit, y)
        if turn + 1 < asked.rounds:
            J = fit.slopes(x, y)
    if asked.rounds:
        for c, old, new, sd, rows_of in zip(constants, start, x, post, fit.depends, strict=True):
            drift = np.log(new / c.prior) / c.sd
            print(
                f"  {c.name:58s} {old:10.4g} -> {new:10.4g} (sd {100 * sd:3.0f} %, {drift:+.1f} prior sd, {len(rows_of)} runs)"
            )
        for name, mean in kind_means(constants, x).items():
            print(f"  mean of {name:50s} {mean:10.4g}")
    out = left_out(fit, J, y, x, lambda row: row.family)
    show("a source left out", fit, out)
    generic = Fit(without_knowledge(constants), fit.rows)
    plain = left_out(generic, J, y, x, lambda row: row.family)
    show("a source left out, attention kernels not told apart", fit, plain)
    other = left_out(fit, J, y, x, lambda row: row.model)
    show("a model left out", fit, other)
    chips = left_out(fit, J, y, x, lambda row: row.run.gpu.name)
    show("a GPU left out", fit, chips)
    if asked.detail:
        show("by source", fit, y, lambda row: row.family + (" moe" if row.data["model"].get("moe") else ""))
        show("by GPU and precision", fit, y, lambda row: f"{row.data['gpu']} {row.data['precision']}")
        show(
            "by source, left out",
            fit,
            out,
            lambda row: row.family + (" moe" if row.data["model"].get("moe") else ""),
        )
    if asked.write:
        with (FOLDER / "left_out.jsonl").open("w") as file:
            for row, *each in zip(fit.rows, y, other, out, plain, chips, strict=True):
                values = [round(float(error), 4) for error in each]
                file.write(json.dumps({"id": row.id} | dict(zip(WRITTEN, values, strict=True))) + "\n")


if __name__ == "__main__":
    main()
