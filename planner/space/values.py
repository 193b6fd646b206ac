"""Values that each decision may take."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.architecture import Architecture
from planner.frameworks.rules import launches_precision, launches_ranks, node_scoped
from planner.instance import Instance
from planner.space.recompute import family_variants, modes_of, recompute_families

Array = NDArray[Any]
MICRO_BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Sequences a micro-batch that are tried; `search: {micro_batch: [...]}` can name others."""
LEAST_CP_TOKENS = 1024
"""A context-parallel rank holds at least this many tokens, or ring attention has nothing to hide behind."""


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


def base_keys(instance: Instance, index: int) -> Array:
    """(5, keys) every (tp, cp, ep, etp, micro_batch) of a pool."""
    permits, architecture = instance.narrowing.permits, instance.architecture
    sizes, pool = instance.narrowing.allowed.get("micro_batch", MICRO_BATCHES), instance.pools[index]
    if not (
        permits("gpu", pool.gpu.name)
        and permits("precision", pool.precision)
        and launches_precision(instance, pool.precision)
    ):
        return np.empty((5, 0), dtype=np.int64)
    keys = [
        (tp, cp, ep, etp, int(micro_batch))
        for tp in tensor_parallel_sizes(architecture, pool.fabric.domain)
        if permits("tp", tp)
        for cp in context_parallel_sizes(instance.seq_len)
        if permits("cp", cp)
        for ep, etp in expert_layouts(architecture, tp)
        if permits("ep", ep) and permits("etp", etp) and launches_ranks(instance, tp, cp, ep, etp)
        for micro_batch in sizes
        if int(micro_batch) <= instance.max_batch and permits("micro_batch", micro_batch)
    ]
    return np.array(keys, dtype=np.int64).reshape(-1, 5).T.copy()


def ways_to_recompute(instance: Instance) -> int:
    """Recompute modes, sets of modules and overlap of the experts' traffic, as one decision."""
    families = recompute_families(instance)
    return sum(modes_of(instance, each) * len(family_variants(instance, each)) for each in families)


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
            "recompute": sum(
                modes_of(instance, f) * len(family_variants(instance, f))
                for f in recompute_families(instance)
            ),
        } | ({"zero_scope": 2} if any(node_scoped(instance, zero) for zero in (1, 2, 3)) else {})
        total += prod(
            len(allowed[name]) if name in allowed and name != "recompute" else number
            for name, number in values.items()
        )
    return total
