"""The plain split of candidates: its time and memory, without and with every layer recomputed.

The same cost functions that price one plan price a block of rows here; stage layouts are computed once
for each distinct (pp, vpp, micro-batches in flight).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.architecture import Architecture
from costmodel.pipeline import chunk_sizes, level_chunks, plain_layers, stage_split
from costmodel.records import gather
from costmodel.stage import StageRates, StageSplit, stage_memory
from costmodel.step import step_time
from planner.keybook import KeyBook
from planner.space.columns import Candidates, families
from planner.space.recompute import ALL, SOME

Array = NDArray[Any]
BLOCK = 1 << 13
"""Rows that are priced together: the working set of a block stays in cache."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Plain splits of rows at their largest number of micro-batches; inf where a family has none."""

    plain: Array
    """Seconds of a step with no layer recomputed in full."""
    plain_memory: Array
    """Bytes of its fullest rank."""
    recomputed: Array
    """The same with every layer recomputed."""
    recomputed_memory: Array

    def fitting(self, limit: Array, longest: Any = np.inf, recomputed: Any = np.inf) -> tuple[Array, Array]:
        """The quicker one that fits `limit` bytes, inf if neither does, and whether it recomputes.

        Their steps take at most `longest`, and `recomputed` where all layers are.
        """
        none = np.where((self.plain_memory <= limit) & (self.plain <= longest), self.plain, np.inf)
        full = (self.recomputed_memory <= limit) & (self.recomputed <= recomputed)
        full = np.where(full, self.recomputed, np.inf)
        return np.minimum(none, full), full < none


def distinct(columns: list[Array]) -> tuple[Array, Array]:
    """Rows that show each distinct combination once, and for each row the number of its combination."""
    code = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        values = np.flatnonzero(np.bincount(column))
        lookup = np.zeros(int(column.max()) + 1, dtype=np.int64)
        lookup[values] = np.arange(len(values))
        code = code * len(values) + lookup[column]
        present = np.flatnonzero(np.bincount(code))
        lookup = np.zeros(int(code.max()) + 1, dtype=np.int64)
        lookup[present] = np.arange(len(present))
        code = lookup[code]
    first = np.zeros(int(code.max()) + 1, dtype=np.int64)
    first[code[::-1]] = np.arange(len(code))[::-1]
    return first, code


@cache
def extreme_split(
    architecture: Architecture, pp: int, vpp: int, num_microbatches: int, at_first: int | None = None
) -> StageSplit:
    """The plain split with only the ranks that can be slowest or fullest.

    `at_first`: layers that the first stage of an interleaved pipeline is without (`LevelChunks`).

    The first and the last rank are always among them; of those between, the ones that no other
    beats in layers and in activations kept, of every kind.
    """
    level = None if at_first is None else level_chunks(architecture.layers, pp, vpp)
    layers = plain_layers(architecture.layers, pp, vpp) if level is None else level.split(pp, at_first)
    split = stage_split(architecture, pp, vpp, num_microbatches, layers)
    features = np.concatenate([split.layers, split.in_flight], axis=1)[1:-1]
    keep = [0]
    for i, row in enumerate(features):
        beats = (features >= row).all(axis=1)
        beats[i] = False
        # Of equal ranks the first one stays.
        if not any(beats[j] and ((features[j] > row).any() or j < i) for j in np.flatnonzero(beats)):
            keep.append(i + 1)
    if pp > 1:
        keep.append(pp - 1)
    ranks = np.array(keep)
    by_rank = (
        "layers",
        "recomputed",
        "in_flight",
        "in_flight_recomputed",
        "first_in_flight",
        "first",
        "last",
    )
    totals = ("total_layers", "total_recomputed")
    return StageSplit(
        **{name: getattr(split, name)[ranks] for name in by_rank},
        **{name: getattr(split, name) for name in totals},
    )


