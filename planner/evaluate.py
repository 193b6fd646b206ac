"""Estimates of candidates: the plain split's time and memory, and a bound no split can beat.

The same cost functions that price one plan price a block of rows here. What depends on few
decisions is computed once a distinct key and gathered: layer times by (tp, cp, ep, etp,
micro_batch), stage layouts by (pp, vpp, micro-batches in flight).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from costmodel.architecture import Architecture
from costmodel.layer import LayerCost, layer_cost
from costmodel.memory.layer_memory import LayerMemory, layer_memory
from costmodel.pipeline import plain_layers, saturating_microbatches, stage_split
from costmodel.rates import stage_rates
from costmodel.run import Run
from costmodel.stage import PerLayer, StageRates, StageSplit, stage_memory
from costmodel.step import assumed_rates, step_time
from costmodel.transfer import hop_time, steady_transfer
from planner.bound import quick_bound, whole_model
from planner.instance import Instance
from planner.space import Candidates, Groups, selective_modules

Array = NDArray[Any]
T = TypeVar("T")
BLOCK = 1 << 15
"""Rows that are priced together: the working set of a block stays in cache."""


@dataclass(frozen=True, slots=True)
class Estimates:
    """One entry a row, at its largest number of micro-batches."""

    bound: Array
    """Seconds of a step that no stage assignment can beat."""
    plain: Array
    """Seconds of a step with the plain split and no full recompute."""
    plain_memory: Array
    """Bytes of its fullest rank."""
    recomputed: Array
    """Seconds of a step with the plain split and every layer recomputed (inf if it is selective)."""
    recomputed_memory: Array

    def take(self, index: Array | slice) -> Estimates:
        return Estimates(*(getattr(self, f.name)[index] for f in fields(self)))

    @staticmethod
    def concatenate(parts: list[Estimates]) -> Estimates:
        return Estimates(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Estimates)))

    @staticmethod
    def empty() -> Estimates:
        return Estimates(*(np.empty(0) for _ in fields(Estimates)))


def distinct(columns: list[Array]) -> tuple[Array, Array]:
    """Rows that show each distinct combination once, and for each row the number of its combination."""
    code = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        values = np.flatnonzero(np.bincount(column))
        lookup = np.zeros(int(column.max()) + 1, dtype=np.int64)
        lookup[values] = np.arange(len(values))
        code = code * len(values) + lookup[column]
        present = np.flatnonzero(np.bincount(code))
        lookup = np.zeros(int(code.max()) + 1, dtype=np.int64)
        lookup[present] = np.arange(len(present))
        code = lookup[code]
    first = np.zeros(int(code.max()) + 1, dtype=np.int64)
    first[code[::-1]] = np.arange(len(code))[::-1]
    return first, code


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


def run_of(instance: Instance, pool: int, selective: int, rows: Groups, vpp: Any, zero: Any) -> Run:
    """The cost model's noun for rows that share a pool and a recompute family."""
    modules = selective_modules(instance.architecture) if selective else frozenset[str]()
    return Run(
        architecture=instance.architecture,
        gpu=instance.pools[pool].gpu,
        fabric=instance.pools[pool].fabric,
        stack=instance.stack,
        seq_len=instance.seq_len,
        precision=instance.precision,
        recompute_modules=modules,
        tp=rows.tp,
        cp=rows.cp,
        pp=rows.pp,
        vpp=vpp,
        dp=rows.dp,
        ep=rows.ep,
        etp=rows.etp,
        micro_batch=rows.micro_batch,
        num_microbatches=rows.m_high,
        zero=zero,
    )


def run_of_candidates(instance: Instance, pool: int, selective: int, rows: Candidates) -> Run:
    """The same for rows that are written down."""
    return run_of(instance, pool, selective, rows, rows.vpp, rows.zero)


@dataclass(frozen=True, slots=True)
class LayerKeys:
    """Layer costs and bytes of the distinct layer keys of rows, and the key of each row."""

    cost: LayerCost
    memory: LayerMemory | None
    key: Array

    @classmethod
    def of(
        cls, instance: Instance, pool: int, selective: int, rows: Groups, memory: bool = True
    ) -> LayerKeys:
        first, key = distinct([rows.tp, rows.cp, rows.ep, rows.etp, rows.micro_batch])
        run = run_of(instance, pool, selective, rows.take(first), 1, 0)
        return cls(layer_cost(run), layer_memory(run) if memory else None, key)


