"""Pipelines of layer keys: what a micro-batch takes at least on so many stages, within memory."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.memory.overhead import fixed_bytes
from costmodel.stage import PerLayer, StageRates
from planner.bound.capacity import within_memory
from planner.bound.compute import slowest_bound
from planner.bound.mix import LayerMix
from planner.bound.recompute import recompute_cases
from planner.bound.room import RankRoom
from planner.instance import Instance
from planner.keybook import KeyBook, run_of_rows
from planner.search.rows import memory_limit
from planner.space.columns import ALL, STAGE_RECOMPUTE, Groups, Pipelines, families
from planner.space.counting import Places
from planner.space.layouts import microbatch_range, zero_stages

Array = NDArray[Any]
RANKS = 1 << 14
"""Pipeline ranks whose memory is looked at together: their columns stay in cache."""


@dataclass(slots=True)
class PipelineTable:
    """Pipelines of the layer keys that were looked at."""

    rows: Pipelines
    slowest: Array
    """Least seconds a micro-batch of the slowest rank; inf where no layout fits."""
    extra: Array
    """Least seconds a micro-batch that recompute adds over all ranks."""
    known: Array
    """Whether these know memory."""
    opened: Array
    """The goal's first sort key up to which layouts are written down; -inf before the first time."""
    finished: Array
    """Whether there are no layouts beyond that."""

    @classmethod
    def of(cls, book: KeyBook, keys: Array, layouts: Places) -> PipelineTable:
        """All pipelines of some layer keys."""
        instance, of = book.instance, book.keys.take(keys)
        at, pps, zeros = [], [], []
        for (pool, ranks), layout in layouts.items():
            mine = np.flatnonzero((of.pool == pool) & (of.tp * of.cp == ranks))
            pairs = [(pp, zero) for pp in np.unique(layout.pp).tolist() for zero in zero_stages(instance, pp)]
            pp, zero = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
            at.append(np.repeat(mine, len(pp)))
            pps.append(np.tile(pp, len(mine)))
            zeros.append(np.tile(zero, len(mine)))
        index, pp, zero = (np.concatenate([np.empty(0, dtype=np.int64), *c]) for c in (at, pps, zeros))
        columns = of.take(index)
        rows = Pipelines(
            **{f.name: getattr(columns, f.name) for f in fields(columns)}, key=keys[index], pp=pp, zero=zero
        )
        slowest = slowest_bound(book.least.take(rows.key), LayerMix.of(instance.architecture), pp, 1)
        no = np.zeros(len(rows), dtype=bool)
        return cls(rows, slowest, np.zeros(len(rows)), no, np.full(len(rows), -np.inf), no.copy())

    def __len__(self) -> int:
        return len(self.rows)

    def gpu_seconds(self, book: KeyBook, index: Array) -> Array:
        """Least GPU-seconds a token."""
        rows = self.rows.take(index)
        per = rows.tp * rows.cp * rows.pp / (rows.micro_batch * float(book.instance.seq_len))
        return self.slowest[index] * per + book.least.per_token[rows.key]

    def fit(self, book: KeyBook, index: Array, layouts: Places) -> None:
        """Finds what memory leaves of pipelines."""
        index = index[np.argsort(self.rows.pp[index], kind="stable")]
        for pool, family, of in families(self.rows.take(index)):
            # Pipelines of like length fill an array without much padding.
            for some in np.split(index[of], _blocks(self.rows.pp[index[of]])):
                rows = self.rows.take(some)
                slowest, extra = _within_memory(book, rows, pool, family, layouts)
                self.slowest[some] = np.maximum(self.slowest[some], slowest)
                self.extra[some] = extra
        self.known[index] = True


def _blocks(pp: Array) -> list[int]:
    """Where to cut ascending pipeline sizes so that no block has many more than RANKS ranks, padding included."""
    cuts, start, number = [], 0, np.arange(1, len(pp) + 1)
    while (inside := int(np.searchsorted((number[start:] - start) * pp[start:], RANKS, side="right"))) < len(
        pp
    ) - start:
        start += max(inside, 1)
        cuts.append(start)
    return cuts


def _roomiest(instance: Instance, rows: Pipelines, layouts: Places) -> tuple[Groups, Array]:
    """Each pipeline with the layout that leaves most memory: most replicas; and its fewest replicas."""
    most, least = np.empty(len(rows), dtype=np.int64), np.empty(len(rows), dtype=np.int64)
    pool, ranks = int(rows.pool[0]), rows.tp * rows.cp
    for value in np.unique(ranks).tolist():
        of, layout = np.flatnonzero(ranks == value), layouts[pool, value]
        most[of] = layout.dp[layout.start[rows.pp[of] + 1] - 1]
        least[of] = layout.dp[layout.start[rows.pp[of]]]
    # A replica takes at least a micro-batch, so that no layout has more of them than the batch allows.
    most = np.maximum(np.minimum(most, instance.max_batch // rows.micro_batch), least)
    # Where there are too few ranks for the experts there is no layout; as many as they need have a price.
    most = np.maximum(most, -(-(rows.ep * rows.etp) // ranks))
    fewest = np.maximum(microbatch_range(instance, rows.micro_batch, most)[0], 1)
    columns = {f.name: getattr(rows, f.name) for f in fields(rows)}
    return Groups(**columns, pipeline=rows.key, dp=most, m_low=fewest, m_high=fewest), least


def _within_memory(
    book: KeyBook, rows: Pipelines, pool: int, family: int, layouts: Places
) -> tuple[Array, Array]:
    """bound.within_memory of pipelines of one pool and recompute family, whatever their replicas.

    States shrink and fewer micro-batches are in flight as replicas are added; traffic is left out.
    """
    instance = book.instance
    groups, least = _roomiest(instance, rows, layouts)
    rates = book.rates(groups, pool, family, vpp=1)
    fixed = fixed_bytes(run_of_rows(instance, pool, family, replace(groups, dp=least), vpp=1))
    rates = replace(rates, work=_plain_work(book, rates, groups, pool, family), fixed_bytes=fixed)
    mix, one = LayerMix.of(instance.architecture), np.ones_like(rows.pp)
    (case,) = recompute_cases(STAGE_RECOMPUTE[family], False, mix.layers, rows.pp, one)
    room = RankRoom.of(rates, mix, rows.pp, one, groups.m_low, memory_limit(instance, pool), any_vpp=True)
    slowest, extra = within_memory(rates, room, mix, rows.pp, one, case)
    # What a family recomputes in every layer is part of its layer keys' cost.
    return slowest, np.zeros(len(rows)) if family == ALL else extra


def _plain_work(book: KeyBook, rates: StageRates, groups: Groups, pool: int, family: int) -> PerLayer:
    """A micro-batch's work without the traffic of ZeRO 2 and 3, which depends on the replicas."""
    if book.instance.assume_mfu is not None:
        return rates.work
    cost = book.cost(groups, pool, family)
    return PerLayer(cost.total, cost.first, cost.last)
