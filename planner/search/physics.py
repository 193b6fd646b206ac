"""What an evaluation depends on, and what it does not: two instances of one physics share one."""

from __future__ import annotations

from dataclasses import replace

from planner.instance import Instance, Limits, Pool

Counts = tuple[tuple[int, int], ...]
"""Fewest and most nodes of each pool."""


def counts_of(instance: Instance) -> Counts:
    """Nodes of each pool."""
    return tuple((pool.min_nodes, pool.max_nodes) for pool in instance.pools)


def widest(counts: list[Counts]) -> Counts:
    """Counts that hold all of these."""
    return tuple((min(low for low, _ in of), max(high for _, high in of)) for of in zip(*counts, strict=True))


def with_counts(instance: Instance, counts: Counts) -> Instance:
    """The instance with other nodes."""
    pools = zip(instance.pools, counts, strict=True)
    return replace(
        instance, pools=tuple(replace(pool, min_nodes=low, max_nodes=high) for pool, (low, high) in pools)
    )


def physics_of(instance: Instance) -> Instance:
    """The instance without what an evaluation does not depend on: two of a kind share one."""
    pools = tuple(
        Pool(of.gpu, of.fabric, min_nodes=1, max_nodes=1, price=0.0, precision=of.precision, entry=of.entry)
        for of in instance.pools
    )
    return replace(
        instance,
        tokens=1.0,
        limits=Limits(
            memory_headroom=instance.limits.memory_headroom,
            most_memory=instance.limits.most_memory,
            # What has to be recomputed for an HFU is a question of the stages.
            steps=tuple(of for of in instance.limits.steps if of.name == "hfu"),
        ),
        objective=(("cost", 1.0),),
        lexicographic=True,
        pools=pools,
    )
