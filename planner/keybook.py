"""Costs of every layer key, computed once: what all candidates of a problem are priced from."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from costmodel.calibration.apply import calibrated_stack
from costmodel.layer import LayerCost, layer_cost
from costmodel.memory.layer_memory import LayerMemory, layer_memory
from costmodel.rates import stage_rates
from costmodel.run import Run
from costmodel.scale import straggler_factor
from costmodel.stage import StageRates
from costmodel.step import assumed_rates
from planner.bound.compute import KeyCost, compute_bound
from planner.bound.mix import LayerMix
from planner.frameworks.rules import even_stages
from planner.instance import Instance
from planner.space.columns import ALL, NODE, SELECTIVE, Candidates, Groups, LayerKeys, families
from planner.space.values import layer_keys, selective_modules

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


def run_of(instance: Instance, pool: int, family: int, **columns: Any) -> Run:
    """The cost model's noun for rows that share a pool and a recompute family."""
    selective = family == SELECTIVE
    return Run(
        architecture=instance.architecture,
        gpu=instance.pools[pool].gpu,
        fabric=instance.pools[pool].fabric,
        stack=calibrated_stack(instance.stack, instance.pools[pool].gpu),
        seq_len=instance.seq_len,
        precision=instance.pools[pool].precision,
        recompute_modules=selective_modules(instance.architecture, instance.framework)
        if selective
        else frozenset[str](),
        **columns,
    )


def run_of_rows(instance: Instance, pool: int, family: int, rows: Groups, vpp: Any = None) -> Run:
    """The same for rows that are written down; groups have no `vpp` of their own."""
    names = ("tp", "cp", "pp", "dp", "ep", "etp", "micro_batch", "zero")
    columns = {name: getattr(rows, name) for name in names}
    if np.any(rows.zero_scope):  # else all share with all; saves passes over memory
        near = instance.pools[pool].fabric.domain // rows.tp
        columns["shard_ranks"] = np.where(rows.zero_scope == NODE, near, np.inf)
    chunks = rows.vpp if vpp is None and isinstance(rows, Candidates) else vpp
    return run_of(instance, pool, family, vpp=chunks, num_microbatches=rows.m_high, **columns)


