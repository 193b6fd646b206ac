"""Costs of every layer key, computed once: what all candidates of a problem are priced from."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from costmodel.layer import LayerCost, layer_costs
from costmodel.memory.layer_memory import LayerMemory, layer_memories
from costmodel.rates import stage_rates
from costmodel.run import Run
from costmodel.scale import straggler_factor
from costmodel.stage import StageRates
from costmodel.step import assumed_rates
from planner.bound.compute import KeyCost, compute_bound
from planner.bound.mix import LayerMix
from planner.frameworks.rules import even_stages
from planner.instance import Instance
from planner.space.columns import NODE, Candidates, Groups, LayerKeys, Pipelines, families
from planner.space.dominance import undominated
from planner.space.recompute import (
    ALL,
    HIDDEN,
    OPEN,
    VARIANTS,
    Variant,
    family_variants,
    modes_of,
    run_of,
    variants,
)
from planner.space.values import base_keys

Array = NDArray[Any]
T = TypeVar("T")
G = TypeVar("G", bound=Groups)


def gather(record: T, index: Array) -> T:
    """A dataclass of arrays (or of such dataclasses) with the entries of `index`."""
    values = {f.name: getattr(record, f.name) for f in fields(record)}  # type: ignore[arg-type]
    return type(record)(
        **{
            # np.take is many times faster than [] on rows of several kinds.
            name: np.take(value, index, axis=0)
            if isinstance(value, np.ndarray)
            else (gather(value, index) if hasattr(value, "__dataclass_fields__") else value)
            for name, value in values.items()
        }
    )


def layer_mix(instance: Instance) -> LayerMix:
    """The layers of an instance's model as bounds see them."""
    return LayerMix.of(instance.architecture, even_stages(instance))


def run_of_rows(instance: Instance, pool: int, variant: int, rows: Groups, vpp: Any = None) -> Run:
    """The cost model's noun for rows of a pool in one variant; groups have no `vpp` of their own."""
    names = ("tp", "cp", "pp", "dp", "ep", "etp", "micro_batch", "zero")
    columns = {name: getattr(rows, name) for name in names}
    if np.any(rows.zero_scope):  # else all share with all; saves passes over memory
        near = instance.pools[pool].fabric.domain // rows.tp
        columns["shard_ranks"] = np.where(rows.zero_scope == NODE, near, np.inf)
    chunks = rows.vpp if vpp is None and isinstance(rows, Candidates) else vpp
    of = variants(instance.framework)[variant]
    return run_of(instance, instance.pools[pool], of, vpp=chunks, num_microbatches=rows.m_high, **columns)


