"""What the cost model is scored by: errors by group, orders of layouts, memory, coverage."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from published import FOLDER, Row

from costmodel.estimate import Estimate
from planner.confidence import band_of, kind_of
from planner.estimates import estimated
from planner.runs import DescribedRun

Values = NDArray[np.float64]
GIB = 2**30
FEWEST = 10
"""Runs that a group needs for its bias to count."""
LAYOUTS = 4
"""Layouts that a table needs for its order to count."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A row with its prediction."""

    row: Row
    estimate: Estimate

    @property
    def ratio(self) -> float:
        """Predicted over measured step time."""
        return self.estimate.step_time / (self.row.step_time or np.nan)

    @property
    def kind(self) -> str:
        """The part of the collection: NVIDIA dense, mixture of experts, or older and FSDP."""
        family = self.row.family
        if family.startswith("vtrain"):
            return family
        return {"moe": "MoE", "megatron": "NVIDIA dense", "other": "older and FSDP"}[kind_of(self.row.run)]


def scored(all_rows: Iterable[Row]) -> list[Scored]:
    """Predictions of all rows that are not refused."""
    return [
        Scored(row, estimated(row.described)) for row in all_rows if isinstance(row.described, DescribedRun)
    ]


def timed(table: Iterable[Scored], tiers: tuple[Any, ...] = (1,)) -> list[Scored]:
    """Pre-training rows with a step time, one a configuration, the newest release."""
    return [
        each
        for each in table
        if each.row.tier in tiers
        and each.row.task == "pretrain"
        and each.row.step_time is not None
        and not each.row.data.get("superseded")
    ]


def collected(table: Iterable[Scored]) -> list[Scored]:
    """Without vTrain's series, which is scored apart."""
    return [each for each in table if not each.row.family.startswith("vtrain")]


def errors(table: Iterable[Scored]) -> Values:
    """|predicted/measured - 1| in percent."""
    return 100 * np.abs(np.array([each.ratio for each in table]) - 1)


def rounded(value: float) -> float:
    return round(float(value), 2)


def spread(name: str, values: Values) -> dict[str, float]:
    return {
        f"{name}: median error %": rounded(np.median(values)),
        f"{name}: p90 error %": rounded(np.percentile(values, 90)),
    }


def bias(table: list[Scored]) -> float:
    """Median of predicted/measured - 1 in percent."""
    return rounded(100 * (np.median([each.ratio for each in table]) - 1))


def by(table: Iterable[Scored], key: Callable[[Scored], Any]) -> dict[Any, list[Scored]]:
    groups: dict[Any, list[Scored]] = defaultdict(list)
    for each in table:
        groups[key(each)].append(each)
    return dict(sorted(groups.items(), key=lambda item: str(item[0])))


def measures(table: list[Scored]) -> dict[str, float]:
    """Every figure that a target speaks of."""
    first = collected(timed(table))
    figures = spread("step time, all stacks", errors(first))
    for kind, part in by(first, lambda each: each.kind).items():
        figures |= spread(f"step time, {kind}", errors(part))
    figures |= left_out_figures(table)
    h800 = [each for each in collected(timed(table, (1, 2))) if each.row.data["gpu"] == "H800"]
    figures |= spread("step time, H800 (tiers 1 and 2)", errors(h800))
    figures["step time, largest group bias %"] = worst_bias(first)[1]
    figures |= vtrain_figures(table)
    figures |= order_figures(table)
    figures |= memory_figures(table)
    return figures


def left_out_figures(table: list[Scored]) -> dict[str, float]:
    """Errors and coverage with the whole source left out of the fit."""
    path = FOLDER / "left_out.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    found = {line["id"]: line["log_error"] for line in lines}
    first = [each for each in collected(timed(table)) if each.row.id in found]
    out = np.array([100 * abs(np.expm1(found[each.row.id])) for each in first])
    figures = spread("step time, source left out", out)
    inside = []
    for each in collected(timed(table, (1, 2))):
        if each.row.id in found:
            band = band_of(each.row.run)
            inside.append(band.low <= np.exp(-found[each.row.id]) <= band.high)
    figures["interval_80, coverage with the source left out of the fit %"] = rounded(100 * np.mean(inside))
    return figures


