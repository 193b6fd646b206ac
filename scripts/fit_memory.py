"""Refit the fitted numbers of the memory model and print errors with each source left out.

    python scripts/fit_memory.py [--data validation/published.jsonl]

Fitted numbers take values of a short grid; everything else in the profiles is what frameworks do. With a
source left out, a number that other sources inform is refitted on those, and one that only this source
informs falls back to what the profile's parent would say (its neutral value): the error that a framework
nobody has measured would have. Coordinate descent on the mean of |error|, each at most 0.3.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from costmodel.memory.figures import Tool, tools
from costmodel.memory.overhead import communicators
from costmodel.stage import allocated_memory
from planner.runs import DescribedRun
from scripts.score_memory import DATA, GIB, Row, figure_of, observations, rates_and_split, rows_of, summary

ROUNDS = 2
LARGEST = 0.3
"""Errors count no more than this in the fit: some figures contradict each other."""
ENOUGH = 3
"""Observations of other sources that inform a number without its own source."""
TODAY = ("megatron-core", "megatron-lm", "megatron-bridge", "mlperf", "nemo", "kwai")
BIGSCIENCE = ("megatron-deepspeed", "megatron-deepspeed-omnipath")


@dataclass(frozen=True, slots=True)
class Number:
    """A fitted number: a memory field of some profiles, or a field of a figure."""

    owners: tuple[str, ...]
    field: str
    grid: tuple[Any, ...]
    neutral: Any

    @property
    def of_figure(self) -> bool:
        return self.owners == ("device",)


NUMBERS = (
    Number(("megatron-core", "megatron-lm"), "logit_bytes", (2, 4, 6, 10), 6),
    Number(TODAY, "dummy_wgrad_bytes", (0, 2, 4), 0),
    Number(("megatron-bridge", "nemo"), "logit_bytes", (4, 6, 10), 4),
    Number(("mlperf",), "logit_bytes", (4, 6, 10), 6),
    Number(("megatron-bridge", "mlperf", "nemo"), "gradient_bytes", (2, 4), 4),
    Number((*BIGSCIENCE, "zero-bubble"), "stage_output_kept", (False, True), False),
    Number((*BIGSCIENCE, "zero-bubble"), "score_transient_bytes", (2, 8), 8),
    Number(("kwai",), "residuals_rebuilt", (False, True), False),
    Number(("paddlenlp",), "extra_bytes_tp", (0, 2, 4, 6), 0),
    Number(("internevo",), "partition_gradient_bytes", (0, 4, 8, 10, 12), 4),
    Number(("nanotron",), "extra_bytes_sharded", (0, 5, 8, 10, 12), 0),
    Number(("nanotron",), "logit_bytes", (6, 10, 12, 14), 10),
    Number(("torchtitan",), "logit_bytes", (6, 10, 14), 10),
    Number(("torchtitan",), "logit_bytes_tp", (6, 10, 14, 20), 10),
    Number(("torchtitan-2025",), "logit_bytes", (6, 10, 14), 10),
    Number(("device",), "share", (0.0, 0.05, 0.07, 0.10, 0.13, 0.15), 0.03),
    Number(("device",), "fixed_bytes", (1.5 * GIB, 2.5 * GIB, 3.5 * GIB, 4.5 * GIB, 6 * GIB), 1.5 * GIB),
)
Values = tuple[Any, ...]


class Observations:
    """Published peaks with predictions for any values of the fitted numbers, each computed once."""

    def __init__(self, pairs: Sequence[tuple[Row, DescribedRun]]) -> None:
        self.pairs = pairs
        self.profiles = [described.run.stack.name for _, described in pairs]
        self.figures = [figure_of(row, described) for row, described in pairs]
        self.sources = np.array([row["family"] for row, _ in pairs])
        self.informs = np.array([[self._touches(i, n) for n in NUMBERS] for i in range(len(pairs))])
        self.allocated: dict[tuple[int, Values], float] = {}

    def _touches(self, index: int, number: Number) -> bool:
        return self.figures[index] in number.owners or self.profiles[index] in number.owners

    def stored(self) -> Values:
        """What the profiles hold now."""
        stacks = {described.run.stack.name: described.run.stack.memory for _, described in self.pairs}

        def held(number: Number) -> Any:
            if number.of_figure:
                return getattr(tools()["device"], number.field)
            return next(
                (getattr(stacks[name], number.field) for name in number.owners if name in stacks),
                number.neutral,
            )

        return tuple(held(number) for number in NUMBERS)

    def errors(self, values: Values, rows: Sequence[int]) -> list[float]:
        return [self._error(index, values) for index in rows]

    def _error(self, index: int, values: Values) -> float:
        row, described = self.pairs[index]
        mine = tuple(
            value if touched and not number.of_figure else None
            for number, value, touched in zip(NUMBERS, values, self.informs[index], strict=True)
        )
        if (index, mine) not in self.allocated:
            self.allocated[index, mine] = self._allocated(row, described, mine)
        tool = self._tool(index, values)
        groups = float(communicators(described.run))
        shown = self.allocated[index, mine] * (1 + tool.share) + tool.fixed_bytes + tool.group_bytes * groups
        return shown / GIB / row["measured"]["peak_memory_gib"] - 1

    def _allocated(self, row: Row, described: DescribedRun, mine: Values) -> float:
        changes = {n.field: value for n, value in zip(NUMBERS, mine, strict=True) if value is not None}
        stack = described.run.stack
        if (
            changes.get("gradient_bytes") == stack.memory.optimizer_bytes / 3
        ):  # FP32 gradients: FP8 beside BF16 weights
            changes |= {"fp8_weight_bytes": stack.memory.weight_bytes * 2}
        memory = stack.memory.model_copy(update=changes)
        run = replace(described.run, stack=stack.model_copy(update={"memory": memory}))
        by_rank = allocated_memory(*rates_and_split(replace(described, run=run)))
        return float(by_rank[0] if "MLPerf" in row["framework"] else by_rank.max())

    def _tool(self, index: int, values: Values) -> Tool:
        tool = tools()[self.figures[index]]
        changes: Mapping[str, Any] = {
            number.field: value
            for number, value, touched in zip(NUMBERS, values, self.informs[index], strict=True)
            if touched and number.of_figure
        }
        return tool.model_copy(update=dict(changes))


def fitted(seen: Observations, rows: Sequence[int], start: Values, enough: int = ENOUGH) -> Values:
    """Coordinate descent over the grids on `rows`; numbers that too few rows inform become neutral."""
    values = list(start)
    informed = seen.informs[list(rows)].sum(axis=0) >= enough
    for i, number in enumerate(NUMBERS):
        if not informed[i]:
            values[i] = number.neutral
    for _ in range(ROUNDS):
        for i, number in enumerate(NUMBERS):
            if informed[i]:
                touched = [row for row in rows if seen.informs[row, i]]
                losses = [_loss(seen, touched, values, i, value) for value in number.grid]
                values[i] = number.grid[int(np.argmin(losses))]
    return tuple(values)


def _loss(seen: Observations, rows: Sequence[int], values: Sequence[Any], at: int, value: Any) -> float:
    trial = tuple(value if i == at else other for i, other in enumerate(values))
    return float(np.minimum(np.abs(seen.errors(trial, rows)), LARGEST).mean())


def left_out_errors(seen: Observations) -> dict[str, list[float]]:
    """Errors of each source's peaks with the source left out of the fit."""
    stored, everything = seen.stored(), range(len(seen.pairs))
    found: dict[str, list[float]] = {}
    for source in sorted(set(seen.sources)):
        rest = [i for i in everything if seen.sources[i] != source]
        own = [i for i in everything if seen.sources[i] == source]
        found[source] = seen.errors(fitted(seen, rest, stored), own)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DATA)
    seen = Observations(observations(rows_of(parser.parse_args().data)))
    everything, stored = list(range(len(seen.pairs))), seen.stored()
    best = fitted(seen, everything, stored, enough=1)
    print(f"{'number':64s} {'stored':>12s} {'fitted':>12s}")
    for number, now, then in zip(NUMBERS, stored, best, strict=True):
        print(f"{', '.join(number.owners)[:40]:42s}{number.field:22s} {now!s:>12} {then!s:>12}")
    print(f"\n{'error in %':32s} {'n':>5s} {'median':>7s} {'p90':>7s} {'bias':>7s}")
    print(f"{'as stored':32s} {summary(seen.errors(stored, everything))}")
    print(f"{'refitted on all':32s} {summary(seen.errors(best, everything))}")
    left = left_out_errors(seen)
    for source, errors in left.items():
        print(f"{'left out: ' + source:32s} {summary(errors)}")
    print(f"{'every source left out':32s} {summary([error for errors in left.values() for error in errors])}")


if __name__ == "__main__":
    main()
