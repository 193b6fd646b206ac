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
    Variant,
    family_variants,
    modes_of,
    run_of,
    variants,
)
from planner.space.values import base_keys

Array = NDArray[Any]
T = TypeVar("T")


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
    """The cost model's noun for rows that share a pool and a variant; groups have no `vpp` of their own."""
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
    """Row of each key in the costs of its pool and variant."""
    costs: dict[tuple[int, int], tuple[LayerCost, LayerMemory]]
    """By pool and variant: of all its keys, whether it is needed or not."""
    parts: dict[tuple[int, int], tuple[KeyCost, Array]]
    """By pool and variant, of those that families leave open: the least of the same keys, and for which of
    them the variant is needed."""
    least: KeyCost
    gpu_seconds: Array
    """GPU-seconds a token at the very least: layers alone, no bubble, perfectly balanced."""

    @classmethod
    def of(cls, instance: Instance, recompute: tuple[int, ...], apart: bool = False) -> KeyBook:
        """All keys of the recompute families, but for needless variants; `apart`: one for each variant."""
        costs: dict[tuple[int, int], tuple[LayerCost, LayerMemory]] = {}
        parts: dict[tuple[int, int], tuple[KeyCost, Array]] = {}
        blocks = [_Block.empty()]
        for pool in range(len(instance.pools)):
            base = base_keys(instance, pool)
            if not base.shape[1]:
                continue
            for family in recompute:
                of = family_variants(instance, family)
                _price(instance, pool, base, of, costs)
                least = [_least(instance, pool, family == ALL, costs[pool, each][0]) for each in of]
                needed = _needed([costs[pool, each] for each in of], apart, instance)
                needed = [rows & ((base[2] > 1) | (family < HIDDEN)) for rows in needed]
                made = (_Block.of(instance, pool, family, variant, base, rows, cost)
                        for variant, rows, cost in zip(of, needed, least, strict=True))  # fmt: skip
                if len(of) == 1 or apart:
                    blocks += made
                elif of:
                    parts |= {
                        (pool, v): (cost, rows) for v, rows, cost in zip(of, needed, least, strict=True)
                    }
                    blocks.append(_Block.open(list(made), instance, pool, family, base, needed))
        every = _Block.joined(blocks)
        keys, gpus = every.keys, every.keys.tp * every.keys.cp
        least = every.least
        gpu_seconds = least.total * (gpus / (keys.micro_batch * float(instance.seq_len))) + least.per_token
        return cls(instance, keys, every.place, costs, parts, least, gpu_seconds)

    def open_variants(self, pool: int, family: int) -> list[int]:
        """Variants of a family that leaves them open, the quickest first."""
        mine = [each for each in family_variants(self.instance, family) if (pool, each) in self.parts]
        return sorted(mine, key=lambda each: float(self.parts[pool, each][0].total.sum()))

    def specific(self, rows: Groups) -> Groups:
        """The rows, or one copy for each variant where theirs is open."""
        parts = [rows.take(np.flatnonzero(rows.variant != OPEN))]
        for pool, family, variant, index in families(rows):
            if variant != OPEN:
                continue
            for each in self.open_variants(pool, family):
                some = index[self.parts[pool, each][1][self.place[rows.key[index]]]]
                ones = np.ones_like(some)
                parts.append(replace(rows.take(some), variant=each * ones, modes=ones))
        return type(rows).concatenate(parts)

    def least_of(self, rows: Pipelines) -> KeyCost:
        """Least seconds a micro-batch of rows, of their own variant where they have one."""
        least = self.least.take(rows.key)
        open_keys = self.keys.variant[rows.key] == OPEN
        some = np.flatnonzero(open_keys & (rows.variant != OPEN))
        if not len(some):
            return least
        columns = {f.name: getattr(least, f.name) for f in fields(least)}
        for pool, _, variant, index in families(rows.take(some)):
            at = some[index]
            own = self.parts[pool, variant][0].take(self.place[rows.key[at]])
            for name, column in columns.items():
                column[at] = getattr(own, name)
        return KeyCost(**columns)

    def rates(self, rows: Groups, pool: int, variant: int, vpp: Any = None, elsewhere: Any = 0) -> StageRates:
        """Stage rates of rows that share a pool and a variant."""
        cost, memory = self.costs[pool, variant]
        at, run = self.place[rows.key], run_of_rows(self.instance, pool, variant, rows, vpp)
        run = replace(run, elsewhere=elsewhere)
        rates = stage_rates(run, cost.take(at), True, memory.take(at))
        if self.instance.assume_mfu is None:
            return rates
        return assumed_rates(rates, run, self.instance.assume_mfu, self.instance.nominal_parameters)

    def cost(self, rows: Groups, pool: int, variant: int) -> LayerCost:
        """Layer costs of rows that share a pool and a variant."""
        return self.costs[pool, variant][0].take(self.place[rows.key])

    def memory(self, rows: Groups, pool: int, variant: int) -> LayerMemory:
        """Layer bytes of rows that share a pool and a variant."""
        return self.costs[pool, variant][1].take(self.place[rows.key])

    def rates_of_one(self, row: Candidates) -> StageRates:
        """Rates of one row, without the row axis."""
        return gather(self.rates(row, int(row.pool[0]), int(row.variant[0])), np.array(0))

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
    def of(
        cls,
        instance: Instance,
        pool: int,
        family: int,
        variant: int,
        base: Array,
        rows: Array,
        least: KeyCost,
    ) -> _Block:
        """Of one variant, for some of the pool's keys."""
        place = np.flatnonzero(rows)
        each = modes_of(instance, family) * np.ones_like(place)
        keys = LayerKeys(
            0 * place + pool, 0 * place + family, 0 * place + variant, *base[:, place], modes=each
        )
        return cls(keys, place, least.take(place))

    @classmethod
    def open(
        cls, made: list[_Block], instance: Instance, pool: int, family: int, base: Array, needed: list[Array]
    ) -> _Block:
        """Of a family that leaves its variant open: at least what the quickest of them takes."""
        number, least = np.sum(needed, axis=0), np.full((len(fields(KeyCost)), base.shape[1]), np.inf)
        for block in made:
            columns = np.stack([getattr(block.least, f.name) for f in fields(KeyCost)])
            least[:, block.place] = np.minimum(least[:, block.place], columns)
        whole = cls.of(instance, pool, family, OPEN, base, number > 0, KeyCost(*least))
        return replace(whole, keys=replace(whole.keys, modes=number[whole.place]))

    @classmethod
    def joined(cls, blocks: list[_Block]) -> _Block:
        """One below the other."""
        least = [np.concatenate([getattr(of.least, f.name) for of in blocks]) for f in fields(KeyCost)]
        place = np.concatenate([of.place for of in blocks])
        return cls(LayerKeys.concatenate([of.keys for of in blocks]), place, KeyCost(*least))


