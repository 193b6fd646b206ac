"""Collective times as latency plus bytes over bandwidth, N ranks on one kind of link.

alpha seconds a hop, bandwidth bytes/s one way a GPU. Byte counts come from `volumes`. Chan,
Heimlich, Purkayastha, van de Geijn, "Collective communication" (2007).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from costmodel.closed_form.volumes import all_reduce_bytes, ring_bytes, tree_all_reduce_bytes

if TYPE_CHECKING:
    from costmodel.run import Column


def transfer_seconds(sent: Column, bandwidth: Column, alpha: Column = 0) -> Column:
    """Bytes over one link: alpha + V/BW."""
    return alpha + sent / bandwidth


def ring_seconds(buffer: Column, ranks: Column, bandwidth: Column, alpha: Column = 0) -> Column:
    """All-gather, reduce-scatter or all-to-all: (N-1)*alpha + (N-1)/N*V/BW."""
    return transfer_seconds(ring_bytes(buffer, ranks), bandwidth) + (ranks - 1) * alpha


def all_reduce_seconds(buffer: Column, ranks: Column, bandwidth: Column, alpha: Column = 0) -> Column:
    """Ring all-reduce: 2(N-1)*alpha + 2(N-1)/N*V/BW."""
    return transfer_seconds(all_reduce_bytes(buffer, ranks), bandwidth) + 2 * (ranks - 1) * alpha


def tree_all_reduce_seconds(buffer: Column, ranks: Column, bandwidth: Column, alpha: Column = 0) -> Column:
    """Pipelined tree: 2*log2(N)*alpha + 2V/BW."""
    return transfer_seconds(tree_all_reduce_bytes(buffer), bandwidth) + 2 * np.log2(ranks) * alpha


def hierarchical_all_reduce_seconds(
    buffer: Column, gpus_per_node: Column, nodes: Column, nvlink: Column, network: Column
) -> Column:
    """Reduce in the node, all-reduce a shard across nodes, gather in the node.

    2(g-1)/g*V/BW_nvlink + 2(q-1)/q*(V/g)/BW_network for q nodes of g GPUs.
    """
    inside = all_reduce_seconds(buffer, gpus_per_node, nvlink)
    return inside + all_reduce_seconds(buffer / gpus_per_node, nodes, network)


def bus_to_algorithm_bandwidth(ranks: Column) -> Column:
    """All-reduce: algbw/busbw = N/(2(N-1)); nccl-tests reports both."""
    return ranks / (2 * (ranks - 1))
