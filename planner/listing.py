"""Every candidate within the limits, each with the plainest stage split: to check an optimum against.

The split is as even as can be, the remainder spread (`costmodel.pipeline.plain_layers`); no layers are
recomputed, or selected modules of all of them, or all of them. Candidates come in blocks, so that memory
stays bounded however many there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.pipeline import plain_layers
from costmodel.units import DAY, GIB
from planner.economics import Economy, keys
from planner.evaluate import BLOCK, evaluate
from planner.hfu import longest_of_plain
from planner.instance import Instance
from planner.keybook import KeyBook
from planner.limits import surely_within, within
from planner.narrowing import ZERO_SCOPES
from planner.search import Table, goal_of
from planner.search.opening import open_pipelines
from planner.search.rows import memory_limits
from planner.space.columns import Candidates, Groups
from planner.space.layouts import expand
from planner.space.recompute import (
    ALL,
    HIDDEN_NONE,
    HIDDEN_SELECTIVE,
    NONE,
    SELECTIVE,
    SOME,
    recompute_families,
    variants,
)
from planner.switches import overlaps_of

Array = NDArray[Any]
KEYS = 16
"""Layer keys whose layouts are written down at once."""
GROUPS = 1 << 12
"""Layouts that are expanded at once; each has some tens of schedules and ZeRO stages."""


@dataclass(frozen=True, slots=True)
class Listed:
    """Candidates with their figures, one entry a row; `rows.m_high` is the number of micro-batches."""

    rows: Candidates
    recompute: str
    """none, selective or full: the same for all of them."""
    economy: Economy
    step: Array
    """Seconds."""
    memory: Array
    """Bytes of the fullest rank."""

    def __len__(self) -> int:
        return len(self.step)

    def take(self, index: Array) -> Listed:
        economy = self.economy.take(index)
        return Listed(self.rows.take(index), self.recompute, economy, self.step[index], self.memory[index])


def listed(instance: Instance) -> Iterator[Listed]:
    """All candidates that satisfy the limits, a block at a time."""
    book = KeyBook.of(instance, recompute_families(instance))
    for some in promising_groups(instance):
        for start in range(0, len(some), GROUPS):
            rows = expand(instance, book.specific(some.take(slice(start, start + GROUPS))))
            for of in by_microbatches(book, rows):
                yield from satisfying(book, of)


def promising_groups(instance: Instance) -> Iterator[Groups]:
    """Layouts that could meet deadline, budget and memory: of the others not even a bound does."""
    families = recompute_families(instance)
    every = Table.of(instance, goal_of(instance), families)
    keys = np.flatnonzero(every.least_of_keys().within)
    for start in range(0, len(keys), KEYS):
        table = Table.of(instance, goal_of(instance), families)
        table.list_pipelines(keys[start : start + KEYS])
        open_pipelines(table, np.flatnonzero(table.least_of_pipelines().within), np.inf)
        if len(table.groups):
            yield table.groups.rows


def affordable(instance: Instance, rows: Groups, step: Array) -> Array:
    """Indices of the rows that meet deadline and budget if a step takes so long."""
    return np.flatnonzero(within(instance.limits, Economy.of(instance, rows), step))


def by_microbatches(book: KeyBook, rows: Candidates) -> Iterator[Candidates]:
    """The rows once for each number of micro-batches, in blocks.

    The time a token falls with their number, so that a row which is too slow or too dear at its largest
    number is so at every one.
    """
    if not len(rows):
        return
    figures = evaluate(book, rows)
    index = affordable(book.instance, rows, np.minimum(figures.plain, figures.recomputed))
    for start in range(0, len(index), GROUPS):
        part = rows.take(index[start : start + GROUPS])
        step = np.where(part.vpp > 1, part.pp, 1)
        numbers = (part.m_high - part.m_low) // step + 1
        which = np.repeat(np.arange(len(part)), numbers)
        nth = np.arange(len(which)) - np.repeat(np.cumsum(numbers) - numbers, numbers)
        m = part.m_low[which] + nth * step[which]
        for block in range(0, len(which), BLOCK):
            at = slice(block, block + BLOCK)
            yield replace(part.take(which[at]), m_low=m[at], m_high=m[at])


def satisfying(book: KeyBook, rows: Candidates) -> Iterator[Listed]:
    """The rows of each recompute mode that is allowed and with which they are within the limits."""
    figures, instance = evaluate(book, rows), book.instance
    longest, longest_again = longest_of_plain(instance, rows)
    plain = np.where(figures.plain <= longest, figures.plain, np.inf)
    again = np.where(figures.recomputed <= longest_again, figures.recomputed, np.inf)
    modes = {
        "none": ((SOME, NONE, HIDDEN_NONE), plain, figures.plain_memory),
        "selective": ((SELECTIVE, HIDDEN_SELECTIVE), plain, figures.plain_memory),
        "full": ((SOME, ALL), again, figures.recomputed_memory),
    }
    room = memory_limits(instance, rows.pool)
    for mode, (of_families, step, memory) in modes.items():
        fitting = np.flatnonzero(np.isin(rows.family, of_families) & (memory <= room))
        some = rows.take(fitting)
        economy = Economy.of(instance, some)
        index = fitting[surely_within(instance, instance.limits, some, economy, step[fitting])]
        if len(index):
            yield Listed(
                rows.take(index), mode, Economy.of(instance, rows.take(index)), step[index], memory[index]
            )


def best_records(instance: Instance, number: int) -> list[dict[str, Any]]:
    """The best so many candidates by the problem's objective; ties go to time, then fewer GPUs."""
    best: list[tuple[tuple[float, ...], dict[str, Any]]] = []
    for block in listed(instance):
        columns = keys(instance.objective, instance.lexicographic, block.economy, block.step)
        first = np.lexsort(columns[::-1])[:number]
        places = zip(*(column[first].tolist() for column in columns), strict=True)
        best += zip(places, records(instance, block.take(first)), strict=True)
        best = sorted(best, key=lambda entry: entry[0])[:number]
    return [record for _, record in best]


