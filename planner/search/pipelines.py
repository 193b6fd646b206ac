"""Pipelines of layer keys: what a micro-batch takes at least on so many stages, within memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.memory.overhead import fixed_bytes
from costmodel.records import gather
from costmodel.stage import PerLayer, StageRates
from costmodel.step import pipeline_time
from planner.bound.capacity import recomputes, within_memory
from planner.bound.compute import slowest_bound
from planner.bound.mix import layer_mix
from planner.bound.recompute import recompute_cases
from planner.bound.room import RankRoom
from planner.hfu import least_with_hfu
from planner.instance import Instance
from planner.keybook import KeyBook
from planner.search.open_variants import leanest, least_of_variants, may_fit_rates
from planner.search.roomy import least_states, may_have_room
from planner.search.rows import memory_limit
from planner.space.columns import FULL, NODE, Groups, Pipelines, families, values_of
from planner.space.counting import Places
from planner.space.layouts import in_chunks, microbatch_range_filled, pipeline_zero_stages
from planner.space.recompute import ALL, HIDDEN, OPEN, stage_recompute
from planner.space.runs import run_of_rows

Array = NDArray[Any]
HALVINGS = 5
"""Of the bracket around the slowest rank's time: what is nearly as good is told apart later."""
MANY = 5000
"""Pipelines that are looked at together first; fewer are as quickly looked at one by one."""
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
    by_node: Array
    """`slowest` of layouts whose states are shared within nodes; nan until it is asked for."""
    opened: Array
    """The goal's first sort key up to which layouts are written down; -inf before the first time."""
    finished: Array
    """Whether there are no layouts beyond that."""

    @classmethod
    def of(
        cls,
        book: KeyBook,
        keys: Array,
        layouts: Places,
        filled: tuple[int, ...] = (0, 1),
        roomy: bool = False,
    ) -> PipelineTable:
        """Pipelines of layer keys that fill or do not; all, or if `roomy` those that may fit memory."""
        return cls.of_rows(book, pipelines_of(book, keys, layouts, filled, roomy))

    @classmethod
    def of_rows(cls, book: KeyBook, rows: Pipelines) -> PipelineTable:
        """Pipelines that are written down, of which nothing is known but what their layers cost."""
        chunks = chunks_at_least(rows)
        slowest = slowest_bound(book.least.take(rows.key), layer_mix(book.instance), rows.pp, chunks)
        no, extra = np.zeros(len(rows), dtype=bool), np.zeros(len(rows))
        each, never = gpu_seconds(book, rows, slowest, extra), np.full(len(rows), np.nan)
        return cls(rows, slowest, extra, each, no, never, np.full(len(rows), -np.inf), no.copy())

    def __len__(self) -> int:
        return len(self.rows)

    def fit(self, book: KeyBook, index: Array, layouts: Places) -> None:
        """Finds what memory leaves of pipelines."""
        for family, some in self._blocks(index):
            rows = self.rows.take(some)
            slowest, extra = _within_memory(book, rows, family, layouts)
            self.slowest[some] = np.maximum(self.slowest[some], slowest)
            self.extra[some] = extra
            self.gpu_seconds[some] = gpu_seconds(book, rows, self.slowest[some], extra)
        self.known[index] = True

    def fit_by_node(self, book: KeyBook, index: Array, layouts: Places) -> None:
        """Finds what memory leaves of their layouts whose states are shared within nodes."""
        for family, some in self._blocks(index[np.isnan(self.by_node[index])]):
            rows = self.rows.take(some)
            self.by_node[some], _ = _within_memory(book, rows, family, layouts, NODE)

    def _blocks(self, index: Array) -> Iterator[tuple[int, Array]]:
        """Pipelines that are priced together, ascending in pp: recompute family, indices."""
        index = index[np.argsort(self.rows.pp[index], kind="stable")]
        for _, family, of in families(self.rows.take(index)):
            for some in np.split(index[of], range(ROWS, len(of), ROWS)):
                yield family, some


