"""Pipelines of layer keys: what a micro-batch takes at least on so many stages, within memory."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.memory.layer_memory import on_stages
from costmodel.memory.overhead import fixed_bytes
from costmodel.memory.states import state_bytes
from costmodel.stage import PerLayer, StageRates
from costmodel.step import pipeline_time
from planner.bound.capacity import recomputes, within_memory
from planner.bound.compute import slowest_bound
from planner.bound.fit import may_fit
from planner.bound.recompute import recompute_cases
from planner.bound.room import RankRoom
from planner.instance import Instance
from planner.keybook import KeyBook, gather, layer_mix, run_of_rows
from planner.search.rows import memory_limit
from planner.space.columns import FULL, Groups, Pipelines, families, values_of
from planner.space.counting import Places
from planner.space.layouts import microbatch_range_filled, pipeline_zero_stages
from planner.space.recompute import ALL, HIDDEN, OPEN, PLAIN, stage_recompute

Array = NDArray[Any]
HALVINGS = 5
"""Of the bracket around the slowest rank's time: what is nearly as good is told apart later."""
RANKS = 1 << 15
"""Pipeline ranks whose memory is looked at together: their columns stay in cache."""
ROWS = 1 << 13
"""Pipelines that are priced together."""


@dataclass(slots=True)
class PipelineTable:
    """Pipelines of the layer keys that were looked at."""

    rows: Pipelines
    slowest: Array
    """Least seconds a micro-batch of the slowest rank; inf where no layout fits."""
    extra: Array
    """Least seconds a micro-batch that recompute adds over all ranks."""
    gpu_seconds: Array
    """Least GPU-seconds a token."""
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
        at, parts = [], []
        for (pool, ranks), layout in layouts.items():
            mine = np.flatnonzero((of.pool == pool) & (of.tp * of.cp == ranks))
            if not len(mine):
                continue
            # All pipelines of more than one stage have the same ZeRO stages.
            precision = instance.pools[pool].precision
            alone, more = (pipeline_zero_stages(instance, precision, ranks, pp) for pp in (1, 2))
            values = [
                (pp, zero, filled)
                for pp in values_of(layout.pp)
                for zero in (alone if pp == 1 else more)
                for filled in ((1,) if pp == 1 else (1, 0))
            ]
            at.append(np.repeat(mine, len(values)))
            parts.append(np.tile(np.array(values, dtype=np.int64).reshape(-1, 3), (len(mine), 1)))
        index = np.concatenate([np.empty(0, dtype=np.int64), *at])
        each = np.concatenate([np.empty((0, 3), dtype=np.int64), *parts])
        # Hidden traffic needs virtual stages, and those a pipeline that fills.
        some = np.flatnonzero((each[:, 2] == 1) | ~of.hidden[index])
        index, (pp, zero, filled) = index[some], each[some].T
        columns = of.take(index)
        rows = Pipelines(
            **{f.name: getattr(columns, f.name) for f in fields(columns)},
            key=keys[index],
            pp=pp,
            zero=zero,
            filled=filled,
        )
        # Where the experts' traffic is hidden pipelines are interleaved.
        chunks = np.where(rows.hidden & (pp > 1), 2, 1)
        slowest = slowest_bound(book.least.take(rows.key), layer_mix(instance), pp, chunks)
        no, extra = np.zeros(len(rows), dtype=bool), np.zeros(len(rows))
        each = gpu_seconds(book, rows, slowest, extra)
        return cls(rows, slowest, extra, each, no, np.full(len(rows), -np.inf), no.copy())

    def __len__(self) -> int:
        return len(self.rows)

    def fit(self, book: KeyBook, index: Array, layouts: Places) -> None:
        """Finds what memory leaves of pipelines."""
        index = index[np.argsort(self.rows.pp[index], kind="stable")]
        for pool, family, variant, of in families(self.rows.take(index)):
            for some in np.split(index[of], range(ROWS, len(of), ROWS)):
                rows = self.rows.take(some)
                slowest, extra = _within_memory(book, rows, (pool, family, variant), layouts)
                self.slowest[some] = np.maximum(self.slowest[some], slowest)
                self.extra[some] = extra
                self.gpu_seconds[some] = gpu_seconds(book, rows, self.slowest[some], extra)
        self.known[index] = True