GROUPS: dict[str, Callable[[Scored], str]] = {
    "GPU": lambda each: each.row.run.gpu.name,
    "precision": lambda each: each.row.data["precision"],
    "framework": lambda each: each.row.run.stack.name,
}


def worst_bias(first: list[Scored]) -> tuple[str, float]:
    """The GPU, precision or framework group of ten or more rows that is furthest off in the median."""
    worst = ("", 0.0)
    for label, key in GROUPS.items():
        for name, part in by(first, key).items():
            if len(part) >= FEWEST and abs(bias(part)) > abs(worst[1]):
                worst = (f"{label} {name}", bias(part))
    return worst


def vtrain_figures(table: list[Scored]) -> dict[str, float]:
    """Mean errors of vTrain's series, and the share of pairs of layouts in the right order."""
    multi = timed([each for each in table if each.row.family == "vtrain-multi"])
    single = timed([each for each in table if each.row.family == "vtrain-single"], (1, 2))
    groups = by(single, lambda each: (each.row.model, each.row.data["global_batch"], each.row.run.num_gpus))
    right, pairs = 0, 0
    for part in groups.values():
        good, every = concordant(part)
        right, pairs = right + good, pairs + every
    return {
        "vTrain multi-node: mean error %": rounded(errors(multi).mean()),
        "vTrain single-node: mean error %": rounded(errors(single).mean()),
        "vTrain single-node: pair order %": rounded(100 * right / pairs),
    }


def concordant(part: list[Scored]) -> tuple[int, int]:
    """Pairs that are predicted in the measured order, and all pairs."""
    right = pairs = 0
    for a, b in combinations(part, 2):
        measured = np.sign((a.row.step_time or 0) - (b.row.step_time or 0))
        predicted = np.sign(a.estimate.step_time - b.estimate.step_time)
        if measured:
            pairs += 1
            right += bool(measured == predicted)
    return right, pairs


def tables_of_layouts(table: list[Scored]) -> dict[str, list[Scored]]:
    """Rows of one source that vary only the layout of one model on one cluster."""
    wanted = {"bloom", "kwai", "zerobubble", "xtuner"}
    rows = [each for each in timed(table, (1, 2)) if each.row.family in wanted]

    def same(each: Scored) -> str:
        data = each.row.data
        shapes = data["model"]
        size = f"{shapes['name']}, {shapes['heads']} heads"
        return f"{each.row.family}: {size}, {data['num_gpus']} {data['gpu']}, {data['seq_len']} tokens, batch {data['global_batch']}"

    return {name: part for name, part in by(rows, same).items() if len(part) >= LAYOUTS}


def kendall(part: list[Scored]) -> float:
    """Kendall's tau of predicted and measured step time."""
    right, pairs = concordant(part)
    return 2 * right / pairs - 1


def best_in_top_three(part: list[Scored]) -> bool:
    best = min(part, key=lambda each: each.row.step_time or np.inf)
    return best in sorted(part, key=lambda each: each.estimate.step_time)[:3]


def order_figures(table: list[Scored]) -> dict[str, float]:
    tables = tables_of_layouts(table)
    right = pairs = 0
    for part in tables.values():
        good, every = concordant(part)
        right, pairs = right + good, pairs + every
    return {
        "layouts: Kendall tau over all pairs": rounded(2 * right / pairs - 1),
        "layouts: median Kendall tau of a table": rounded(
            np.median([kendall(part) for part in tables.values()])
        ),
        "layouts: best measured in the predicted top three %": rounded(
            100 * np.mean([best_in_top_three(part) for part in tables.values()])
        ),
    }


def memory_figures(table: list[Scored]) -> dict[str, float]:
    """Peak memory, what fits, and what was reported as out of memory."""
    peaks = [each for each in table if each.row.peak_memory and not each.row.out_of_memory]
    off = np.array([100 * abs(float(e.estimate.memory.total) / GIB / e.row.peak_memory - 1) for e in peaks])
    ran = [each for each in table if not each.row.out_of_memory and each.row.task == "pretrain"]
    failed = [each for each in table if each.row.out_of_memory]
    return spread("peak memory", off) | {
        "memory: runs that ran predicted not to fit %": rounded(
            100 * np.mean([not e.estimate.fits for e in ran])
        ),
        "memory: out-of-memory rows flagged %": rounded(100 * np.mean([not e.estimate.fits for e in failed])),
    }
