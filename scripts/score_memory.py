"""Score predicted peak memory on published runs: error by kind of figure and by source, and who fits.

    python scripts/score_memory.py [--data validation/published.jsonl] [--worst 20]

A run that repeats a figure (another batch size, another release) counts once. Peaks are compared as the
source measured them: allocated, reserved, or in use on the device (nvidia-smi); MLPerf logs the peak of
rank 0, everybody else the fullest. Runs that ran should be predicted to fit, runs that their source
reports as out of memory should not.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from costmodel.units import GIB

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from costmodel.memory.figures import reported_bytes
from costmodel.memory.overhead import usable_bytes
from costmodel.memory.profile import Figure
from costmodel.pipeline import stage_split
from costmodel.rates import stage_rates
from costmodel.stage import StageRates, StageSplit, allocated_memory, stage_memory
from planner.runs import DescribedRun, describe
from planner.runs.notes import with_notes

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "validation" / "published.jsonl"
OUT_OF_MEMORY = ROOT / "validation" / "out_of_memory.yaml"
SAME = (
    *(
        "family",
        "model",
        "seq_len",
        "micro_batch",
        "gpu",
        "num_gpus",
        "precision",
        "tp",
        "cp",
        "pp",
        "vpp",
        "ep",
        "etp",
    ),
    *("zero_stage", "fsdp_shard", "recompute", "recompute_detail", "offload_fraction", "embedding_slots"),
)
"""Keys that decide memory; rows that agree in them and in the figure are one observation."""
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Peak:
    """One published peak."""

    id: str
    family: str
    profile: str
    figure: Figure
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1


@dataclass(frozen=True, slots=True)
class Fit:
    """One run that is known to have run or to have run out of memory."""

    id: str
    group: str
    ran: bool
    used: float
    """Predicted peak over what the driver lets processes allocate."""
    fits: bool


def rows_of(path: Path) -> list[Row]:
    """Rows of a JSON-lines file, or of a YAML file with `runs:`."""
    text = path.read_text(encoding="utf-8")
    return (
        [json.loads(line) for line in text.splitlines()]
        if path.suffix == ".jsonl"
        else yaml.safe_load(text)["runs"]
    )


def figure_of(row: Row, described: DescribedRun) -> Figure:
    """Which figure a source gives, by its note, else the usual one of its software."""
    told = with_notes(
        described.facts.model_copy(update={"peak_memory_note": row["measured"].get("peak_memory_note")})
    )
    return told.memory_figure or described.run.stack.memory.figure


def rates_and_split(described: DescribedRun) -> tuple[StageRates, StageSplit]:
    run = described.run
    split = stage_split(
        run.architecture, run.pp, run.vpp, run.num_microbatches, described.layers, described.recomputed
    )
    return stage_rates(run), split


def predicted_figure(row: Row, described: DescribedRun) -> float:
    """Bytes as the source's tool would show them."""
    by_rank = allocated_memory(*rates_and_split(described))
    allocated = by_rank[0] if "MLPerf" in row["framework"] else by_rank.max()
    return float(reported_bytes(described.run, allocated, figure_of(row, described)))


def observations(rows: Iterable[Row]) -> list[tuple[Row, DescribedRun]]:
    """Rows with a peak, one an observation, that can be described."""
    kept: dict[str, Row] = {}
    for row in rows:
        if row["measured"].get("peak_memory_gib"):
            key = json.dumps(
                [*(row.get(name) for name in SAME), row["measured"]["peak_memory_gib"]], sort_keys=True
            )
            kept.setdefault(key, row)
    described = [(row, describe(row)) for row in kept.values()]
    return [(row, one) for row, one in described if isinstance(one, DescribedRun)]


def memory_errors(rows: Iterable[Row]) -> list[Peak]:
    """Predicted against measured peaks."""
    return [
        Peak(
            row["id"],
            row["family"],
            one.run.stack.name,
            figure_of(row, one),
            row["measured"]["peak_memory_gib"],
            predicted_figure(row, one) / GIB,
        )
        for row, one in observations(rows)
    ]


def feasibility(rows: Iterable[Row]) -> list[Fit]:
    """Whether each run is predicted to fit: all that failed, and those that ran and say how."""
    found: list[Fit] = []
    for row in rows:
        failed = bool(row["measured"].get("out_of_memory"))
        told = row.get("micro_batch") and row.get("recompute") and row.get("task", "pretrain") == "pretrain"
        if not (failed or told) or not isinstance(one := describe(row), DescribedRun):
            continue
        used = float(stage_memory(*rates_and_split(one)).max()) / usable_bytes(one.run.gpu)
        fits = used <= one.run.stack.memory.capacity_share
        found.append(Fit(row["id"], row.get("config_group", row["id"]), not failed, used, fits))
    return found


def summary(errors: Sequence[float]) -> str:
    size = np.abs(errors)
    return (
        f"{len(errors):5d} {100 * np.median(size):7.1f} {100 * np.quantile(size, 0.9):7.1f} "
        f"{100 * np.median(errors):+7.1f}"
    )


def print_peaks(peaks: Sequence[Peak], worst: int) -> None:
    print(f"{'peak memory, error in %':32s} {'n':>5s} {'median':>7s} {'p90':>7s} {'bias':>7s}")
    groups: dict[str, list[float]] = defaultdict(list)
    for peak in peaks:
        for name in ("all", f"figure: {peak.figure}", f"source: {peak.family} ({peak.profile})"):
            groups[name].append(peak.error)
    for name in sorted(groups):
        print(f"{name:32s} {summary(groups[name])}")
    print(f"\nthe {worst} worst")
    for peak in sorted(peaks, key=lambda peak: -abs(peak.error))[:worst]:
        print(f"  {peak.id:28s} {peak.measured:7.1f} GiB measured {100 * peak.error:+6.1f} %")


def print_fits(fits: Sequence[Fit]) -> None:
    ran, failed = [fit for fit in fits if fit.ran], [fit for fit in fits if not fit.ran]
    alarms = [fit for fit in ran if not fit.fits]
    groups = {fit.group for fit in ran}
    wrong = {fit.group for fit in alarms}
    print(
        f"\nran: {len(ran)}, predicted not to fit: {len(alarms)} ({100 * len(alarms) / len(ran):.1f} %); "
        f"configurations: {len(groups)}, {len(wrong)} ({100 * len(wrong) / len(groups):.1f} %)"
    )
    for fit in alarms:
        print(f"  {fit.id:28s} {fit.used:.2f} of the GPU")
    flagged = sum(not fit.fits for fit in failed)
    print(
        f"out of memory: {len(failed)}, predicted not to fit: {flagged} ({100 * flagged / len(failed):.0f} %)"
    )
    for fit in failed:
        print(f"  {fit.id:28s} {fit.used:.2f} of the GPU")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--worst", type=int, default=20)
    options = parser.parse_args()
    rows = rows_of(options.data)
    print_peaks(memory_errors(rows), options.worst)
    print_fits(feasibility([*rows, *rows_of(OUT_OF_MEMORY)]))


if __name__ == "__main__":
    main()
