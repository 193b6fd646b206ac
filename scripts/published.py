"""The published runs under `validation/`, described for the cost model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from costmodel.pipeline import stage_split
from costmodel.rates import stage_rates
from costmodel.stack import Stack, load_stack
from costmodel.step import step_time
from hardware.accelerator import Accelerator
from planner.runs import DescribedRun, RefusedRun, describe
from planner.runs.software import changed, own_settings

FOLDER = Path(__file__).parent.parent / "validation"
FILES = ("published.jsonl", "vtrain_a100.jsonl")


@dataclass(frozen=True, slots=True)
class Row:
    """A published run: what was measured, and how the cost model reads its configuration."""

    data: dict[str, Any]
    described: DescribedRun | RefusedRun

    @property
    def id(self) -> str:
        return self.data["id"]

    @property
    def family(self) -> str:
        return self.data["family"]

    @property
    def tier(self) -> Any:
        return self.data["tier"]

    @property
    def task(self) -> str:
        return self.data.get("task", "pretrain")

    @property
    def step_time(self) -> float | None:
        return self.data["measured"].get("step_time_s")

    @property
    def peak_memory(self) -> float | None:
        return self.data["measured"].get("peak_memory_gib")

    @property
    def out_of_memory(self) -> bool:
        return self.data["measured"].get("out_of_memory", False)

    @property
    def run(self) -> Any:
        assert isinstance(self.described, DescribedRun)
        return self.described.run

    @property
    def model(self) -> str:
        return self.data["model"]["name"].split(" [")[0]


def rows(files: Iterable[str] = FILES) -> list[Row]:
    """All rows of the data files, in their order."""
    return [Row(data, describe(data)) for name in files for data in _lines(FOLDER / name)]


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        yield from (json.loads(line) for line in file)


def timed(all_rows: Iterable[Row], tiers: tuple[Any, ...] = (1, 2)) -> list[Row]:
    """Pre-training rows with a step time, the newest release of each configuration."""
    return [
        row
        for row in all_rows
        if row.tier in tiers
        and row.task == "pretrain"
        and row.step_time is not None
        and not row.data.get("superseded")
    ]


def seconds(described: DescribedRun, stack: Stack | None = None, gpu: Accelerator | None = None) -> float:
    """Predicted step time of a run, with another profile or GPU in the place of its own."""
    run = described.run
    if stack is not None or gpu is not None:
        run = replace(run, stack=stack or run.stack, gpu=gpu or run.gpu)
    rates = stage_rates(run, memory=False)
    split = stage_split(
        run.architecture, run.pp, run.vpp, run.num_microbatches, described.layers, described.recomputed
    )
    return float(step_time(rates, split, run.num_microbatches, run.pp, run.vpp).total)


def with_profile(described: DescribedRun, profile: Stack) -> Stack:
    """A profile with the run's own settings over it."""
    run = described.run
    own, _ = own_settings(described.facts, run.architecture, profile, run.gpu)
    return changed(profile, own)


__all__ = ["FOLDER", "Row", "load_stack", "rows", "seconds", "timed", "with_profile"]
