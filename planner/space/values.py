"""Candidates: every valid combination of the decisions, one numpy column a decision.

Validity is divisibility and topology, nothing else; limits and costs come later. The lattice is
walked in three steps, so that most of it is never written down:

* a layer key (tp, cp, ep, etp, micro_batch, selective) fixes what a layer costs, and so how many
  GPU-seconds a token takes at the very least;
* a `Groups` row adds the layout (pp, dp) and stands for every vpp, ZeRO stage and number of
  micro-batches that go with it;
* a `Candidates` row adds vpp and zero and stands for the numbers of micro-batches from `m_low` to
  `m_high`: with everything else fixed the time a token falls with their number (the bubble, the
  optimizer and the data-parallel traffic are paid once a step), so `m_high` bounds them all.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from math import lcm, prod
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from costmodel.architecture import Architecture
from planner.instance import Instance, Pool

Array = NDArray[Any]
Rows = TypeVar("Rows", bound="Groups")

MICRO_BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Sequences a micro-batch that are tried; `search: {micro_batch: [...]}` can name others."""
LEAST_CP_TOKENS = 1024
"""A context-parallel rank holds at least this many tokens, or ring attention has nothing to hide behind."""


@dataclass(frozen=True, slots=True)
class Groups:
    """Layouts, one a row. `pool` indexes the instance's pools, `selective` is 0 or 1."""

    pool: Array
    tp: Array
    cp: Array
    pp: Array
    dp: Array
    ep: Array
    etp: Array
    micro_batch: Array
    selective: Array
    m_low: Array
    m_high: Array

    def __len__(self) -> int:
        return len(self.tp)

    def take(self: Rows, index: Array | slice) -> Rows:
        return type(self)(**{f.name: getattr(self, f.name)[index] for f in fields(self)})

    @property
    def num_gpus(self) -> Array:
        return self.tp * self.cp * self.pp * self.dp

    @classmethod
    def concatenate(cls: type[Rows], parts: list[Rows]) -> Rows:
        return cls(**{f.name: np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls)})

    @classmethod
    def empty(cls: type[Rows]) -> Rows:
        return cls(**{f.name: np.empty(0, dtype=np.int64) for f in fields(cls)})


@dataclass(frozen=True, slots=True)
class Candidates(Groups):
    """Layouts with their schedule and sharding."""

    vpp: Array
    zero: Array


def selective_modules(architecture: Architecture) -> frozenset[str]:
    """What `selective` recomputes: the modules that save much for little in today's Megatron-Core."""
    if architecture.moe is None:
        return frozenset({"layernorm", "mlp"})
    return frozenset({"layernorm", "moe_act"} | ({"mla_up_proj"} if architecture.mla else set()))


def divisors(n: int) -> list[int]:
    """All divisors, ascending."""
    return [d for d in range(1, n + 1) if n % d == 0]


def powers_of_two(limit: int) -> list[int]:
    """1, 2, 4, ... up to a limit."""
    return [1 << k for k in range(limit.bit_length()) if 1 << k <= limit]


def tensor_parallel_sizes(architecture: Architecture, domain: int) -> list[int]:
    """Tp splits heads, key-value heads, both FFN widths, and a domain into whole groups."""
    moe = architecture.moe
    widths = [architecture.heads, architecture.ffn, domain]
    if architecture.mla is None:
        widths.append(architecture.kv_heads)
    if moe is not None and moe.shared_expert_ffn:
        widths.append(moe.shared_expert_ffn)
    return [tp for tp in divisors(domain) if all(width % tp == 0 for width in widths)]