def split_table(
    architecture: Architecture, pp: Array, vpp: Array, num_microbatches: Array, at_first: int | None = None
) -> StageSplit:
    """Extreme splits of many schedules, padded to the same number of ranks by repeating the first."""
    splits = [
        extreme_split(architecture, int(p), int(v), int(m), at_first)  # pyright: ignore[reportArgumentType]  # frozen pydantic models hash
        for p, v, m in zip(pp, vpp, num_microbatches, strict=True)
    ]
    ranks = np.array([len(s.first) for s in splits])
    place = np.arange(ranks.max())
    # Where each padded rank lies when the ranks of all splits stand one after the other.
    rank = (np.cumsum(ranks) - ranks)[:, None] + np.where(place < ranks[:, None], place, 0)

    def stacked(name: str) -> Array:
        arrays = [getattr(s, name) for s in splits]
        if name.startswith("total"):
            return np.stack(arrays).astype(float)
        return np.concatenate(arrays).astype(float)[rank]

    return StageSplit(**{f.name: stacked(f.name) for f in fields(StageSplit)})


def of_rows(table: StageSplit, key: Array) -> StageSplit:
    """The splits of rows, laid out in memory with the rows side by side.

    Formulas then run along thousands of rows, not along the two to four ranks of each, and their layer counts
    are floats already: both are many times quicker.
    """
    columns = {f.name: np.take(getattr(table, f.name).T, key, axis=-1).T for f in fields(StageSplit)}
    return StageSplit(**columns)


def fully_recomputed(split: StageSplit) -> StageSplit:
    """The same split with every layer recomputed."""
    return StageSplit(
        layers=split.layers,
        recomputed=split.layers,
        in_flight=np.zeros_like(split.in_flight),
        in_flight_recomputed=split.in_flight,
        first_in_flight=split.first_in_flight,
        first=split.first,
        last=split.last,
        total_layers=split.total_layers,
        total_recomputed=split.total_layers,
    )


def evaluate(book: KeyBook, candidates: Candidates) -> Figures:
    """Figures of all rows, in blocks."""
    columns = {f.name: np.full(len(candidates), np.inf) for f in fields(Figures)}
    for _, family, rows in families(candidates):
        for start in range(0, len(rows), BLOCK):
            at = rows[start : start + BLOCK]
            of = candidates.take(at)
            figures = plain_figures(book, of, family, book.rates(of))
            for f in fields(Figures):
                columns[f.name][at] = getattr(figures, f.name)
    return Figures(**columns)


def plain_figures(book: KeyBook, rows: Candidates, family: int, rates: StageRates) -> Figures:
    """Figures of rows of one recompute family, from their rates."""
    split, none = _splits(book, rows), np.full(len(rows), np.inf)
    plain = (none, none) if family == ALL else _priced(rates, split, rows)
    full = _priced(rates, fully_recomputed(split), rows) if family in (SOME, ALL) else (none, none)
    return Figures(*plain, *full)


def settled(rows: Candidates) -> Array:
    """Rows that leave no choice where layers lie but for one: which end is without how many.

    One stage, or an interleaved pipeline, whose chunks are level (`costmodel.pipeline.level_chunks`).
    """
    return (rows.pp == 1) | (rows.vpp > 1)


def settled_steps(book: KeyBook, rows: Candidates, rates: StageRates, limit: float) -> Array:
    """Seconds of a step of settled rows of which no layer is recomputed in full; inf where none fits."""
    best, layers = np.full(len(rows), np.inf), book.instance.architecture.layers
    of = chunk_sizes(layers, rows.pp, rows.vpp)
    fewest, most = of.short - of.at_last, of.at_first
    for at_first in range(int(most.max(initial=0)) + 1):
        some = np.flatnonzero((fewest <= at_first) & (at_first <= most))
        if not len(some):
            continue
        few = rows.take(some)
        step, memory = _priced(gather(rates, some), _splits(book, few, at_first), few)
        best[some] = np.minimum(best[some], np.where(memory <= limit, step, np.inf))
    return best


def _splits(book: KeyBook, rows: Candidates, at_first: int | None = None) -> StageSplit:
    """The extreme ranks of the rows' splits."""
    saturated = np.minimum(rows.m_high, np.where(rows.vpp == 1, rows.pp, 2 * rows.pp))
    first, key = distinct([rows.pp, rows.vpp, saturated])
    architecture = book.instance.architecture
    table = split_table(architecture, rows.pp[first], rows.vpp[first], saturated[first], at_first)
    return of_rows(table, key)


def _priced(rates: StageRates, split: StageSplit, rows: Candidates) -> tuple[Array, Array]:
    step = step_time(rates, split, rows.m_high, rows.pp, rows.vpp).total
    return step, stage_memory(rates, split).max(axis=-1)
