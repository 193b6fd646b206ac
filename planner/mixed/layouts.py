"""Layouts on two pools: whole nodes of each, and the pipelines and replicas that fill them."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.frameworks.rules import launches_zero
from planner.instance import Instance
from planner.mixed.arrangement import Arrangement, alike, alike_in
from planner.mixed.batches import makes_a_batch
from planner.mixing import Form
from planner.space.columns import FULL, Groups
from planner.space.layouts import chunk_counts, numbered
from planner.space.values import base_keys

Array = NDArray[Any]
CELLS = 1 << 22
"""Pairs of a cell and a key, times pipeline sizes, that are looked at together."""


def cells_of(instance: Instance, of: Arrangement, first: Array) -> Array:
    """(2, cells) GPUs of each pool: every pair of whole nodes that the problem lets train.

    With `first` nodes of the first pool.
    """
    nodes = first, np.arange(of.both[1].min_nodes, of.both[1].max_nodes + 1)
    axes = [number * pool.fabric.gpus_per_node for number, pool in zip(nodes, of.both, strict=True)]
    grid = np.stack([column.reshape(-1) for column in np.meshgrid(*axes, indexing="ij")])
    node = np.array([pool.fabric.gpus_per_node for pool in of.both])[:, None]
    permitted = instance.narrowing.permitted
    return grid[:, permitted("num_gpus", grid.sum(axis=0)) & permitted("nodes", (grid // node).sum(axis=0))]


@dataclass(frozen=True, slots=True)
class MixedRows:
    """Layouts of one arrangement: (rows,) each; the numbers of micro-batches are still open."""

    cell: Array
    key: Array
    """Of the arrangement's keys."""
    pp: Array
    vpp: Array
    """Chunks of a rank; 0 as long as it may be any number of them (`chunked`)."""
    split: Array
    """Ranks on the first pool; 0 of replicas."""
    zero: Array
    dp: Array
    """(2, rows); of stages, all replicas twice."""

    def __len__(self) -> int:
        return len(self.cell)

    def take(self, index: Array) -> MixedRows:
        """Some rows."""
        return MixedRows(**{f.name: getattr(self, f.name)[..., index] for f in fields(self)})

    @staticmethod
    def concatenate(parts: list[MixedRows]) -> MixedRows:
        """Rows below each other."""
        return MixedRows(
            **{
                f.name: np.concatenate([getattr(p, f.name) for p in parts], axis=-1)
                for f in fields(MixedRows)
            }
        )

    def replicas(self, of: Arrangement) -> Array:
        """(rows,) data-parallel replicas of both pools together."""
        return self.dp[0] if of.form == "stages" else self.dp.sum(axis=0)

    def sequences(self, of: Arrangement, num_microbatches: Array) -> Array:
        """(rows,) sequences a step with (2, rows) micro-batches."""
        each = self.dp * num_microbatches
        return of.keys.micro_batch[self.key] * (each[0] if of.form == "stages" else each.sum(axis=0))

    def on(self, of: Arrangement, side: int, dp: Array) -> Groups:
        """The rows as layouts of one pool."""
        keys, ones = of.key[side][self.key], np.ones_like(self.pp)
        columns = of.book.keys.take(keys)
        named = {f.name: getattr(columns, f.name) for f in fields(columns)}
        own = {"key": keys, "pp": self.pp, "zero": self.zero, "filled": ones, "pipeline": 0 * ones, "dp": dp}
        own["zero_scope"] = FULL * ones
        return Groups(**named | own, m_low=ones, m_high=ones)


