"""The best that anybody published: no plan should be believed to beat it by more than its band.

An optimiser picks the plan that its model flatters most, so plans that look faster than anything
measured are the model's errors before they are discoveries. `best_published.yaml` has the highest model
FLOPs utilisation of the published runs by GPU, precision and model class, with the run's id and source;
`scripts/best_published.py` makes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from costmodel.memory.profile import is_low_precision
from costmodel.run import Run
from hardware.accelerator import Accelerator
from hardware.catalogue import load_accelerator
from planner.confidence import band_of

DATA = Path(__file__).with_name("best_published.yaml")
FEW_SOURCES = 2
"""A class that no more sources measured is joined by its sister GPUs: its software may not be the best."""
ALIKE = 0.15
"""Largest difference of the dense BF16 peaks of sister GPUs, which are of one generation."""
Class = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Best:
    """The published run of one class with the highest model FLOPs utilisation."""

    gpu: str
    """What it ran on: the class's GPU or a sister of it."""
    mfu: float
    """Model FLOPs without recompute, causal attention halved, over the asked GPU's dense BF16 peak."""
    runs: int
    """Published runs of the class; the best of few says little."""
    sources: int
    """Papers, benchmarks and tables that they come from."""
    run: str
    source: str


def class_of(run: Run) -> Class:
    """GPU, bits of the GEMMs' inputs, dense or moe: what a run's utilisation is compared within."""
    bits = "16" if not is_low_precision(run.precision) else "4" if run.precision.endswith("fp4") else "8"
    return run.gpu.name, bits, "moe" if run.architecture.moe else "dense"


def best_published(run: Run) -> Best | None:
    """The best of the run's class, None where none was published.

    Where only `FEW_SOURCES` measured the class, the best FLOP/s of a sister GPU counts as well (H100 for
    H800, GB200 for B200), over this GPU's peak.
    """
    own = _table().get(class_of(run))
    if own is not None and own.sources > FEW_SOURCES:
        return own
    found = [*([own] if own else []), *_of_sisters(run)]
    return max(found, key=lambda best: best.mfu, default=None)


def beyond_published(run: Run, mfu: float) -> float | None:
    """By what factor a prediction beats the best published run of its class even at its band's slow end.

    (mfu / high) / best, `high` the upper edge of measured over predicted step time; up to 1 is
    nothing unheard of. None where no such run was published.
    """
    best = best_published(run)
    return None if best is None else mfu / band_of(run).high / best.mfu


def _of_sisters(run: Run) -> Iterator[Best]:
    """The best of the same precision and model class on GPUs of the generation with about the same peak."""
    _, *asked = class_of(run)
    for (name, *other), best in _table().items():
        gpu = load_accelerator(name)
        if other == asked and name != run.gpu.name and _alike(gpu, run.gpu):
            mfu = best.mfu * gpu.peak_flops["bf16"] / run.gpu.peak_flops["bf16"]
            yield Best(name, mfu, best.runs, best.sources, best.run, best.source)


def _alike(one: Accelerator, other: Accelerator) -> bool:
    ratio = one.peak_flops["bf16"] / other.peak_flops["bf16"]
    return one.generation == other.generation and abs(ratio - 1) <= ALIKE


@cache
def _table() -> dict[Class, Best]:
    data = yaml.safe_load(DATA.read_text(encoding="utf-8"))
    return {
        (each["gpu"], str(each["bits"]), each["model"]): Best(
            each["gpu"], each["mfu"], each["runs"], each["sources"], each["run"], each["from"]
        )
        for each in data["best"]
    }
