"""Values that each decision may take."""

from __future__ import annotations

from math import prod

import numpy as np

from costmodel.architecture import Architecture
from planner.frameworks.rules import (
    launches_precision,
    launches_ranks,
    node_scoped,
    recomputes_all_or_none,
    selective_by,
)
from planner.instance import Instance
from planner.narrowing import RECOMPUTE
from planner.space.columns import ALL, NONE, SELECTIVE, SOME, LayerKeys

MICRO_BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Sequences a micro-batch that are tried; `search: {micro_batch: [...]}` can name others."""
LEAST_CP_TOKENS = 1024
"""A context-parallel rank holds at least this many tokens, or ring attention has nothing to hide behind."""


def selective_modules(architecture: Architecture, framework: str = "any") -> frozenset[str]:
    """What `selective` recomputes: the modules that save much for little in today's Megatron-Core.

    Where a framework chooses by operation, that is what it recomputes.
    """
    if selective_by(framework) == "operations":
        return frozenset({"per_op"})
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


def recompute_families(instance: Instance, modes: frozenset[str] | None = None) -> tuple[int, ...]:
    """Families that cover the recompute modes of an instance, or some of them, each mode once."""
    modes = recompute_modes(instance) if modes is None else modes
    both = (NONE, ALL) if recomputes_all_or_none(instance) else (SOME,)
    full = {(True, True): both, (True, False): (NONE,), (False, True): (ALL,), (False, False): ()}
    return full["none" in modes, "full" in modes] + ((SELECTIVE,) if "selective" in modes else ())


def recompute_modes(instance: Instance) -> frozenset[str]:
    """Recompute modes that the problem allows and its framework has."""
    has = [mode for mode in RECOMPUTE if mode != "selective" or selective_by(instance.framework) != "none"]
    return frozenset(mode for mode in has if instance.narrowing.permits("recompute", mode))


def layer_keys(instance: Instance, families: tuple[int, ...]) -> LayerKeys:
    """Every (tp, cp, ep, etp, micro_batch) of every pool, in each of the recompute families."""
    permits, architecture = instance.narrowing.permits, instance.architecture
    sizes = instance.narrowing.allowed.get("micro_batch", MICRO_BATCHES)
    keys = [
        (index, family, tp, cp, ep, etp, int(micro_batch))
        for index, pool in enumerate(instance.pools)
        if permits("gpu", pool.gpu.name)
        and permits("precision", pool.precision)
        and launches_precision(instance, pool.precision)
        for family in families
        for tp in tensor_parallel_sizes(architecture, pool.fabric.domain)
        if permits("tp", tp)
        for cp in context_parallel_sizes(instance.seq_len)
        if permits("cp", cp)
        for ep, etp in expert_layouts(architecture, tp)
        if permits("ep", ep) and permits("etp", etp) and launches_ranks(instance, tp, cp, ep, etp)
        for micro_batch in sizes
        if int(micro_batch) <= instance.max_batch and permits("micro_batch", micro_batch)
    ]
    return LayerKeys(*np.array(keys, dtype=np.int64).reshape(-1, 7).T.copy())


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
        } | ({"zero_scope": 2} if any(node_scoped(instance, zero) for zero in (1, 2, 3)) else {})
        total += prod(len(allowed[name]) if name in allowed else number for name, number in values.items())
    return total