def gpu_seconds(book: KeyBook, rows: Pipelines, slowest: Array, extra: Array) -> Array:
    """Least GPU-seconds a token: many micro-batches, or pp - 1 of them where the pipeline does not fill."""
    per = rows.tp * rows.cp * rows.pp / (rows.micro_batch * float(book.instance.seq_len))
    fits = np.where(np.isinf(slowest), 0.0, slowest)
    total = np.maximum(book.least.total[rows.key] + extra, fits)
    few = pipeline_time(fits, total, rows.pp - 1, 1, book.instance.stack.pipeline.bubble)
    each = np.where((rows.filled == 1) | (fits < slowest), slowest, few / np.maximum(rows.pp - 1, 1))
    return each * per + book.least.per_token[rows.key]


def _blocks(pp: Array) -> list[int]:
    """Where to cut ascending pipeline sizes so that no block has more than RANKS ranks with its padding."""
    cuts, start, number = [], 0, np.arange(1, len(pp) + 1)
    while (inside := int(np.searchsorted((number[start:] - start) * pp[start:], RANKS, side="right"))) < len(
        pp
    ) - start:
        start += max(inside, 1)
        cuts.append(start)
    return cuts


def _roomiest(instance: Instance, rows: Pipelines, layouts: Places) -> tuple[Groups, Array]:
    """Each pipeline with the layout that leaves most memory, and its fewest replicas.

    Most memory is left with most replicas, among all of which states are shared.
    """
    most, least = np.empty(len(rows), dtype=np.int64), np.empty(len(rows), dtype=np.int64)
    pool, ranks = int(rows.pool[0]), rows.tp * rows.cp
    for value in values_of(ranks):
        of, layout = np.flatnonzero(ranks == value), layouts[pool, value]
        most[of] = layout.dp[layout.start[rows.pp[of] + 1] - 1]
        least[of] = layout.dp[layout.start[rows.pp[of]]]
    # A replica takes at least a micro-batch, so that no layout has more of them than the batch allows.
    most = np.maximum(np.minimum(most, instance.max_batch // rows.micro_batch), least)
    # Where there are too few ranks for the experts there is no layout; as many as they need have a price.
    most = np.maximum(most, -(-(rows.ep * rows.etp) // ranks))
    fewest = np.maximum(microbatch_range_filled(instance, rows, most)[0], 1)
    columns = {f.name: getattr(rows, f.name) for f in fields(rows)}
    shared = {"dp": most, "zero_scope": np.full(len(rows), FULL)}
    return Groups(**columns, **shared, pipeline=rows.key, m_low=fewest, m_high=fewest), least


def _within_memory(
    book: KeyBook, rows: Pipelines, of: tuple[int, int, int], layouts: Places
) -> tuple[Array, Array]:
    """bound.within_memory of pipelines of one pool and family, whatever their replicas.

    States shrink and fewer micro-batches are in flight as replicas are added; traffic is left out. Of a
    family that leaves its variant open it is the least of all its variants.
    """
    (pool, family, variant), instance = of, book.instance
    groups, least = _roomiest(instance, rows, layouts)
    several = [variant] if variant != OPEN else book.open_variants(pool, family)
    rates = book.rates(groups, pool, several[0], vpp=1)
    fixed = fixed_bytes(run_of_rows(instance, pool, several[0], replace(groups, dp=least), vpp=1))
    rates = replace(rates, fixed_bytes=fixed, states=_least_states(book, rates, groups, least))
    open_rows = _may_fit(book, rates, groups, pool, family, several, memory_limit(instance, pool))
    slowest, extra = np.full(len(rows), np.inf), np.zeros(len(rows))
    for each in several:
        at = _worth_a_look(book, groups, slowest, open_rows, (pool, each)) if variant == OPEN else open_rows
        own = _of_variant(book, gather(rates, at), groups.take(at), pool, each)
        for some in np.split(np.arange(len(at)), _blocks(groups.pp[at])) if len(at) else ():
            found = _least_in_time(book, gather(own, some), groups.take(at[some]), pool, family)
            better = found[0] < slowest[at[some]]
            slowest[at[some]] = np.where(better, found[0], slowest[at[some]])
            extra[at[some]] = np.where(better, found[1], extra[at[some]])
    # What a family recomputes in every layer is part of its layer keys' cost.
    return slowest, np.zeros(len(rows)) if family == ALL else extra


def _least_states(book: KeyBook, rates: StageRates, groups: Groups, least: Array) -> PerLayer:
    """Bytes of states with most replicas, or with a single one where that needs smaller gradient buffers."""
    if book.instance.stack.memory.gradient_bytes_one_replica is None:
        return rates.states
    alone = replace(groups, dp=np.where(least == 1, 1, groups.dp))
    of = state_bytes(run_of_rows(book.instance, int(groups.pool[0]), PLAIN, alone, vpp=1))
    names = (f.name for f in fields(PerLayer))
    return PerLayer(*(np.minimum(getattr(rates.states, name), getattr(of, name)) for name in names))


def _may_fit(
    book: KeyBook,
    rates: StageRates,
    groups: Groups,
    pool: int,
    family: int,
    several: list[int],
    limit: float,
) -> Array:
    """Rows that may fit with the leanest of some variants."""
    if len(several) > 1:
        kinds = [book.memory(groups, pool, each).kept.kinds for each in several]
        working = [book.memory(groups, pool, each).working for each in several]
        kept = replace(rates.kept, kinds=np.minimum.reduce(kinds))
        rates = replace(rates, kept=kept, working=rates.working - working[0] + np.minimum.reduce(working))
    mix, recomputes = layer_mix(book.instance), stage_recompute(family) != "none"
    return np.flatnonzero(may_fit(rates, mix, groups.pp, groups.m_low, limit, recomputes))


def _worth_a_look(
    book: KeyBook, groups: Groups, slowest: Array, open_rows: Array, of: tuple[int, int]
) -> Array:
    """Of some rows, those that need a variant and may be quicker with it than what is known."""
    least, needed = book.parts[of]
    place = book.place[groups.key[open_rows]]
    pp = groups.pp[open_rows]
    chunks = np.where(groups.hidden[open_rows] & (pp > 1), 2, 1)
    quickest = slowest_bound(least.take(place), layer_mix(book.instance), pp, chunks)
    return open_rows[np.flatnonzero(needed[place] & (quickest < slowest[open_rows]))]


def _of_variant(book: KeyBook, rates: StageRates, groups: Groups, pool: int, variant: int) -> StageRates:
    """The rates with a variant's layers.

    Their work is without the traffic of ZeRO 2 and 3, which depends on the replicas.
    """
    if book.instance.assume_mfu is None:
        cost = book.cost(groups, pool, variant)
        rates = replace(rates, work=PerLayer(cost.total, cost.first, cost.last))
    layer = on_stages(
        run_of_rows(book.instance, pool, variant, groups, vpp=1), book.memory(groups, pool, variant)
    )
    return replace(rates, kept=layer.kept, checkpoint=layer.checkpoint, working=layer.working)


def _least_in_time(
    book: KeyBook, rates: StageRates, groups: Groups, pool: int, family: int
) -> tuple[Array, Array]:
    """bound.within_memory of rows that may fit, in one schedule that keeps least in flight."""
    mix, pp, one = layer_mix(book.instance), groups.pp, np.ones_like(groups.pp)
    (case,) = recompute_cases(stage_recompute(family), False, mix.layers, pp, one)
    limit = memory_limit(book.instance, pool)
    room = RankRoom.of(rates, mix, pp, one, groups.m_low, limit, True, family >= HIDDEN, recomputes([case]))
    return within_memory(rates, room, mix, pp, one, case, HALVINGS)
