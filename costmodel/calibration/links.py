"""How a link's measured rate compares with what the catalogue and a software profile expect of it."""

from __future__ import annotations

import numpy as np

from costmodel.calibration.collective import collective_seconds
from costmodel.calibration.descent import Values
from costmodel.collectives import domain_collective_time, ring_bandwidth
from costmodel.run import Fabric
from costmodel.stack import Stack
from costmodel.stage import Array
from hardware.accelerator import Accelerator, Collective

RINGS: tuple[Collective, ...] = ("all_reduce", "all_gather", "reduce_scatter")
BULK = 16e6
"""Bytes sent above which bandwidth, not latency, sets the time: what gradients and activations move."""
BULK_LEAST = 3
"""Where fewer points are that large, the largest so many stand for them."""
NETWORK_BINDS = 0.5
"""A ring across nodes that the network need not limit (its NICs together carry more than NVLink) says how
fast the network is only when it stays below this share of what NVLink allows."""


def bulk(sent: Values) -> Array:
    """Indices of the points whose time is bandwidth."""
    large = np.flatnonzero(sent >= BULK)
    return large if len(large) >= BULK_LEAST else np.argsort(sent)[-BULK_LEAST:]


def domain_factor(gpu: Accelerator, op: Collective, ranks: int, sent: Values, constants: Values) -> float:
    """Expected over measured time of a collective inside a domain, bandwidth-bound sizes.

    Expected is the catalogue's curve; measured is the fitted one, (alpha, B, c).
    """
    large = sent[bulk(sent)]
    size = large / ((ranks - 1) / ranks) / (2 if op == "all_reduce" else 1)
    expected = domain_collective_time(gpu, op, size, ranks)
    return float(np.exp(np.mean(np.log(expected / collective_seconds(constants, large)))))


def measured_rate(sent: Values, constants: Values) -> float:
    """bytes/s that the fitted curve reaches at bandwidth-bound sizes."""
    large = sent[bulk(sent)]
    return float(np.exp(np.mean(np.log(large / collective_seconds(constants, large)))))


def expected_rate(stack: Stack, fabric: Fabric, op: str, nodes: int) -> float:
    """bytes/s a rank sends (V over time) across `nodes` nodes of `fabric.domain` GPUs that take part.

    Rings: `ring_bandwidth`. All-to-all: of V, (n - g)/(n - 1) leaves a node of g through min(e*NIC, cap).
    Point to point: e*NIC, which the pair at a node's edge has for itself.
    """
    ranks, near = nodes * fabric.domain, fabric.domain
    if op == "all_to_all":
        part = stack.expert_parallel
        network = min(part.alltoall_nic * fabric.nic, part.nic_cap) * (ranks - 1) / (ranks - near)
        inside = part.alltoall_nvlink * fabric.nvlink * (ranks - 1) / max(near - 1, np.finfo(float).tiny)
        return min(network, inside)
    if op == "point_to_point":
        return stack.pipeline.nic_efficiency * fabric.nic
    part = stack.data_parallel
    rate = ring_bandwidth(fabric, ranks, 1, part.nvlink_efficiency, part.nic_efficiency)
    return float(rate)


def network_factor(stack: Stack, fabric: Fabric, op: str, nodes: int, rate: float) -> float | None:
    """What the network reaches of what the profile expects, from a rate measured across nodes.

    None for a ring that is near enough to NVLink's rate that NVLink may be what sets it: then the NICs of
    a node together may be far from busy, and nothing is known of one of them.
    """
    expected = expected_rate(stack, fabric, op, nodes)
    if op not in RINGS:
        return rate / expected
    part = stack.data_parallel
    inside = part.nvlink_efficiency * fabric.nvlink
    network = part.nic_efficiency * fabric.nic * fabric.domain
    if network > inside and rate > NETWORK_BINDS * inside:
        return None
    return rate / network
