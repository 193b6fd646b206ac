"""What a storage system can do."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costmodel.run import Column
from hardware.site import StorageServer, Tier, site_storage


@dataclass(frozen=True, slots=True)
class Storage:
    """Bandwidth and room of a storage system; numbers, or columns where it grows with the plan."""

    write: Column
    """bytes/s of all clients together."""
    read: Column
    capacity: Column = np.inf
    """Bytes, replicas and parity taken off."""
    node_write: Column = np.inf
    """bytes/s one training node can send to storage."""
    node_read: Column = np.inf


def of_servers(
    server: StorageServer, count: Column, replicas: Column = 1, efficiency: float | None = None
) -> Storage:
    """So many servers of one kind: n*min(drives, network)*eta, writes and room divided by the replicas."""
    share = site_storage().efficiency if efficiency is None else efficiency
    write = count * min(server.write, server.network) * share / replicas
    read = count * min(server.read, server.network) * share
    return Storage(write, read, count * server.capacity / replicas)


def usual_storage(num_nodes: Column, tier: Tier | None = None) -> Storage:
    """What usually stands beside so many nodes (NVIDIA DGX SuperPOD's guidelines); no limit on room."""
    facts = site_storage()
    kind = facts.tiers[tier or facts.usual]
    return Storage(
        num_nodes * kind.write,
        num_nodes * kind.read,
        node_write=kind.node_write,
        node_read=kind.node_read,
    )