def rates_of(instance: Instance, run: Run, keys: LayerKeys, at: Any = slice(None)) -> StageRates:
    """Stage rates of a run whose rows are those of `keys` at `at`, or those that reproduce an assumed MFU."""
    key = keys.key[at]
    layer_bytes = None if keys.memory is None else keys.memory.take(key)
    rates = stage_rates(run, keys.cost.take(key), keys.memory is not None, layer_bytes)
    if instance.assume_mfu is None:
        return rates
    return assumed_rates(rates, run, instance.assume_mfu, instance.nominal_parameters)


@cache
def extreme_split(architecture: Architecture, pp: int, vpp: int, num_microbatches: int) -> StageSplit:
    """The plain split with only the ranks that can be slowest or fullest.

    The first and the last rank are always among them; of those between, the ones that no other
    beats in layers and in activations kept, of every kind.
    """
    split = stage_split(architecture, pp, vpp, num_microbatches, plain_layers(architecture.layers, pp * vpp))
    features = np.concatenate([split.layers, split.in_flight], axis=1)[1:-1]
    keep = [0]
    for i, row in enumerate(features):
        beats = (features >= row).all(axis=1)
        beats[i] = False
        # Of equal ranks the first one stays.
        if not any(beats[j] and ((features[j] > row).any() or j < i) for j in np.flatnonzero(beats)):
            keep.append(i + 1)
    if pp > 1:
        keep.append(pp - 1)
    ranks = np.array(keep)
    by_rank = (
        "layers",
        "recomputed",
        "in_flight",
        "in_flight_recomputed",
        "first_in_flight",
        "first",
        "last",
    )
    totals = ("total_layers", "total_recomputed")
    return StageSplit(
        **{name: getattr(split, name)[ranks] for name in by_rank},
        **{name: getattr(split, name) for name in totals},
    )


def split_table(architecture: Architecture, pp: Array, vpp: Array, num_microbatches: Array) -> StageSplit:
    """Extreme splits of many schedules, padded to the same number of ranks by repeating the first."""
    splits = [
        extreme_split(architecture, int(p), int(v), int(m))  # pyright: ignore[reportArgumentType]  # frozen pydantic models hash
        for p, v, m in zip(pp, vpp, num_microbatches, strict=True)
    ]
    width = max(len(s.first) for s in splits)

    def stacked(name: str) -> Array:
        arrays = [getattr(s, name) for s in splits]
        if name.startswith("total"):
            return np.stack(arrays)
        return np.stack([np.concatenate([a, np.repeat(a[:1], width - len(a), axis=0)]) for a in arrays])

    return StageSplit(**{f.name: stacked(f.name) for f in fields(StageSplit)})


def fully_recomputed(split: StageSplit) -> StageSplit:
    """The same split with every layer recomputed."""
    return StageSplit(
        layers=split.layers,
        recomputed=split.layers,
        in_flight=np.zeros_like(split.in_flight),
        in_flight_recomputed=split.in_flight,
        first_in_flight=split.first_in_flight,
        first=split.first,
        last=split.last,
        total_layers=split.total_layers,
        total_recomputed=split.total_layers,
    )


