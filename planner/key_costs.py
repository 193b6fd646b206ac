"""What layer keys of a pool cost in each variant, and which variants they need."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.layer import LayerCost, layer_costs
from costmodel.memory.layer_memory import LayerMemory, layer_memories
from costmodel.rates import stage_rates
from costmodel.records import gather, stacked
from costmodel.step import assumed_rates
from planner.bound.compute import KeyCost
from planner.bound.mix import layer_mix
from planner.hfu import again_by_layer, hfu_requirement
from planner.instance import Instance
from planner.space.columns import LayerKeys
from planner.space.dominance import undominated
from planner.space.recompute import (
    ALL,
    BARE,
    HIDDEN,
    OPEN,
    SOME,
    Variant,
    family_variants,
    modes_of,
    run_of,
    variants,
)

Array = NDArray[Any]


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
        least = stacked([least_cost(instance, pool, cost) for cost in costs])
        needed = np.ones(len(sets) * base.shape[1], dtype=bool)
        return cls(stacked(costs), stacked(memories), least, needed)


@dataclass(frozen=True, slots=True)
class Family:
    """A recompute family of a pool."""

    instance: Instance
    pool: int
    family: int
    base: Array
    start: Array
    priced: Priced

    def blocks(self, apart: bool) -> list[Block]:
        """Its keys: one block with open variants, or one for each."""
        numbers, place = family_variants(self.instance, self.family), np.arange(self.base.shape[1])
        at = [self.start[number] + place for number in numbers]
        # Plans on two pools may need a variant that no pool alone needs.
        mixed = apart and self.instance.mixing is not None
        # Nor is what recomputes more needless where an HFU is required.
        if len(numbers) > 1 and not mixed and hfu_requirement(self.instance) is None:
            parts = [(gather(self.priced.cost, each), gather(self.priced.memory, each)) for each in at]
            self.priced.needed[np.stack(at)] = undominated(parts)
        exists = (self.base[2] > 1) | (self.family < HIDDEN)
        needed = [self.priced.needed[each] & exists for each in at]
        least = [self._quickest(each) for each in at]
        if len(numbers) == 1 or apart:
            return [self._block(*each) for each in zip(numbers, needed, least, strict=True)]
        return [self._open(needed, least)] if numbers else []

    def _quickest(self, at: Array) -> KeyCost:
        if self.family != ALL:
            return self.priced.least.take(at)
        cost = gather(self.priced.cost, at)
        again = {"gemm": cost.gemm + cost.forward}
        return least_cost(self.instance, self.pool, replace(cost, **again))

    def _block(self, variant: int, rows: Array, least: KeyCost) -> Block:
        """Of one variant, for some of the pool's keys."""
        place = np.flatnonzero(rows)
        each = modes_of(self.instance, self.family) * np.ones_like(place)
        fixed = (0 * place + value for value in (self.pool, self.family, variant))
        again = self._again(self.start[variant] + place) if self.family == SOME else 0.0 * place
        return Block(LayerKeys(*fixed, *self.base[:, place], modes=each), place, least.take(place), again)

    def _again(self, at: Array) -> Array:
        """Seconds a micro-batch for each FLOP of a token that is recomputed in whole layers, at least."""
        if self.instance.assume_mfu is not None:
            return np.zeros(len(at))
        return (gather(self.priced.cost, at).forward / again_by_layer(self.instance)).min(axis=-1)

    def _open(self, needed: list[Array], least: list[KeyCost]) -> Block:
        """At least what the quickest variant takes."""
        number, columns = np.sum(needed, axis=0), {}
        for f in fields(KeyCost):
            values = np.stack([getattr(each, f.name) for each in least])
            columns[f.name] = np.where(np.stack(needed), values, np.inf).min(axis=0)
        whole = self._block(OPEN, number > 0, KeyCost(**columns))
        return replace(whole, keys=replace(whole.keys, modes=number[whole.place]))


@dataclass(frozen=True, slots=True)
class Block:
    """Keys of one pool and family."""

    keys: LayerKeys
    place: Array
    least: KeyCost
    again: Array
    """Seconds a micro-batch for each FLOP of a token that is recomputed in whole layers; 0 where none are."""

    @classmethod
    def empty(cls) -> Block:
        none = np.empty(0)
        return cls(
            LayerKeys.empty(), np.empty(0, dtype=np.int64), KeyCost(none, none, none, none, none), none
        )


def least_cost(instance: Instance, pool: int, cost: LayerCost) -> KeyCost:
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