def context_parallel_sizes(seq_len: int) -> list[int]:
    """Powers of two; each rank takes two of 2*cp chunks to balance the causal mask."""
    return [
        cp for cp in powers_of_two(max(1, seq_len // LEAST_CP_TOKENS)) if seq_len % (2 * cp) == 0 or cp == 1
    ]


def expert_layouts(architecture: Architecture, tp: int) -> list[tuple[int, int]]:
    """(ep, etp): ep divides the experts; experts are whole or split like the rest of the layer."""
    if architecture.moe is None:
        return [(1, 1)]
    etps = [1] if tp == 1 or architecture.moe.moe_ffn % tp else [1, tp]
    return [(ep, etp) for ep in divisors(architecture.moe.experts) for etp in etps]


def zero_stages(instance: Instance, pp: int, shards: int) -> list[int]:
    """ZeRO stages of a layout that shards over `shards` ranks.

    With a pipeline, stages 2 and 3 would reduce or gather for every micro-batch of every stage; with
    one rank to shard over, every stage is stage 0.
    """
    valid = (0,) if shards == 1 else (0, 1) if pp > 1 else (0, 1, 2, 3)
    return [zero for zero in valid if instance.narrowing.permits("zero", zero)]


def chunk_counts(instance: Instance, pp: int) -> list[int]:
    """Values of vpp: 1, or with a pipeline as many chunks as leave every virtual stage a layer."""
    most = instance.architecture.layers // pp if pp > 1 else 1
    return [vpp for vpp in range(1, most + 1) if instance.narrowing.permits("vpp", vpp)]


def layer_keys(instance: Instance, pool: Pool) -> Groups:
    """Every (tp, cp, ep, etp, micro_batch, selective) of a pool; pp, dp and the batch are left at 1."""
    permits, architecture = instance.narrowing.permits, instance.architecture
    sizes = instance.narrowing.allowed.get("micro_batch", MICRO_BATCHES)
    families = [
        s for s in (0, 1) if any(permits("recompute", r) for r in (("selective",) if s else ("none", "full")))
    ]
    keys = [
        (tp, cp, ep, etp, int(micro_batch), selective)
        for tp in tensor_parallel_sizes(architecture, pool.fabric.domain)
        for cp in context_parallel_sizes(instance.seq_len)
        for ep, etp in expert_layouts(architecture, tp)
        for micro_batch in sizes
        if int(micro_batch) <= instance.max_batch
        for selective in families
        if permits("tp", tp) and permits("cp", cp) and permits("ep", ep) and permits("etp", etp)
    ]
    tp, cp, ep, etp, micro_batch, selective = np.array(keys, dtype=np.int64).reshape(-1, 6).T
    one = np.ones_like(tp)
    index = instance.pools.index(pool)
    return Groups(one * index, tp, cp, one, one, ep, etp, micro_batch, selective, one, one)


def layouts(instance: Instance, pool: Pool, tp: int, cp: int, at_least: int) -> tuple[Array, Array]:
    """All (pp, dp) with which tp x cp fills whole nodes of the pool, `at_least` so many GPUs."""
    permits, node = instance.narrowing.permits, pool.fabric.gpus_per_node
    low, high = max(pool.min_nodes * node, at_least), pool.max_nodes * node
    allowed_dp = instance.narrowing.allowed.get("dp")
    pps, dps = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for pp in range(1, instance.architecture.layers + 1):
        if not permits("pp", pp):
            continue
        unit = tp * cp * pp
        whole = lcm(unit, node)
        dp = np.arange(max(-(-low // whole), 1) * whole, high + 1, whole) // unit
        if allowed_dp is not None:
            dp = dp[np.isin(dp, allowed_dp)]
        pps.append(np.full_like(dp, pp))
        dps.append(dp)
    return np.concatenate(pps), np.concatenate(dps)


def groups(instance: Instance, keys: Groups, at_least: Array) -> Groups:
    """Layouts of layer keys with at least so many GPUs (one number a key) and an allowed global batch."""
    parts = [Groups.empty()]
    pool = instance.pools[int(keys.pool[0])] if len(keys) else None
    for tp, cp in sorted({(int(t), int(c)) for t, c in zip(keys.tp, keys.cp, strict=True)}):
        of = np.flatnonzero((keys.tp == tp) & (keys.cp == cp))
        assert pool is not None
        pp, dp = layouts(instance, pool, tp, cp, int(at_least[of].min()))
        key, layout = np.repeat(of, len(pp)), np.tile(np.arange(len(pp)), len(of))
        pp, dp = pp[layout], dp[layout]
        experts = keys.ep[key] * keys.etp[key]
        valid = (tp * cp * pp * dp >= at_least[key]) & (tp * cp * dp % experts == 0)
        low, high = microbatch_range(instance, keys.micro_batch[key], dp)
        valid &= low <= high
        key, pp, dp, low, high = key[valid], pp[valid], dp[valid], low[valid], high[valid]
        parts += with_microbatches(instance, replace(keys.take(key), pp=pp, dp=dp, m_low=low, m_high=high))
    return Groups.concatenate(parts)


def microbatch_range(instance: Instance, micro_batch: Array, dp: Array) -> tuple[Array, Array]:
    """Fewest and most micro-batches that keep micro_batch*m*dp within the allowed global batch."""
    sequences = micro_batch * dp
    return np.maximum(-(-instance.min_batch // sequences), 1), instance.max_batch // sequences


def with_microbatches(instance: Instance, rows: Groups) -> list[Groups]:
    """The rows, or one copy for each number of micro-batches that the problem names."""
    wanted = instance.narrowing.allowed.get("num_microbatches")
    if wanted is None:
        return [rows]
    parts = []
    for m in sorted({int(m) for m in wanted}):
        part = rows.take((rows.m_low <= m) & (m <= rows.m_high))
        parts.append(replace(part, m_low=np.full(len(part), m), m_high=np.full(len(part), m)))
    return parts


def expand(instance: Instance, rows: Groups) -> Candidates:
    """Candidates of groups: each vpp and ZeRO stage that is valid for them."""
    shards = np.minimum(rows.cp * rows.dp, 2)
    code = rows.pp * 4 + shards
    parts = [Candidates.empty()]
    for value in np.unique(code):
        of = np.flatnonzero(code == value)
        pp, sharded = int(value) // 4, int(value) % 4
        for vpp in chunk_counts(instance, pp):
            step = pp if vpp > 1 else 1
            low, high = -(-rows.m_low[of] // step) * step, rows.m_high[of] // step * step
            valid = of[low <= high]
            low, high = low[low <= high], high[low <= high]
            part = {f.name: getattr(rows, f.name)[valid] for f in fields(Groups)} | {
                "m_low": low,
                "m_high": high,
            }
            for zero in zero_stages(instance, pp, sharded):
                parts.append(Candidates(**part, vpp=np.full(len(valid), vpp), zero=np.full(len(valid), zero)))
    return Candidates.concatenate(parts)


def count(instance: Instance, rows: Groups) -> Array:
    """Candidates that each group stands for: its schedules x the recompute modes of its family."""
    return schedules(instance, rows) * recompute_counts(instance)[rows.selective]


def schedules(instance: Instance, rows: Groups) -> Array:
    """Values of vpp x ZeRO stages x numbers of micro-batches of each group."""
    number = np.zeros(len(rows), dtype=np.int64)
    for pp in np.unique(rows.pp):
        of = np.flatnonzero(rows.pp == pp)
        low, high = rows.m_low[of], rows.m_high[of]
        chunks = chunk_counts(instance, int(pp))
        interleaved = sum(1 for vpp in chunks if vpp > 1) * (high // pp - -(-low // pp) + 1).clip(0)
        stages = [len(zero_stages(instance, int(pp), shards)) for shards in (1, 2)]
        sharded = np.array(stages)[np.minimum(rows.cp[of] * rows.dp[of], 2) - 1]
        number[of] = ((1 in chunks) * (high - low + 1) + interleaved) * sharded
    return number


def recompute_counts(instance: Instance) -> Array:
    """Recompute modes that a row without and a row with selective recompute stands for."""
    permits = instance.narrowing.permits
    return np.array(
        [permits("recompute", "none") + permits("recompute", "full"), permits("recompute", "selective")]
    )


def count_all(instance: Instance) -> int:
    """All valid candidates of all pools."""
    total = 0
    for pool in instance.pools:
        keys = layer_keys(instance, pool)
        modes = recompute_counts(instance)[np.unique(keys.selective)].sum()
        # The recompute families have the same layouts: one of them is counted.
        keys = keys.take(keys.selective == keys.selective[0]) if len(keys) else keys
        rows = groups(instance, keys, np.ones(len(keys), dtype=np.int64))
        total += int(schedules(instance, rows).sum() * modes)
    return total


def lattice_size(instance: Instance) -> int:
    """Combinations of decision values before any rule: what a naive enumeration would go through."""
    architecture, allowed = instance.architecture, instance.narrowing.allowed
    experts = architecture.moe.experts if architecture.moe else 1
    total = 0
    for pool in instance.pools:
        values = {
            "tp": len(tensor_parallel_sizes(architecture, pool.fabric.domain)),
            "cp": len(context_parallel_sizes(instance.seq_len)),
            "pp": architecture.layers,
            "vpp": architecture.layers,
            "nodes": pool.max_nodes - pool.min_nodes + 1,
            "ep": len(divisors(experts)),
            "etp": 2 if architecture.moe else 1,
            "micro_batch": len(MICRO_BATCHES),
            "num_microbatches": instance.max_batch,
            "zero": 4,
            "recompute": 3,
        }
        total += prod(len(allowed[name]) if name in allowed else number for name, number in values.items())
    return total
