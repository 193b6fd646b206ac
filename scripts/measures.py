"""What the cost model is scored by: errors by group, orders of layouts, memory, coverage."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from published import FOLDER, Row

from costmodel.estimate import Estimate
from costmodel.units import GIB
from planner.confidence import coverage, kind_of
from planner.estimates import estimated
from planner.runs import DescribedRun, RefusedRun, describe
from scripts.fit_memory import Observations, left_out_errors
from scripts.score_memory import DATA, OUT_OF_MEMORY, feasibility, observations, rows_of

Values = NDArray[np.float64]
FEWEST = 10
"""Runs that a group needs for its bias to count."""
LAYOUTS = 3
"""Layouts that a table needs for its order to count."""
VARY_THE_BATCH = ("xtuner",)
"""Sources whose layouts come with batches of their own; their times are compared by sequence."""


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


def measures(table: list[Scored], all_rows: Sequence[Row]) -> dict[str, float]:
    """Every figure that a target speaks of."""
    first = collected(timed(table))
    figures = spread("step time, all stacks", errors(first))
    refused = [row for row in all_rows if isinstance(row.described, RefusedRun)]
    figures["rows refused %"] = rounded(100 * len(refused) / len(all_rows))
    for kind, part in by(first, lambda each: each.kind).items():
        figures |= spread(f"step time, {kind}", errors(part))
    figures |= left_out_figures(table)
    h800 = [each for each in collected(timed(table, (1, 2))) if each.row.data["gpu"] == "H800"]
    figures |= spread("step time, H800 (tiers 1 and 2)", errors(h800))
    figures |= unversioned_figures(first)
    figures["step time, largest group bias %"] = worst_bias(first)[1]
    figures |= vtrain_figures(table)
    figures |= order_figures(table)
    figures |= memory_figures(table)
    return figures


NAMES = {"gpu": "GPU"}


def left_out_figures(table: list[Scored]) -> dict[str, float]:
    """Errors and coverage with the whole source left out of the fit."""
    path = FOLDER / "left_out.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    found = {line["id"]: line["source"] for line in lines}
    first = [each for each in collected(timed(table)) if each.row.id in found]
    out = np.array([100 * abs(np.expm1(found[each.row.id])) for each in first])
    figures = spread("step time, source left out", out)
    generic = {line["id"]: line["source_generic"] for line in lines}
    plain = np.array([100 * abs(np.expm1(generic[each.row.id])) for each in first])
    figures |= spread("step time, source left out, attention kernels not told apart", plain)
    multi = [each for each in timed(table) if each.row.family == "vtrain-multi"]
    model = {line["id"]: line["model"] for line in lines}
    sizes = np.array([100 * abs(np.expm1(model[each.row.id])) for each in multi])
    figures["vTrain multi-node, model size left out: mean error %"] = rounded(sizes.mean())
    for name, covered in coverage().items():
        label = "as fitted" if name == "fitted" else f"{NAMES.get(name, name)} left out of the fit"
        figures[f"interval_80, coverage, {label} %"] = covered
    return figures


def unversioned_figures(first: list[Scored]) -> dict[str, float]:
    """Errors where a run names its framework but no version or date of it."""
    part = [each for each in first if each.kind == "NVIDIA dense"]
    blind = [
        describe({key: value for key, value in each.row.data.items() if key != "software"}) for each in part
    ]
    off = np.array(
        [
            100 * abs(estimated(run).step_time / (each.row.step_time or np.nan) - 1)
            for each, run in zip(part, blind, strict=True)
            if isinstance(run, DescribedRun)
        ]
    )
    return spread("step time, NVIDIA dense, versions withheld", off)


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


def sequence_time(each: Scored, measured: bool = False) -> float:
    """Seconds for each sequence of the batch, so that batches of different sizes compare."""
    seconds = each.row.step_time if measured else each.estimate.step_time
    return float(seconds or np.nan) / each.row.data["global_batch"]


def concordant(part: list[Scored]) -> tuple[int, int]:
    """Pairs that are predicted in the measured order, and all pairs."""
    right = pairs = 0
    for a, b in combinations(part, 2):
        measured = np.sign(sequence_time(a, measured=True) - sequence_time(b, measured=True))
        predicted = np.sign(sequence_time(a) - sequence_time(b))
        if measured:
            pairs += 1
            right += bool(measured == predicted)
    return right, pairs


def tables_of_layouts(table: list[Scored]) -> dict[str, list[Scored]]:
    """Rows of one source that vary only the layout of one model on one cluster."""
    wanted = {"bloom", "kwai", "zerobubble", "xtuner"}
    rows = [
        each
        for each in table
        if each.row.family in wanted
        and each.row.step_time is not None
        and each.row.tier in (1, 2)
        and (not each.row.data.get("superseded") or "schedule" in each.row.data)  # schedules are layouts here
    ]

    def same(each: Scored) -> str:
        data = each.row.data
        model = f"{data['model']['name']}, {data['model']['heads']} heads"
        batch = "" if each.row.family in VARY_THE_BATCH else f", batch {data['global_batch']}"
        return (
            f"{each.row.family}: {model}, {data['num_gpus']} {data['gpu']}, {data['seq_len']} tokens{batch}"
        )

    return {name: part for name, part in by(rows, same).items() if len(part) >= LAYOUTS}


def kendall(part: list[Scored]) -> float:
    """Kendall's tau of predicted and measured time."""
    right, pairs = concordant(part)
    return 2 * right / pairs - 1


def best_in_top_three(part: list[Scored]) -> bool:
    best = min(part, key=lambda each: sequence_time(each, measured=True))
    return best in sorted(part, key=sequence_time)[:3]


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
    return (
        spread("peak memory", off)
        | left_out_memory()
        | {
            "memory: runs that ran predicted not to fit %": rounded(
                100 * np.mean([not e.estimate.fits for e in ran])
            ),
            "memory: out-of-memory rows flagged %": rounded(
                100 * np.mean([not e.estimate.fits for e in failed])
            ),
            "memory: out-of-memory rows and public reports flagged %": rounded(
                100 * np.mean(public_failures())
            ),
        }
    )


def left_out_memory() -> dict[str, float]:
    """Errors of peak memory with the whole source left out of the fit."""
    by_source = left_out_errors(Observations(observations(rows_of(DATA))))
    return spread("peak memory, source left out", 100 * np.abs(np.concatenate(list(by_source.values()))))


def public_failures() -> list[bool]:
    """Whether each run that ran out of memory, of the rows and of public reports, is predicted not to fit."""
    failed = [row for row in rows_of(DATA) if row["measured"].get("out_of_memory")]
    return [not fit.fits for fit in feasibility([*failed, *rows_of(OUT_OF_MEMORY)])]