BARE = Variant(frozenset(), overlapped=False)


def _price(
    instance: Instance,
    pool: int,
    base: Array,
    of: tuple[int, ...],
    costs: dict[tuple[int, int], tuple[LayerCost, LayerMemory]],
) -> None:
    """Prices variants of a pool that have no price yet; they are alike in overlap."""
    of = tuple(each for each in of if (pool, each) not in costs)
    if not of:
        return
    every = variants(instance.framework)
    columns = dict(zip(("tp", "cp", "ep", "etp", "micro_batch"), base, strict=True))
    # What a layer costs does not depend on the layout.
    rest = {"pp": 1, "vpp": 1, "dp": columns["ep"] * columns["etp"], "num_microbatches": 1, "zero": 0}
    bare = Variant(frozenset(), every[of[0]].overlapped)
    run, sets = (
        run_of(instance, instance.pools[pool], bare, **columns, **rest),
        [every[v].modules for v in of],
    )
    for variant, cost, memory in zip(of, layer_costs(run, sets), layer_memories(run, sets), strict=True):
        costs[pool, variant] = cost, memory


def _needed(costs: list[tuple[LayerCost, LayerMemory]], apart: bool, instance: Instance) -> list[Array]:
    """For which keys each variant is needed; plans on two pools may need one that no pool alone needs."""
    if len(costs) == 1 or (apart and instance.mixing is not None):
        return [np.ones(len(cost.first), dtype=bool) for cost, _ in costs]
    return undominated(costs)


def _least(instance: Instance, pool: int, again: bool, cost: LayerCost) -> KeyCost:
    """`KeyCost` of all keys of a pool."""
    mix, zero = layer_mix(instance), np.zeros(len(cost.first))
    if instance.assume_mfu is not None:
        ones = dict.fromkeys(("tp", "cp", "pp", "dp", "ep", "etp", "micro_batch", "num_microbatches"), 1)
        run = run_of(instance, instance.pools[pool], BARE, vpp=1, zero=0, **ones)
        rates = stage_rates(run, memory=False)
        agreed = assumed_rates(rates, run, instance.assume_mfu, instance.nominal_parameters)
        return KeyCost(zero, zero, zero, zero, zero + float(agreed.fixed) / instance.seq_len)
    kinds = cost.total + cost.forward if again else cost.total
    return KeyCost(
        total=(mix.totals * kinds).sum(axis=-1) + cost.first + cost.last,
        cheapest=kinds.min(axis=-1),
        usual=kinds[..., mix.kind],
        ends=np.maximum(cost.first, cost.last),
        per_token=zero,
    )


def with_vpp(rows: Groups, vpp: Array) -> Candidates:
    """Groups with a schedule."""
    return Candidates(**{f.name: getattr(rows, f.name) for f in fields(Groups)}, vpp=vpp)


def one_microbatch_count(row: Candidates, number: int) -> Candidates:
    """A row with a single number of micro-batches."""
    return replace(row, m_low=np.full(len(row), number), m_high=np.full(len(row), number))