def pipelines_of(
    book: KeyBook, keys: Array, layouts: Places, filled: tuple[int, ...], roomy: bool
) -> Pipelines:
    """Rows of `PipelineTable.of`."""
    of, at, parts = book.keys.take(keys), [np.empty(0, dtype=np.int64)], [np.empty((0, 3), dtype=np.int64)]
    for ((pool, ranks), layout), hidden in product(layouts.items(), (False, True)):
        mine = np.flatnonzero((of.pool == pool) & (of.tp * of.cp == ranks) & (of.hidden == hidden))
        values = _values(book.instance, pool, ranks, values_of(layout.pp), filled, hidden)
        if not len(mine) or not len(values):
            continue
        some = np.ones((len(mine), len(values)), dtype=bool)
        if roomy and some.size > MANY:
            some = may_have_room(book, keys[mine], layout, values)
        key, value = np.nonzero(some)
        at.append(mine[key])
        parts.append(values[value])
    index, (pp, zero, fills) = np.concatenate(at), np.concatenate(parts).T
    columns = of.take(index)
    named = {f.name: getattr(columns, f.name) for f in fields(columns)}
    return Pipelines(**named, key=keys[index], pp=pp, zero=zero, filled=fills)


def _values(
    instance: Instance, pool: int, ranks: int, pps: list[int], filled: tuple[int, ...], hidden: bool
) -> Array:
    """(values, 3) pp, ZeRO stage and whether it fills, of the pipelines of a layer key."""
    # All pipelines of more than one stage have the same ZeRO stages.
    precision, chunked = instance.pools[pool].precision, in_chunks(instance)
    alone, more = (pipeline_zero_stages(instance, precision, ranks, pp, hidden=hidden) for pp in (1, 2))
    values = [
        (pp, zero, fills)
        for pp in pps
        for zero in (alone if pp == 1 else more)
        for fills in filled
        # Hidden traffic needs virtual stages, as do some ZeRO stages, and those a pipeline that fills.
        if fills or (pp > 1 and not hidden and zero not in chunked)
    ]
    return np.array(values, dtype=np.int64).reshape(-1, 3)


def gpu_seconds(book: KeyBook, rows: Pipelines, slowest: Array, extra: Array) -> Array:
    """Least GPU-seconds a token: many micro-batches, or pp - 1 of them where the pipeline does not fill."""
    per = rows.tp * rows.cp * rows.pp / (rows.micro_batch * float(book.instance.seq_len))
    fits = np.where(np.isinf(slowest), 0.0, slowest)
    total = np.maximum(book.least.total[rows.key] + extra, fits)
    few = pipeline_time(fits, total, rows.pp - 1, 1, book.instance.stack.pipeline.bubble)
    each = np.where((rows.filled == 1) | (fits < slowest), slowest, few / np.maximum(rows.pp - 1, 1))
    spent, even = each * per, book.least.total[rows.key] * (per / rows.pp)
    agreed = book.least.per_token[rows.key]
    return least_with_hfu(book.instance, rows, spent + agreed, even + agreed, book.again[rows.key])


def _blocks(pp: Array) -> list[int]:
    """Where to cut ascending pipeline sizes so that no block has more than RANKS ranks with its padding."""
    cuts, start, number = [], 0, np.arange(1, len(pp) + 1)
    while (inside := int(np.searchsorted((number[start:] - start) * pp[start:], RANKS, side="right"))) < len(
        pp
    ) - start:
        start += max(inside, 1)
        cuts.append(start)
    return cuts