@dataclass(frozen=True, slots=True)
class KeyBook:
    """Layer keys of an instance with their costs."""

    instance: Instance
    keys: LayerKeys
    place: Array
    """Row of each key in the costs of its pool and of its kind of recompute."""
    costs: dict[tuple[int, bool], tuple[LayerCost, LayerMemory]]
    """By pool and whether modules are recomputed."""
    least: KeyCost
    gpu_seconds: Array
    """GPU-seconds a token at the very least: layers alone, no bubble, perfectly balanced."""
    gpu_seconds_unfilled: Array
    """The same of pipelines that do not fill: a share x of the usual bubble takes x times as long as the
    work, or longer."""

    @classmethod
    def of(cls, instance: Instance, recompute: tuple[int, ...]) -> KeyBook:
        """All keys of the recompute families."""
        keys, costs = layer_keys(instance, recompute), {}
        place = np.zeros(len(keys), dtype=np.int64)
        parts = {name: np.zeros(len(keys)) for name in ("total", "cheapest", "usual", "ends", "per_token")}
        mix = layer_mix(instance)
        for pool, family, rows in families(keys):
            # Families list the same keys in the same order.
            place[rows] = np.arange(len(rows))
            of = (pool, family == SELECTIVE)
            if of not in costs:
                run = _run_of_keys(instance, pool, family, keys.take(rows))
                costs[of] = layer_cost(run), layer_memory(run)
            for name, value in _least(instance, pool, family == ALL, costs[of][0], mix).items():
                parts[name][rows] = value
        least = KeyCost(**parts)
        gpus = keys.tp * keys.cp / (keys.micro_batch * float(instance.seq_len))
        each, bubble = least.total * gpus, instance.stack.pipeline.bubble
        sums = (each + least.per_token, (1 + bubble) * each + least.per_token)
        return cls(instance, keys, place, costs, least, *sums)

    def rates(self, rows: Groups, pool: int, family: int, vpp: Any = None, elsewhere: Any = 0) -> StageRates:
        """Stage rates of rows that share a pool and a recompute family."""
        cost, memory = self.costs[pool, family == SELECTIVE]
        at, run = self.place[rows.key], run_of_rows(self.instance, pool, family, rows, vpp)
        run = replace(run, elsewhere=elsewhere)
        rates = stage_rates(run, cost.take(at), True, memory.take(at))
        if self.instance.assume_mfu is None:
            return rates
        return assumed_rates(rates, run, self.instance.assume_mfu, self.instance.nominal_parameters)

    def cost(self, rows: Groups, pool: int, family: int) -> LayerCost:
        """Layer costs of rows that share a pool and a recompute family."""
        return self.cost_of_keys(rows.key, pool, family)

    def cost_of_keys(self, keys: Array, pool: int, family: int) -> LayerCost:
        """The same of layer keys."""
        return self.costs[pool, family == SELECTIVE][0].take(self.place[keys])

    def rates_of_one(self, row: Candidates) -> StageRates:
        """Rates of one row, without the row axis."""
        return gather(self.rates(row, int(row.pool[0]), int(row.family[0])), np.array(0))

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
            self.least.take(rows.key), slowest, extra, mix, rows.pp, most, chunks, rows.m_high, tokens,
            self.stragglers(rows.num_gpus), self.instance.stack.pipeline.bubble,
        )  # fmt: skip

    def stragglers(self, num_gpus: Array) -> Array:
        """scale.straggler_factor on so many GPUs; 1 under an agreed MFU."""
        if self.instance.assume_mfu is not None or not len(self.keys):
            return np.ones(np.shape(num_gpus))
        ones = dict.fromkeys(
            ("tp", "cp", "pp", "vpp", "ep", "etp", "micro_batch", "num_microbatches", "zero"), 1
        )
        return straggler_factor(run_of(self.instance, 0, 0, dp=num_gpus, **ones))


def _run_of_keys(instance: Instance, pool: int, family: int, keys: LayerKeys) -> Run:
    """A run of the keys; what a layer costs does not depend on the layout."""
    names = ("tp", "cp", "ep", "etp", "micro_batch")
    columns = {name: getattr(keys, name) for name in names}
    return run_of(
        instance, pool, family, pp=1, vpp=1, dp=keys.ep * keys.etp, num_microbatches=1, zero=0, **columns
    )


def _least(instance: Instance, pool: int, again: bool, cost: LayerCost, mix: LayerMix) -> dict[str, Any]:
    """The columns of `KeyCost`."""
    if instance.assume_mfu is not None:
        ones = dict.fromkeys(("tp", "cp", "pp", "dp", "ep", "etp", "micro_batch", "num_microbatches"), 1)
        run = run_of(instance, pool, 0, vpp=1, zero=0, **ones)
        rates = stage_rates(run, memory=False)
        agreed = assumed_rates(rates, run, instance.assume_mfu, instance.nominal_parameters)
        return {"per_token": float(agreed.fixed) / instance.seq_len}
    kinds = cost.total + cost.forward if again else cost.total
    return {
        "total": (mix.totals * kinds).sum(axis=-1) + cost.first + cost.last,
        "cheapest": kinds.min(axis=-1),
        "usual": kinds[..., mix.kind],
        "ends": np.maximum(cost.first, cost.last),
    }


def with_vpp(rows: Groups, vpp: Array) -> Candidates:
    """Groups with a schedule."""
    return Candidates(**{f.name: getattr(rows, f.name) for f in fields(Groups)}, vpp=vpp)


def one_microbatch_count(row: Candidates, number: int) -> Candidates:
    """A row with a single number of micro-batches."""
    return replace(row, m_low=np.full(len(row), number), m_high=np.full(len(row), number))