def families(rows: Groups) -> list[tuple[int, int, Array]]:
    """(pool, selective, indices) of rows that can be priced together."""
    code = rows.pool * 2 + rows.selective
    return [(int(value) // 2, int(value) % 2, np.flatnonzero(code == value)) for value in np.unique(code)]


def gpu_seconds_per_token(instance: Instance, keys: Groups) -> Array:
    """Least GPU-seconds a token with each layer key: layers alone, no bubble, perfectly balanced."""
    layers = layer_totals(instance.architecture)
    least = np.empty(len(keys))
    for pool, selective, of in families(keys):
        some = keys.take(of)
        # Replicas share the work of a token; as many as the experts need to have ranks at all.
        rows = replace(some, dp=some.ep * some.etp)
        run = run_of(instance, pool, selective, rows, 1, 0)
        rates = rates_of(instance, run, LayerKeys.of(instance, pool, selective, rows, memory=False))
        work = whole_model(rates.work, layers) if instance.assume_mfu is None else rates.fixed
        least[of] = work * run.num_gpus / run.tokens_per_step
    return least


def layer_totals(architecture: Architecture) -> Array:
    """Layers of each kind in the whole model."""
    pattern = architecture.pattern()
    return np.array([pattern.count(kind) for kind in architecture.kinds])


def group_bounds(instance: Instance, rows: Groups) -> Array:
    """Seconds of a step at `m_high` that no schedule, ZeRO stage or stage assignment of a group can beat."""
    layers = layer_totals(instance.architecture)
    bound = np.full(len(rows), np.inf)
    for pool, selective, family in families(rows):
        keys = LayerKeys.of(instance, pool, selective, rows.take(family), memory=False)
        for start in range(0, len(family), BLOCK):
            at = np.arange(start, min(start + BLOCK, len(family)))
            for stages, of_stages in sharded_alike(instance, rows.take(family[at])):
                here = at[of_stages]
                of = rows.take(family[here])
                rates = group_rates(instance, pool, selective, of, stages, keys, here)
                most = np.maximum(instance.architecture.layers // of.pp, 1)
                least = quick_bound(rates, layers, of.pp, most, of.m_high, chunks=1, again=1 - selective)
                bound[family[here]] = np.minimum(bound[family[here]], least)
    return bound


def sharded_alike(instance: Instance, rows: Groups) -> list[tuple[tuple[int, ...], Array]]:
    """ZeRO stages that one bound covers, with the rows that may have them (see space.zero_stages).

    With a pipeline stages 0 and 1 differ only in what a step ends with and in what they hold; without
    one each stage has its own traffic in a micro-batch.
    """
    sharded, piped = rows.cp * rows.dp > 1, rows.pp > 1
    parts = [((0,), ~sharded), ((0, 1), sharded & piped), *(((zero,), sharded & ~piped) for zero in range(4))]
    permits = instance.narrowing.permits
    allowed = [(tuple(z for z in stages if permits("zero", z)), np.flatnonzero(of)) for stages, of in parts]
    return [(stages, of) for stages, of in allowed if stages and len(of)]


def group_rates(
    instance: Instance,
    pool: int,
    selective: int,
    rows: Groups,
    stages: tuple[int, ...],
    keys: LayerKeys,
    at: Any = slice(None),
) -> StageRates:
    """Rates that no schedule of groups undercuts with these ZeRO stages: one or two chunks transfer least."""
    of = [rates_of(instance, run_of(instance, pool, selective, rows, 1, zero), keys, at) for zero in stages]
    interleaved = run_of(instance, pool, selective, rows, 2, stages[0])
    rates = replace(
        of[0], p2p_steady=np.minimum(of[0].p2p_steady, steady_transfer(interleaved, hop_time(interleaved)))
    )
    names = ("reduce", "gather", "optimizer", "states", "working", "loss")
    return (
        replace(rates, **{name: least([getattr(r, name) for r in of]) for name in names}) if of[1:] else rates
    )


def least(values: list[Any]) -> Any:
    """The smallest of arrays, or of per-layer quantities part by part."""
    if isinstance(values[0], PerLayer):
        return PerLayer(*(least([getattr(v, f.name) for v in values]) for f in fields(PerLayer)))
    return np.minimum.reduce(values)


def evaluate(instance: Instance, candidates: Candidates) -> Estimates:
    """Estimates of all rows, in blocks."""
    columns = {f.name: np.full(len(candidates), np.inf) for f in fields(Estimates)}
    for pool, selective, rows in families(candidates):
        of_family(instance, pool, selective, candidates, rows, columns)
    return Estimates(**columns)


def of_family(
    instance: Instance,
    pool: int,
    selective: int,
    candidates: Candidates,
    rows: Array,
    columns: dict[str, Array],
) -> None:
    """Prices the rows of one pool and recompute family into `columns`."""
    part = candidates.take(rows)
    keys = LayerKeys.of(instance, pool, selective, part)
    saturated = np.minimum(part.m_high, np.where(part.vpp == 1, part.pp, 2 * part.pp))
    split_rows, split_key = distinct([part.pp, part.vpp, saturated])
    table = split_table(
        instance.architecture, part.pp[split_rows], part.vpp[split_rows], saturated[split_rows]
    )
    for start in range(0, len(rows), BLOCK):
        block = slice(start, start + BLOCK)
        of = part.take(block)
        rates = rates_of(instance, run_of_candidates(instance, pool, selective, of), keys, block)
        split = gather(table, split_key[block])
        at = rows[block]
        columns["bound"][at] = quick_bound(
            rates, split.total_layers, of.pp, of.vpp, of.m_high, of.vpp, again=1 - selective
        )
        columns["plain"][at] = step_time(rates, split, of.m_high, of.pp, of.vpp).total
        columns["plain_memory"][at] = stage_memory(rates, split).max(axis=-1)
        if not selective:
            full = fully_recomputed(split)
            columns["recomputed"][at] = step_time(rates, full, of.m_high, of.pp, of.vpp).total
            columns["recomputed_memory"][at] = stage_memory(rates, full).max(axis=-1)


def next_fewer_microbatches(pp: int, vpp: int, num_microbatches: int) -> int:
    """The next smaller number of micro-batches that needs less memory (it may be 0)."""
    step = pp if vpp > 1 else 1
    return min(num_microbatches - step, saturating_microbatches(pp, vpp) - step)