def roomiest(instance: Instance, rows: Pipelines, layouts: Places, scope: int) -> tuple[Groups, Array]:
    """Each pipeline with the layout of a ZeRO scope that leaves most memory, and its fewest replicas.

    Most memory is left with most replicas.
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
    enough = -(-(rows.ep * rows.etp) // ranks)
    most = np.maximum(most, enough)
    fewest = np.maximum(microbatch_range_filled(instance, rows, most)[0], 1)
    columns = {f.name: getattr(rows, f.name) for f in fields(rows)}
    # Where nothing is shared, some stacks keep less of a single replica.
    dp = np.where(rows.zero > 0, most, np.maximum(least, enough))
    shared = {"dp": dp, "zero_scope": np.full(len(rows), scope)}
    groups = Groups(**columns, **shared, pipeline=rows.key, m_low=fewest, m_high=fewest)
    return groups, np.maximum(least, enough)


def _within_memory(
    book: KeyBook, rows: Pipelines, family: int, layouts: Places, scope: int = FULL
) -> tuple[Array, Array]:
    """bound.within_memory of pipelines of one pool and family, whatever their replicas.

    FULL is least for both scopes: all ranks together need no more memory for states than those of a node.
    States shrink and fewer micro-batches are in flight as replicas are added; traffic is left out. Where
    their variant is open it is the least of all variants.
    """
    groups, fewest = roomiest(book.instance, rows, layouts, scope)
    slowest, extra = np.full(len(rows), np.inf), np.zeros(len(rows))
    is_open = bool((rows.variant == OPEN).any())
    bare, lean = leanest(book, groups, family)
    rates = _bare_rates(book, bare, fewest)
    at = np.flatnonzero(may_fit_rates(book, groups, lean(rates), family))
    if is_open:
        slowest[at] = _least_of_open(book, groups.take(at), fewest[at], family)
        return slowest, extra
    for part in np.split(at, _blocks(groups.pp[at])) if len(at) else ():
        slowest[part], extra[part] = _in_time(book, gather(rates, part), groups.take(part), family)
    # What a family recomputes in every layer is part of its layer keys' cost.
    return slowest, np.zeros(len(rows)) if family == ALL else extra


def _least_of_open(book: KeyBook, groups: Groups, fewest: Array, family: int) -> Array:
    """The same of rows whose variant is open: (rows,) the slowest rank of the best one."""
    mix = layer_mix(book.instance)

    def rates_of(copies: Groups, which: Array) -> StageRates:
        return _bare_rates(book, copies, fewest[which])

    def fits(copies: Groups, which: Array) -> Array:
        return may_fit_rates(book, copies, rates_of(copies, which), family)

    def quickest(copies: Groups, which: Array) -> Array:
        return slowest_bound(book.least_of(copies), mix, copies.pp, chunks_at_least(copies))

    def bound(copies: Groups, which: Array) -> Array:
        found, rates = np.empty(len(copies)), rates_of(copies, which)
        order = np.argsort(copies.pp, kind="stable")
        for part in np.split(order, _blocks(copies.pp[order])):
            found[part] = _in_time(book, gather(rates, part), copies.take(part), family)[0]
        return found

    return least_of_variants(book, groups, family, fits, quickest, bound)


def chunks_at_least(rows: Pipelines) -> Array:
    """Chunks of a rank at least: pipelines with hidden traffic or with ZeRO 2 are interleaved."""
    return np.where((rows.hidden | (rows.zero > 1)) & (rows.pp > 1), 2, 1)


def _bare_rates(book: KeyBook, groups: Groups, fewest: Array) -> StageRates:
    """Rates of rows whose layouts have `fewest` replicas or more, without the traffic of ZeRO 2 and 3."""
    rates, pool = book.least_rates(groups), int(groups.pool[0])
    run = run_of_rows(book.instance, pool, int(groups.variant[0]), replace(groups, dp=fewest), vpp=1)
    if book.instance.assume_mfu is None:
        cost = book.cost(groups)
        rates = replace(rates, work=PerLayer(cost.total, cost.first, cost.last))
    return replace(rates, fixed_bytes=fixed_bytes(run), states=least_states(rates.states, run))


def _in_time(book: KeyBook, rates: StageRates, groups: Groups, family: int) -> tuple[Array, Array]:
    """bound.within_memory of rows that may fit, in a schedule that keeps least in flight."""
    mix, pp, one = layer_mix(book.instance), groups.pp, np.ones_like(groups.pp)
    (case,) = recompute_cases(stage_recompute(family), False, mix.layers, pp, one)
    limit = memory_limit(book.instance, int(groups.pool[0]))
    room = RankRoom.of(rates, mix, pp, one, groups.m_low, limit, True, family >= HIDDEN, recomputes([case]))
    return within_memory(rates, room, mix, pp, one, case, HALVINGS)