def any_layout(instance: Instance, form: Form) -> bool:
    """Whether a form may have a layout on some number of nodes: stages, ZeRO and batch have allowed values.

    Quickly told, and a bound: there is none on any number of nodes where it is false.
    """
    permitted, layers, pools = instance.narrowing.permitted, instance.architecture.layers, instance.pools
    pp = np.arange(2 if form == "stages" else 1, layers + 1)
    if not (permitted("pp", pp) & (most_chunks_of(instance, form)[pp] > 0)).any():
        return False
    if not any(_launches(instance, pool.precision, zero) for pool in pools for zero in (0, 1)):
        return False
    # Replicas are at least one on each pool.
    dp = np.arange(1 if form == "stages" else 2, instance.max_batch + 1)
    size = np.concatenate([base_keys(instance, index)[4] for index in range(len(pools))])
    sequences = np.unique(np.unique(size)[:, None] * dp[permitted("dp", dp)])
    sequences = sequences[sequences <= instance.max_batch]
    return bool(makes_a_batch(instance, sequences, alike_in(instance, form)).any())


def layouts(instance: Instance, of: Arrangement, gpus: Array, cell: Array, key: Array) -> MixedRows:
    """Every layout of pairs of a cell and a key; `gpus` (2, cells)."""
    unit = (of.keys.tp * of.keys.cp)[key]
    # Keys with the same tp*cp have the same layouts: those are written down once.
    code, which = np.unique(cell * (int(unit.max(initial=0)) + 1) + unit, return_inverse=True)
    of_cell, of_unit = np.divmod(code, int(unit.max(initial=0)) + 1)
    size = max(CELLS // instance.architecture.layers, 1)
    parts = [
        _pipelines(
            instance, of.form == "stages", gpus[:, of_cell[at : at + size]], of_unit[at : at + size], at
        )
        for at in range(0, max(len(code), 1), size)
    ]
    shared, pp, split, dp = (np.concatenate([part[column] for part in parts], axis=-1) for column in range(4))
    number = np.bincount(shared, minlength=len(code))[which]
    first = np.searchsorted(shared, np.arange(len(code)))[which]
    pair = np.repeat(np.arange(len(cell)), number)
    place = np.arange(len(pair)) - np.repeat(np.cumsum(number) - number, number) + first[pair]
    none = np.zeros_like(pair)
    rows = MixedRows(cell[pair], key[pair], pp[place], none, split[place], none, dp[:, place])
    return _sharded(instance, of, rows.take(np.flatnonzero(_permitted(instance, of, rows))))


def _pipelines(
    instance: Instance, stages: bool, gpus: Array, unit: Array, before: int
) -> tuple[Array, Array, Array, Array]:
    """(place, pp, split, dp) of all pipelines that fill (2, cells) GPUs with units of tp*cp.

    n1 = u*dp*k and n2 = u*dp*(pp - k) of stages, n_i = u*dp_i*pp of replicas. With g the greatest common
    divisor of n1 and n2, stages have k = j*n1/g, pp = j*(n1 + n2)/g and dp = g/(u*j), replicas pp = j, for
    every j that divides g/u.
    """
    first, second = gpus
    common = np.gcd(first, second)
    stride = (first + second) // common if stages else np.ones_like(common)
    j = np.arange(1, instance.architecture.layers + 1)
    whole = (common[:, None] % (unit[:, None] * j) == 0) & (
        stride[:, None] * j <= instance.architecture.layers
    )
    which, at = np.nonzero(whole)
    steps = j[at]
    pp = stride[which] * steps
    if stages:
        dp = np.stack([common[which] // (unit[which] * steps)] * 2)
        return which + before, pp, steps * (first // common)[which], dp
    dp = np.stack([n[which] // (unit[which] * pp) for n in (first, second)])
    return which + before, pp, np.zeros_like(pp), dp


def _permitted(instance: Instance, of: Arrangement, rows: MixedRows) -> Array:
    keys, permitted = of.keys.take(rows.key), instance.narrowing.permitted
    experts = keys.ep * keys.etp
    inside = ((keys.tp * keys.cp * rows.dp) % experts == 0).all(axis=0)
    inside &= most_chunks_of(instance, of.form)[rows.pp] > 0
    inside &= permitted("pp", rows.pp) & permitted("dp", rows.replicas(of))
    sequences = rows.sequences(of, np.ones_like(rows.dp))
    inside &= sequences <= instance.max_batch
    at = np.flatnonzero(inside)
    inside[at] = makes_a_batch(instance, sequences[at], alike(of))
    return inside


def chunked(instance: Instance, of: Arrangement, rows: MixedRows) -> MixedRows:
    """The rows with each number of chunks: of replicas all that ranks keep step with (`chunk_counts`).

    Ranks of stages on two pools are not equally quick, so that no chunks keep them in step. Interleaved,
    micro-batches run in rounds of pp, of which the largest batch has to hold one.
    """
    if of.form == "stages":
        return replace(rows, vpp=np.ones_like(rows.vpp))
    counts, start = _chunks_of(instance)
    which, place = numbered(start[rows.pp + 1] - start[rows.pp])
    vpp = counts[start[rows.pp][which] + place]
    round_of = rows.sequences(of, np.ones_like(rows.dp))[which] * rows.pp[which]
    some = np.flatnonzero((vpp == 1) | (round_of <= instance.max_batch))
    return replace(rows.take(which[some]), vpp=vpp[some])


def _chunks_of(instance: Instance) -> tuple[Array, Array]:
    """`chunk_counts` of every pipeline one after the other, and where those of each pp begin."""
    if "mixed_chunks" not in instance.derived:
        each = [[], *(chunk_counts(instance, pp) for pp in range(1, instance.architecture.layers + 1))]
        start = np.concatenate([[0], np.cumsum([len(of) for of in each])])
        instance.derived["mixed_chunks"] = np.concatenate(each).astype(np.int64), start
    return instance.derived["mixed_chunks"]


def most_chunks_of(instance: Instance, form: Form) -> Array:
    """(layers + 1,) the most chunks that ranks of p stages have, 0 where no number is allowed."""
    counts, start = _chunks_of(instance)
    if form == "stages":
        return np.full(len(start) - 1, int(instance.narrowing.permits("vpp", 1)))
    if "most_mixed_chunks" not in instance.derived:
        instance.derived["most_mixed_chunks"] = np.array(
            [counts[a:b].max(initial=0) for a, b in pairwise(start)]
        )
    return instance.derived["most_mixed_chunks"]


def least_bubble(instance: Instance) -> Array:
    """(layers + 1,) (1 - 1/p)/v of pipelines that fill, the least of p stages or more; inf if there are none.

    What their bubble takes of the time of a micro-batch on all ranks.
    """
    pp, most = np.arange(instance.architecture.layers + 1), most_chunks_of(instance, "replicas")
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(most > 0, (1 - 1 / pp) / most, np.inf)
    return np.minimum.accumulate(each[::-1])[::-1]


def _sharded(instance: Instance, of: Arrangement, rows: MixedRows) -> MixedRows:
    """The rows with each ZeRO stage: 0 and, where there are ranks to shard over, 1.

    Stages 2 and 3 reduce or gather in every micro-batch, or every round of them (`in_chunks`), of which
    replicas run different numbers. Where weights are kept in FP8 a framework may have no stage 0.
    """
    parts, precision = [], of.both[0].precision
    shards = rows.replicas(of) * of.keys.cp[rows.key]
    for zero in (0, 1):
        if _launches(instance, precision, zero):
            some = rows.take(np.flatnonzero((shards > 1) | (zero == 0)))
            parts.append(replace(some, zero=some.zero + zero))
    return MixedRows.concatenate([rows.take(np.empty(0, dtype=np.int64)), *parts])


def _launches(instance: Instance, precision: str, zero: int) -> bool:
    """Whether there is such a ZeRO stage, over all replicas."""
    permits = instance.narrowing.permits
    launches = launches_zero(instance, precision, zero, split=True, pipeline=True, replicas=True)
    return launches and permits("zero", zero) and permits("zero_scope", "full")
