"""Costs of every layer key, computed once: what all candidates of a problem are priced from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from costmodel.layer import LayerCost
from costmodel.memory.shape import scaled
from costmodel.memory.states import state_bytes
from costmodel.pipeline import most_chunks
from costmodel.rates import stage_rates
from costmodel.records import gather, stacked
from costmodel.scale import straggler_factor
from costmodel.stage import StageRates
from costmodel.step import assumed_rates
from planner.bound.compute import KeyCost, compute_bound
from planner.bound.mix import layer_mix
from planner.hfu import hfu_requirement, least_with_hfu
from planner.instance import Instance
from planner.key_costs import Block, Family, Priced
from planner.space.columns import Candidates, Groups, LayerKeys, Pipelines, families
from planner.space.recompute import BARE, HIDDEN, OPEN, VARIANTS, family_variants, run_of
from planner.space.runs import run_of_rows
from planner.space.values import base_keys

Array = NDArray[Any]
G = TypeVar("G", bound=Groups)


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
    again: Array
    """GPU-seconds that each FLOP of a token takes at least which is recomputed in whole layers."""
    gpu_seconds_unfilled: Array
    """The same of pipelines that do not fill: a share x of the usual bubble takes x times as long as the
    work, or longer."""

    @classmethod
    def of(
        cls,
        instance: Instance,
        recompute: tuple[int, ...],
        apart: bool = False,
        check: Callable[[], None] = lambda: None,
    ) -> KeyBook:
        """All keys of the recompute families, but for needless variants; `apart`: one for each variant.

        `check` is called between pieces of work, and may raise.
        """
        costs: dict[tuple[int, bool], Priced] = {}
        start, blocks = np.zeros((len(instance.pools), VARIANTS), dtype=np.int64), [Block.empty()]
        for pool in range(len(instance.pools)):
            base = base_keys(instance, pool)
            for hidden in (False, True):
                some = [family for family in recompute if (family >= HIDDEN) == hidden]
                numbers = dict.fromkeys(v for family in some for v in family_variants(instance, family))
                if not base.shape[1] or not numbers:
                    continue
                for place, variant in enumerate(numbers):
                    start[pool, variant] = place * base.shape[1]
                check()
                costs[pool, hidden] = Priced.of(instance, pool, base, list(numbers))
                for family in some:
                    check()
                    of = Family(instance, pool, family, base, start[pool], costs[pool, hidden])
                    blocks += of.blocks(apart)
        every = stacked(blocks)
        keys, gpus = every.keys, every.keys.tp * every.keys.cp
        least = every.least
        each = least.total * (gpus / (keys.micro_batch * float(instance.seq_len)))
        unfilled = (1 + instance.stack.pipeline.bubble) * each
        again = every.again * (gpus / (keys.micro_batch * float(instance.seq_len)))
        sums = [
            least_with_hfu(instance, keys, busy + least.per_token, each + least.per_token, again)
            for busy in (each, unfilled)
        ]
        return cls(instance, keys, every.place, start, costs, least, sums[0], again, sums[1])

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
        rates = stage_rates(run, gather(of.cost, at), True, gather(of.memory, at))
        if self.instance.assume_mfu is None:
            return rates
        return assumed_rates(rates, run, self.instance.assume_mfu, self.instance.nominal_parameters)

    def least_rates(self, rows: Groups) -> StageRates:
        """Rates of groups, none above those with any number of chunks; but transfers are those of one."""
        rates = self.rates(rows, vpp=1)
        if not self.instance.stack.data_parallel.reduces_by_round:
            return rates
        run = run_of_rows(self.instance, int(rows.pool[0]), int(rows.variant[0]), rows, np.inf)
        # What is reduced in rounds is no traffic of the step; what it adds to the work may hide gathers.
        often = ~run.in_rounds * 1.0
        reduce, gather = scaled(rates.reduce, often), scaled(rates.gather, often)
        return replace(rates, states=state_bytes(run), reduce=reduce, gather=gather)

    def cost(self, rows: Groups) -> LayerCost:
        """Layer costs of rows that share a pool and overlap."""
        return gather(self.costs[int(rows.pool[0]), bool(rows.hidden[0])].cost, self._at(rows))

    def cost_of_keys(self, keys: Array, pool: int, family: int, variant: int) -> LayerCost:
        """Layer costs of layer keys of a pool and family in a variant."""
        return gather(self.costs[pool, family >= HIDDEN].cost, self.start[pool, variant] + self.place[keys])

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
            most = np.where(rows.filled == 1, most_chunks(mix.layers, rows.pp), 1)
        tokens = rows.micro_batch * rows.m_high * self.instance.seq_len / (rows.tp * rows.cp * rows.pp)
        step = compute_bound(
            self.least_of(rows), slowest, extra, mix, rows.pp, most, chunks, rows.m_high, tokens,
            self.stragglers(rows.num_gpus), self.instance.stack.pipeline.bubble,
        )  # fmt: skip
        return self.with_hfu(rows, step)

    def with_hfu(self, rows: Groups, step: Array) -> Array:
        """Bounds on the steps of rows, with what has to be recomputed for the HFU that is required."""
        if hfu_requirement(self.instance) is None:
            return step
        of, layers, x = (
            self.least.take(rows.key),
            self.instance.architecture.layers,
            self.instance.stack.pipeline.bubble,
        )
        chunks = rows.vpp if isinstance(rows, Candidates) else most_chunks(layers, rows.pp)
        longer = (1 + x * (rows.pp - 1) / (rows.m_high * chunks)) * self.stragglers(rows.num_gpus)
        per = rows.tp * rows.cp * rows.pp / (rows.micro_batch * rows.m_high * float(self.instance.seq_len))
        even = of.total * (per * rows.m_high / rows.pp) * longer + of.per_token
        return least_with_hfu(self.instance, rows, step * per, even, self.again[rows.key] * longer) / per

    def stragglers(self, num_gpus: Array) -> Array:
        """scale.straggler_factor on so many GPUs; 1 under an agreed MFU."""
        if self.instance.assume_mfu is not None or not len(self.keys):
            return np.ones(np.shape(num_gpus))
        ones = dict.fromkeys(
            ("tp", "cp", "pp", "vpp", "ep", "etp", "micro_batch", "num_microbatches", "zero"), 1
        )
        run = run_of(self.instance, self.instance.pools[0], BARE, dp=num_gpus, **ones)
        return straggler_factor(run)