@dataclass(frozen=True, slots=True)
class KeyBook:
    """Layer keys of an instance with their costs."""

    instance: Instance
    keys: LayerKeys
    place: Array
    """Row of each key among those of its pool, whatever its family."""
    start: Array
    """(pools, VARIANTS) where the keys of a variant begin among those of its pool and overlap."""
    costs: dict[tuple[int, bool], Priced]
    """By pool and overlap: of all keys in one variant after the other."""
    least: KeyCost
    gpu_seconds: Array
    """GPU-seconds a token at the very least: layers alone, no bubble, perfectly balanced."""
    gpu_seconds_unfilled: Array
    """The same of pipelines that do not fill: a share x of the usual bubble takes x times as long as the
    work, or longer."""

    @classmethod
    def of(cls, instance: Instance, recompute: tuple[int, ...], apart: bool = False) -> KeyBook:
        """All keys of the recompute families, but for needless variants; `apart`: one for each variant."""
        costs: dict[tuple[int, bool], Priced] = {}
        start, blocks = np.zeros((len(instance.pools), VARIANTS), dtype=np.int64), [_Block.empty()]
        for pool in range(len(instance.pools)):
            base = base_keys(instance, pool)
            for hidden in (False, True):
                some = [family for family in recompute if (family >= HIDDEN) == hidden]
                numbers = dict.fromkeys(v for family in some for v in family_variants(instance, family))
                if not base.shape[1] or not numbers:
                    continue
                for place, variant in enumerate(numbers):
                    start[pool, variant] = place * base.shape[1]
                costs[pool, hidden] = Priced.of(instance, pool, base, list(numbers))
                for family in some:
                    of = _Family(instance, pool, family, base, start[pool], costs[pool, hidden])
                    blocks += of.blocks(apart)
        every = _Block.joined(blocks)
        keys, gpus = every.keys, every.keys.tp * every.keys.cp
        least = every.least
        each = least.total * (gpus / (keys.micro_batch * float(instance.seq_len)))
        unfilled = (1 + instance.stack.pipeline.bubble) * each
        sums = (each + least.per_token, unfilled + least.per_token)
        return cls(instance, keys, every.place, start, costs, least, *sums)

    def specific(self, rows: G) -> G:
        """The rows, or one copy for each variant where theirs is open."""
        parts = [rows.take(np.flatnonzero(rows.variant != OPEN))]
        for pool, family, index in families(rows):
            index = index[rows.variant[index] == OPEN]
            if len(index):
                parts.append(self.of_variants(rows.take(index), pool, family)[1])
        return type(rows).concatenate(parts)

    def of_variants(self, rows: G, pool: int, family: int) -> tuple[Array, G]:
        """Open rows of a pool and family, once for each variant that their keys need: which, and copies."""
        numbers = np.array(family_variants(self.instance, family))
        at = self.start[pool, numbers][:, None] + self.place[rows.key]
        variant, which = np.nonzero(self.costs[pool, family >= HIDDEN].needed[at])
        copies = replace(rows.take(which), variant=numbers[variant], modes=np.ones_like(which))
        return which, copies

    def _at(self, rows: Pipelines) -> Array:
        """Where the costs of rows of one pool and overlap are."""
        return self.start[rows.pool, rows.variant] + self.place[rows.key]

    def least_of(self, rows: Pipelines) -> KeyCost:
        """Least seconds a micro-batch of rows, of their own variant where they have one."""
        least = self.least.take(rows.key)
        some = np.flatnonzero((self.keys.variant[rows.key] == OPEN) & (rows.variant != OPEN))
        if not len(some):
            return least
        columns = {f.name: getattr(least, f.name) for f in fields(least)}
        for pool, family, index in families(rows.take(some)):
            at = some[index]
            own = self.costs[pool, family >= HIDDEN].least.take(self._at(rows.take(at)))
            for name, column in columns.items():
                column[at] = getattr(own, name)
        return KeyCost(**columns)

    def rates(self, rows: Groups, vpp: Any = None, elsewhere: Any = 0) -> StageRates:
        """Stage rates of rows that share a pool and overlap, each in its variant."""
        pool, at = int(rows.pool[0]), self._at(rows)
        of = self.costs[pool, bool(rows.hidden[0])]
        # What layers cost is known: a run of any of the variants prices the rest.
        run = run_of_rows(self.instance, pool, int(rows.variant[0]), rows, vpp)
        run = replace(run, elsewhere=elsewhere)
        rates = stage_rates(run, of.cost.take(at), True, of.memory.take(at))
        if self.instance.assume_mfu is None:
            return rates
        return assumed_rates(rates, run, self.instance.assume_mfu, self.instance.nominal_parameters)

    def cost(self, rows: Groups) -> LayerCost:
        """Layer costs of rows that share a pool and overlap."""
        return self.costs[int(rows.pool[0]), bool(rows.hidden[0])].cost.take(self._at(rows))

    def cost_of_keys(self, keys: Array, pool: int, family: int, variant: int) -> LayerCost:
        """Layer costs of layer keys of a pool and family in a variant."""
        return self.costs[pool, family >= HIDDEN].cost.take(self.start[pool, variant] + self.place[keys])

    def rates_of_one(self, row: Candidates) -> StageRates:
        """Rates of one row, without the row axis."""
        return gather(self.rates(row), np.array(0))

    def bound(self, rows: Groups, slowest: Array, extra: Array) -> Array:
        """bound.compute_bound of rows, or of groups for every schedule of theirs.

        `slowest` and `extra` are what their pipelines take at least within memory.
        """
        mix, most = layer_mix(self.instance), 1
        chunks: Any = 1
        if isinstance(rows, Candidates):
            most, chunks = rows.vpp, rows.vpp
        else:
            # Without enough micro-batches to fill the pipeline there is no interleaving.
            most = np.where(rows.filled == 1, np.maximum((mix.layers + 2) // rows.pp, 1), 1)
        tokens = rows.micro_batch * rows.m_high * self.instance.seq_len / (rows.tp * rows.cp * rows.pp)
        return compute_bound(
            self.least_of(rows), slowest, extra, mix, rows.pp, most, chunks, rows.m_high, tokens,
            self.stragglers(rows.num_gpus), self.instance.stack.pipeline.bubble,
        )  # fmt: skip

    def stragglers(self, num_gpus: Array) -> Array:
        """scale.straggler_factor on so many GPUs; 1 under an agreed MFU."""
        if self.instance.assume_mfu is not None or not len(self.keys):
            return np.ones(np.shape(num_gpus))
        ones = dict.fromkeys(
            ("tp", "cp", "pp", "vpp", "ep", "etp", "micro_batch", "num_microbatches", "zero"), 1
        )
        run = run_of(self.instance, self.instance.pools[0], BARE, dp=num_gpus, **ones)
        return straggler_factor(run)


@dataclass(frozen=True, slots=True)
class Priced:
    """Costs of keys in several variants that are alike in overlap, one variant after the other."""

    cost: LayerCost
    memory: LayerMemory
    least: KeyCost
    needed: Array
    """Whether a key needs the variant, among those of its family."""

    @classmethod
    def of(cls, instance: Instance, pool: int, base: Array, numbers: list[int]) -> Priced:
        """Of variants, by their numbers."""
        every = [variants(instance.framework)[number] for number in numbers]
        columns = dict(zip(("tp", "cp", "ep", "etp", "micro_batch"), base, strict=True))
        # What a layer costs does not depend on the layout.
        rest = {"pp": 1, "vpp": 1, "dp": columns["ep"] * columns["etp"], "num_microbatches": 1, "zero": 0}
        bare = Variant(frozenset(), every[0].overlapped)
        run = run_of(instance, instance.pools[pool], bare, **columns, **rest)
        sets = [each.modules for each in every]
        costs, memories = layer_costs(run, sets), layer_memories(run, sets)
        least = stacked([_least(instance, pool, cost) for cost in costs])
        needed = np.ones(len(sets) * base.shape[1], dtype=bool)
        return cls(stacked(costs), stacked(memories), least, needed)


@dataclass(frozen=True, slots=True)
class _Family:
    """A recompute family of a pool."""

    instance: Instance
    pool: int
    family: int
    base: Array
    start: Array
    priced: Priced

    def blocks(self, apart: bool) -> list[_Block]:
        """Its keys: one block with open variants, or one for each."""
        numbers, place = family_variants(self.instance, self.family), np.arange(self.base.shape[1])
        at = [self.start[number] + place for number in numbers]
        # Plans on two pools may need a variant that no pool alone needs.
        if len(numbers) > 1 and not (apart and self.instance.mixing is not None):
            parts = [(self.priced.cost.take(each), self.priced.memory.take(each)) for each in at]
            self.priced.needed[np.stack(at)] = undominated(parts)
        exists = (self.base[2] > 1) | (self.family < HIDDEN)
        needed = [self.priced.needed[each] & exists for each in at]
        least = [self._least(each) for each in at]
        if len(numbers) == 1 or apart:
            return [self._block(*each) for each in zip(numbers, needed, least, strict=True)]
        return [self._open(needed, least)] if numbers else []

    def _least(self, at: Array) -> KeyCost:
        if self.family != ALL:
            return self.priced.least.take(at)
        cost = self.priced.cost.take(at)
        again = {"gemm": cost.gemm + cost.forward}
        return _least(self.instance, self.pool, replace(cost, **again))

    def _block(self, variant: int, rows: Array, least: KeyCost) -> _Block:
        """Of one variant, for some of the pool's keys."""
        place = np.flatnonzero(rows)
        each = modes_of(self.instance, self.family) * np.ones_like(place)
        fixed = (0 * place + value for value in (self.pool, self.family, variant))
        return _Block(LayerKeys(*fixed, *self.base[:, place], modes=each), place, least.take(place))

    def _open(self, needed: list[Array], least: list[KeyCost]) -> _Block:
        """At least what the quickest variant takes."""
        number, columns = np.sum(needed, axis=0), {}
        for f in fields(KeyCost):
            values = np.stack([getattr(each, f.name) for each in least])
            columns[f.name] = np.where(np.stack(needed), values, np.inf).min(axis=0)
        whole = self._block(OPEN, number > 0, KeyCost(**columns))
        return replace(whole, keys=replace(whole.keys, modes=number[whole.place]))


@dataclass(frozen=True, slots=True)
class _Block:
    """Keys of one pool and family."""

    keys: LayerKeys
    place: Array
    least: KeyCost

    @classmethod
    def empty(cls) -> _Block:
        none = np.empty(0)
        return cls(LayerKeys.empty(), np.empty(0, dtype=np.int64), KeyCost(none, none, none, none, none))

    @classmethod
    def joined(cls, blocks: list[_Block]) -> _Block:
        """One below the other."""
        place = np.concatenate([of.place for of in blocks])
        return cls(
            LayerKeys.concatenate([of.keys for of in blocks]), place, stacked([of.least for of in blocks])
        )


BARE = Variant(frozenset(), overlapped=False)


def stacked(records: list[T]) -> T:
    """Dataclasses of arrays (or of such dataclasses), one below the other."""
    first, parts = records[0], {}
    for f in fields(first):  # type: ignore[arg-type]
        values = [getattr(record, f.name) for record in records]
        parts[f.name] = np.concatenate(values) if isinstance(values[0], np.ndarray) else stacked(values)
    return type(first)(**parts)


def _least(instance: Instance, pool: int, cost: LayerCost) -> KeyCost:
    """`KeyCost` of all keys of a pool."""
    mix, zero = layer_mix(instance), np.zeros(len(cost.first))
    if instance.assume_mfu is not None:
        ones = dict.fromkeys(("tp", "cp", "pp", "dp", "ep", "etp", "micro_batch", "num_microbatches"), 1)
        run = run_of(instance, instance.pools[pool], BARE, vpp=1, zero=0, **ones)
        rates = stage_rates(run, memory=False)
        agreed = assumed_rates(rates, run, instance.assume_mfu, instance.nominal_parameters)
        return KeyCost(zero, zero, zero, zero, zero + float(agreed.fixed) / instance.seq_len)
    kinds = cost.total
    return KeyCost(
        total=(mix.totals * kinds).sum(axis=-1) + cost.first + cost.last,
        cheapest=kinds.min(axis=-1),
        usual=kinds[..., mix.kind],
        ends=np.maximum(cost.first, cost.last),
        per_token=zero,
    )


def one_microbatch_count(row: Candidates, number: int) -> Candidates:
    """A row with a single number of micro-batches."""
    return replace(row, m_low=np.full(len(row), number), m_high=np.full(len(row), number))
