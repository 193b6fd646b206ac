"""Links from nccl-tests: curves inside a domain, factors on NVLink and network by kind of traffic."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast, get_args

import numpy as np

from costmodel.calibration.collective import collective_seconds, fit_collective, left_out_error, mean_error
from costmodel.calibration.descent import Values
from costmodel.calibration.links import (
    bulk,
    domain_factor,
    expected_rate,
    measured_rate,
    network_factor,
)
from costmodel.run import Fabric
from costmodel.stack import Stack
from hardware.accelerator import Accelerator, Collective
from planner.calibrate.nccl_tests import NcclRun
from planner.calibrate.outcome import Deviation, Fit, Outcome, middle
from planner.calibrate.unmeasured import all_curves, by_kind, known_curve, written_curve

COLLECTIVES: tuple[Collective, ...] = get_args(Collective)
SIZES = ((0.0, 1e6, "below 1 MB"), (1e6, 64e6, "1 MB to 64 MB"), (64e6, float("inf"), "64 MB and more"))
GIGA = 1e9


@dataclass(frozen=True, slots=True)
class Measured:
    """All points of one operation among the same number of GPUs on the same number of nodes."""

    op: str
    ranks: int
    nodes: int
    sent: Values
    seconds: Values
    files: tuple[str, ...]

    @property
    def title(self) -> str:
        where = "one node" if self.nodes == 1 else f"{self.nodes} nodes"
        return f"{self.op.replace('_', ' ')}, {self.ranks} GPUs, {where}"

    def domains(self, gpu: Accelerator) -> int:
        """NVLink domains that the group spans: its nodes, or as few racks as hold it where a rack is one."""
        racks = gpu.link.domain > gpu.gpus_per_node
        return -(-self.ranks // gpu.link.domain) if racks else self.nodes


def calibrate_links(gpu: Accelerator, stack: Stack, runs: Iterable[NcclRun], outcome: Outcome) -> None:
    """Adds curves, factors, deviations and fits of all runs to the outcome."""
    groups = _grouped(runs)
    near = [each for each in groups if each.domains(gpu) == 1]
    far = [each for each in groups if each.domains(gpu) > 1]
    curves, factors = _inside(gpu, stack, near, outcome)
    if curves:
        outcome.overlay.setdefault("curves", {})["collectives"] = all_curves(gpu, curves, factors)
        outcome.overlay["link"] = {"bandwidth_scale": 1.0}
    calibration = outcome.overlay.setdefault("calibration", {})
    if near:
        calibration["nvlink"] = by_kind(factors)
    if far and (found := _across(gpu, stack, far, outcome)):
        calibration["network"] = by_kind(found)
        outcome.overlay["network"] = {"nic": gpu.network.nic}


def _grouped(runs: Iterable[NcclRun]) -> list[Measured]:
    parts: dict[tuple[str, int, int], list[NcclRun]] = defaultdict(list)
    for run in runs:
        parts[run.op, run.ranks, run.nodes].append(run)
    return [
        Measured(
            *key,
            np.concatenate([each.sent for each in part]),
            np.concatenate([each.seconds for each in part]),
            tuple(dict.fromkeys(each.file for each in part)),
        )
        for key, part in sorted(parts.items())
    ]


def _inside(
    gpu: Accelerator, stack: Stack, groups: list[Measured], outcome: Outcome
) -> tuple[dict[tuple[Collective, int], dict[str, Any]], dict[str, list[float]]]:
    """Curves by operation and group size, and factors by operation."""
    curves: dict[tuple[Collective, int], dict[str, Any]] = {}
    factors: dict[str, list[float]] = defaultdict(list)
    for each in groups:
        if each.op not in COLLECTIVES:
            expected = stack.pipeline.nvlink_efficiency * gpu.link.one_way
            factors[each.op].append(_rate_factor(each, expected, outcome))
            continue
        op = cast("Collective", each.op)
        known = known_curve(gpu, op, each.ranks)
        constants = fit_collective(each.sent, each.seconds, known)
        factors[op].append(domain_factor(gpu, op, each.ranks, each.sent, constants))
        outcome.deviations += _compared(each, collective_seconds(known, each.sent))
        outcome.fits.append(_fit(each, constants, known, mean_error(known, each.sent, each.seconds)))
        curves[op, each.ranks] = written_curve(constants, outcome.fits[-1].after, _source(each))
    return curves, factors


def _across(
    gpu: Accelerator, stack: Stack, groups: list[Measured], outcome: Outcome
) -> dict[str, list[float]]:
    """Factors of the network by operation, from what was measured across nodes."""
    factors: dict[str, list[float]] = defaultdict(list)
    usual = Fabric.of(gpu)
    for each in groups:
        domains = each.domains(gpu)
        near = each.ranks // domains
        fabric = Fabric(near, near, usual.nvlink, usual.nic)
        expected = expected_rate(stack, fabric, each.op, domains)
        guess = np.array([each.seconds.min(), expected, (each.seconds.min() / expected) ** 0.5])
        constants = fit_collective(each.sent, each.seconds, guess)
        factor = network_factor(stack, fabric, each.op, domains, measured_rate(each.sent, constants))
        large = bulk(each.sent)
        before = float(np.abs(np.log(each.sent / expected / each.seconds))[large].mean())
        outcome.deviations += _compared(each, each.sent / expected, bandwidth_only=True)
        outcome.fits.append(_fit(each, constants, guess, before))
        if factor is None:
            outcome.notes.append(
                f"{each.title}: NVLink may be what sets the rate, so it says nothing about a GPU's NIC; "
                "all-to-all, sendrecv, or one GPU a node in each group (NCCL_TESTS_SPLIT_MASK=0x7) would"
            )
        else:
            factors[each.op].append(factor)
    return factors


def _rate_factor(each: Measured, expected: float, outcome: Outcome) -> float:
    """Point to point on NVLink, of which the catalogue has no curve: the rate alone."""
    guess = np.array([each.seconds.min(), expected, (each.seconds.min() / expected) ** 0.5])
    constants = fit_collective(each.sent, each.seconds, guess)
    before = float(np.abs(np.log(each.sent / expected / each.seconds))[bulk(each.sent)].mean())
    outcome.deviations += _compared(each, each.sent / expected, bandwidth_only=True)
    outcome.fits.append(_fit(each, constants, guess, before))
    return measured_rate(each.sent, constants) / expected


def _fit(each: Measured, constants: Values, known: Values, before: float) -> Fit:
    refit = partial(fit_collective, known=known)
    names = ("alpha", "bandwidth", "root")
    left_out = left_out_error(each.sent, each.seconds, refit) if len(each.sent) > 1 else None
    return Fit(
        each.title,
        len(each.sent),
        before,
        mean_error(constants, each.sent, each.seconds),
        left_out,
        dict(zip(names, map(float, constants), strict=True)),
    )


def _compared(each: Measured, expected: Values, *, bandwidth_only: bool = False) -> list[Deviation]:
    """Ranges of sizes with points; of a rate without latency only those that bandwidth sets."""
    rows: list[Deviation] = []
    if bandwidth_only:
        chosen = np.isin(np.arange(len(each.sent)), bulk(each.sent))
        ranges = [(chosen, "bandwidth-bound sizes")]
    else:
        ranges = [((each.sent >= low) & (each.sent < high), name) for low, high, name in SIZES]
    for chosen, name in ranges:
        if not chosen.any():
            continue
        sent, seconds, wanted = each.sent[chosen], each.seconds[chosen], expected[chosen]
        rows.append(
            Deviation(
                each.title,
                name,
                int(chosen.sum()),
                f"{middle(sent / seconds) / GIGA:.4g} GB/s",
                f"{middle(sent / wanted) / GIGA:.4g} GB/s",
                middle(seconds / wanted),
            )
        )
    return rows


def _source(each: Measured) -> str:
    return f"nccl-tests, {each.title}, {len(each.sent)} sizes: {', '.join(each.files)}"