def records(instance: Instance, of: Listed) -> Iterator[dict[str, Any]]:
    """One mapping a candidate, its decisions named as those of a solution's plan."""
    hidden = ("pool", "family", "variant", "modes", "key", "pipeline", "filled", "m_low", "m_high")
    decided = [f.name for f in fields(Candidates) if f.name not in hidden]
    columns = {name: getattr(of.rows, name).tolist() for name in decided}
    variants_of = [variants(instance.framework)[each] for each in of.rows.variant.tolist()]
    gpus, micro_batches, pools = of.rows.num_gpus.tolist(), of.rows.m_high.tolist(), of.rows.pool.tolist()
    totals = (of.economy.seconds(of.step), of.economy.dollars(of.step))
    figures = zip(*(column.tolist() for column in (of.step, *totals, of.memory)), strict=True)
    for i, (step, seconds, dollars, memory) in enumerate(figures):
        chosen = {name: column[i] for name, column in columns.items()}
        pool = instance.pools[pools[i]]
        decisions = {
            "gpu": pool.gpu.name,
            "num_gpus": gpus[i],
            "nodes": gpus[i] // pool.fabric.gpus_per_node,
            **chosen,
            "zero_scope": ZERO_SCOPES[chosen["zero_scope"]],
            "num_microbatches": micro_batches[i],
            "global_batch": micro_batches[i] * chosen["micro_batch"] * chosen["dp"],
            "recompute": of.recompute,
            "recompute_modules": sorted(variants_of[i].modules),
            "precision": pool.precision,
            **overlaps_of(instance.architecture, instance.stack, instance.framework, chosen),
            "ep_overlap": variants_of[i].overlapped,
            "sequence_parallel": chosen["tp"] > 1 and instance.stack.tensor_parallel.sequence_parallel,
            "stages": plain_stages(
                instance.architecture.layers, chosen["pp"], chosen["vpp"], of.recompute == "full"
            ),
        }
        yield {
            "decisions": decisions,
            "step_time_s": step,
            "days": seconds / DAY,
            "dollars": dollars,
            "gpus": gpus[i],
            "memory_gib": memory / GIB,
        }


@cache
def plain_stages(layers: int, pp: int, vpp: int, recomputed: bool) -> list[dict[str, Any]]:
    """What each pipeline rank of the plain split holds, as in a solution's plan."""
    split = plain_layers(layers, pp, vpp).tolist()
    stages: list[dict[str, Any]] = []
    for rank in range(pp):
        held = split[rank::pp]
        again = held if recomputed else [0] * len(held)
        stage: dict[str, Any] = {"layers": sum(held), "recomputed_layers": sum(again)}
        stages.append(stage | ({"chunks": held, "recomputed_chunks": again} if vpp > 1 else {}))
    return stages
