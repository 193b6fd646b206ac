"""Layouts of layer keys: pipelines and replicas, ZeRO stages, and numbers of micro-batches."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from itertools import product
from math import lcm

import numpy as np

from costmodel.pipeline import level_chunks
from planner.instance import Instance, Pool
from planner.space.columns import FAMILY_MODES, Array, Candidates, Groups, Pipelines, values_of


@dataclass(frozen=True, slots=True)
class Layouts:
    """All (pp, dp) with which so many ranks a stage fill whole nodes of a pool: (layouts,), by pp and dp."""

    pp: Array
    dp: Array
    num_gpus: Array
    start: Array
    """(layers + 2,) where the layouts of each pp begin."""

    @classmethod
    def of(cls, instance: Instance, pool: Pool, ranks: int) -> Layouts:
        """Layouts of `ranks` = tp x cp."""
        permits, node = instance.narrowing.permits, pool.fabric.gpus_per_node
        low, high = pool.min_nodes * node, pool.max_nodes * node
        permitted = instance.narrowing.permitted
        pps, dps = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
        for pp in range(1, instance.architecture.layers + 1):
            if not permits("pp", pp):
                continue
            unit = ranks * pp
            whole = lcm(unit, node)
            dp = np.arange(max(-(-low // whole), 1) * whole, high + 1, whole) // unit
            gpus = unit * dp
            dp = dp[permitted("dp", dp) & permitted("num_gpus", gpus) & permitted("nodes", gpus // node)]
            pps.append(np.full_like(dp, pp))
            dps.append(dp)
        pp, dp = np.concatenate(pps), np.concatenate(dps)
        start = np.searchsorted(pp, np.arange(instance.architecture.layers + 2))
        return cls(pp, dp, ranks * pp * dp, start)

    def cells(self, pp: Array) -> tuple[Array, Array]:
        """All layouts of each of some pipelines: the pipeline's position, and the layout's row."""
        first, number = self.start[pp], self.start[pp + 1] - self.start[pp]
        which = np.repeat(np.arange(len(pp)), number)
        place = np.arange(len(which)) - np.repeat(np.cumsum(number) - number, number) + first[which]
        return which, place


Span = tuple[int, int]
"""From the first to the last of whole numbers that follow each other."""


def spans(instance: Instance, decision: str, low: int, high: int) -> list[Span]:
    """What the problem lets a decision be between two values, as spans; computed once."""
    of = f"{decision} from {low} to {high}"
    if of not in instance.derived:
        values = np.arange(low, high + 1)
        inside = np.concatenate([[0], instance.narrowing.permitted(decision, values).astype(np.int64), [0]])
        first, last = np.flatnonzero(np.diff(inside) == 1), np.flatnonzero(np.diff(inside) == -1) - 1
        instance.derived[of] = list(zip((first + low).tolist(), (last + low).tolist(), strict=True))
    return instance.derived[of]


def batch_spans(instance: Instance) -> list[Span]:
    """Global batches that are allowed."""
    if not instance.narrowing.narrows("global_batch"):
        return [(instance.min_batch, instance.max_batch)]
    return spans(instance, "global_batch", instance.min_batch, instance.max_batch)


def microbatch_spans(instance: Instance) -> list[Span]:
    """Numbers of micro-batches that are allowed, whatever the batch."""
    if not instance.narrowing.narrows("num_microbatches"):
        return [(1, instance.max_batch)]
    return spans(instance, "num_microbatches", 1, instance.max_batch)


def microbatch_range(instance: Instance, micro_batch: Array, dp: Array) -> tuple[Array, Array]:
    """Fewest and most micro-batches that keep micro_batch*m*dp within the allowed global batches."""
    sequences, batches = micro_batch * dp, batch_spans(instance) or [(1, 0)]
    return np.maximum(-(-batches[0][0] // sequences), 1), batches[-1][1] // sequences


def microbatch_range_filled(instance: Instance, rows: Pipelines, dp: Array) -> tuple[Array, Array]:
    """The part of it in which pipelines fill, or in which they do not (they are empty if it is)."""
    low, high = microbatch_range(instance, rows.micro_batch, dp)
    filled = rows.filled == 1
    return np.where(filled, np.maximum(low, rows.pp), low), np.where(
        filled, high, np.minimum(high, rows.pp - 1)
    )


def clipped(
    low: Array, high: Array, sequences: Array, microbatches: Span, batches: Span
) -> tuple[Array, Array]:
    """The part of ranges of micro-batches, of so many sequences each over all replicas, within two spans."""
    first, last = -(-batches[0] // sequences), batches[1] // sequences
    return (
        np.maximum(np.maximum(low, microbatches[0]), first),
        np.minimum(np.minimum(high, microbatches[1]), last),
    )


def with_microbatches(instance: Instance, rows: Groups) -> Groups:
    """The rows, or one copy for each span of micro-batches and batches that the problem leaves of them."""
    if not any(instance.narrowing.narrows(name) for name in ("num_microbatches", "global_batch")):
        return rows
    parts, sequences = [rows.take(slice(0))], rows.micro_batch * rows.dp
    for span, batches in product(microbatch_spans(instance), batch_spans(instance)):
        low, high = clipped(rows.m_low, rows.m_high, sequences, span, batches)
        some = np.flatnonzero(low <= high)
        parts.append(replace(rows.take(some), m_low=low[some], m_high=high[some]))
    return Groups.concatenate(parts)


def zero_stages(instance: Instance, pp: int) -> list[int]:
    """ZeRO stages with a pipeline of so many ranks, where there are ranks to shard over (else it is 0).

    With a pipeline, stages 2 and 3 would reduce or gather for every micro-batch of every stage.
    """
    return [z for z in ((0, 1) if pp > 1 else (0, 1, 2, 3)) if instance.narrowing.permits("zero", z)]


def chunk_counts(instance: Instance, pp: int) -> list[int]:
    """Values of vpp: 1, or with a pipeline as many chunks as ranks can keep step with (`level_chunks`)."""
    layers = instance.architecture.layers
    level = [vpp for vpp in range(2, layers // pp + 2) if pp > 1 and level_chunks(layers, pp, vpp)]
    return [vpp for vpp in (1, *level) if instance.narrowing.permits("vpp", vpp)]


def expand(instance: Instance, rows: Groups) -> Candidates:
    """Candidates of groups: each vpp that is valid for them.

    Interleaved, memory grows with the micro-batches up to 2*pp of them: exactly pp are a row of their own.
    With that, all numbers of micro-batches of a row need the same memory.
    """
    parts = [tuple(np.empty(0, dtype=np.int64) for _ in range(4))]
    for pp in values_of(rows.pp):
        part = np.flatnonzero(rows.pp == pp)
        for vpp in chunk_counts(instance, pp):
            step = pp if vpp > 1 else 1
            low, high = -(-rows.m_low[part] // step) * step, rows.m_high[part] // step * step
            ranges = ((low, high),)
            if vpp > 1:
                ranges = ((np.maximum(low, 2 * pp), high), (low, np.minimum(high, pp)))
            for first, last in ranges:
                some = np.flatnonzero(first <= last)
                parts.append((part[some], first[some], last[some], np.full(len(some), vpp)))
    of, first, last, vpp = (np.concatenate(column) for column in zip(*parts, strict=True))
    columns = {f.name: getattr(rows, f.name)[of] for f in fields(Groups)}
    return Candidates(**columns | {"m_low": first, "m_high": last}, vpp=vpp)


@dataclass(frozen=True, slots=True)
class Multiplicity:
    """How many candidates a layout stands for, by tables over pp: what `expand` would write down."""

    plain: Array
    """(layers + 1,) 1 if vpp = 1 is allowed."""
    interleaved: Array
    """(layers + 1,) allowed values of vpp beyond 1."""
    zero: Array
    """(2, 2) allowed ZeRO stages by whether there is a pipeline and whether there are ranks to shard over."""
    modes: Array
    """(4,) recompute modes of each family."""
    spans: tuple[tuple[Span, Span], ...] | None
    """Numbers of micro-batches and batches that go together, where the problem says which."""

    @classmethod
    def of(cls, instance: Instance) -> Multiplicity:
        chunks = [[], *(chunk_counts(instance, pp) for pp in range(1, instance.architecture.layers + 1))]
        allowed = [
            [sum(instance.narrowing.permits("zero", z) for z in range(most)) for most in (1, full)]
            for full in (4, 2)
        ]
        permits = instance.narrowing.permits
        modes = [sum(permits("recompute", mode) for mode in of) for of in FAMILY_MODES]
        named = any(instance.narrowing.narrows(name) for name in ("num_microbatches", "global_batch"))
        return cls(
            np.array([int(1 in c) for c in chunks]),
            np.array([sum(1 for v in c if v > 1) for c in chunks]),
            np.array(allowed),
            np.array(modes),
            tuple(product(microbatch_spans(instance), batch_spans(instance))) if named else None,
        )

    def schedules(self, pp: Array, low: Array, high: Array, sequences: Array) -> Array:
        """Values of vpp x numbers of micro-batches from `low` to `high`, of so many sequences each."""
        single, several = np.zeros_like(low), np.zeros_like(low)
        parts = (
            [(low, high)] if self.spans is None else [clipped(low, high, sequences, *of) for of in self.spans]
        )
        for first, last in parts:
            single += np.maximum(last - first + 1, 0)
            several += np.maximum(last // pp - -(-first // pp) + 1, 0)
        return self.plain[pp] * single + self.interleaved[pp] * several

    def stages(self, pp: Array, shards: Array) -> Array:
        """Values of the ZeRO stage."""
        return self.zero[(pp > 1).astype(np.int64), (shards > 1).astype(np.int64)]

    def of_rows(self, rows: Groups) -> Array:
        """Candidates that groups, or rows with a schedule, stand for."""
        if isinstance(rows, Candidates):
            step = np.where(rows.vpp > 1, rows.pp, 1)
            number = (rows.m_high - rows.m_low) // step + 1
        else:
            number = self.schedules(rows.pp, rows.m_low, rows.m_high, rows.micro_batch * rows.dp)
        return number * self.modes[rows.family]
