"""Collective time: measured curves inside an NVLink domain, NICs across domains."""

from __future__ import annotations

import numpy as np

from costmodel.run import Column, Fabric, Run
from costmodel.stage import Array
from hardware.accelerator import Accelerator, Collective


def wire_bytes(op: Collective, size: Column, ranks: Column) -> Array:
    """Bytes a rank sends: V = S*(n-1)/n of a full buffer S, twice that for all-reduce."""
    share = (ranks - 1) / np.asarray(ranks, dtype=float)
    return (2.0 if op == "all_reduce" else 1.0) * size * share


def domain_collective_time(
    gpu: Accelerator, op: Collective, size: Column, ranks: Column, scale: float = 1.0
) -> Array:
    """Seconds of a collective among `ranks` GPUs of one NVLink domain: alpha + V/B + c*sqrt(V).

    B and c are interpolated in log2(ranks) between the measured group sizes and held beyond them;
    alpha goes on growing with log2(ranks). The GPU's `link.bandwidth_scale` (H800: 400/900) and
    `scale` (links other than the GPU's usual ones) multiply B and the sqrt term's rate.
    """
    alpha, bandwidth, root = domain_curve(gpu, op, ranks)
    speed = gpu.link.bandwidth_scale * scale
    sent = wire_bytes(op, size, ranks)
    return np.where(sent > 0, alpha + sent / (bandwidth * speed) + root * np.sqrt(sent / speed), 0.0)


def domain_curve(gpu: Accelerator, op: Collective, ranks: Column) -> tuple[Array, Array, Array]:
    """alpha, B and c of the curve of `ranks` GPUs, before the GPU's `link.bandwidth_scale`."""
    curves = gpu.curves.collectives[op]
    sizes = sorted(curves)
    at = np.log2(sizes)
    doublings = np.log2(np.maximum(ranks, 1))
    alpha = np.interp(doublings, at, [curves[n].alpha for n in sizes]) * np.maximum(doublings / at[-1], 1.0)
    bandwidth = np.interp(doublings, at, [curves[n].bandwidth for n in sizes])
    root = np.interp(doublings, at, [curves[n].root for n in sizes])
    return alpha, bandwidth, root


def link_scale(run: Run) -> float:
    """The run's NVLink over the GPU's usual one."""
    return run.fabric.nvlink / run.gpu.link.one_way


def usable_domain(run: Run) -> int:
    """The same of a run's fabric."""
    return filled_domain(run.fabric)


def filled_domain(fabric: Fabric) -> int:
    """GPUs of a domain that groups of powers of two can fill: 64 of NVL72's 72."""
    return 1 << (fabric.domain.bit_length() - 1)


def members_per_domain(fabric: Fabric, ranks: Column, stride: Column) -> Array:
    """Members of a group that share a domain, when every `stride`-th rank belongs to it."""
    return np.clip(filled_domain(fabric) / np.asarray(stride, dtype=float), 1.0, ranks)


def group_bandwidth(run: Run, ranks: Column, stride: Column, nvlink: float, nic: Column) -> Array:
    """bytes/s a rank sends in a ring over a group of a run."""
    return ring_bandwidth(run.fabric, ranks, stride, nvlink, nic)


def replica_bandwidth(run: Run, ranks: Column, stride: Column, nvlink: float, nic: Column) -> Array:
    """The same of a group over all replicas, some of which may be in another pool.

    Then the buffer crosses between the pools, and no domain holds more of the group than either pool does:
    min(e_nv*NVLink, e_nic*NIC*min(q, r)), r = ranks*min(elsewhere, dp - elsewhere)/dp.
    """
    if not np.any(run.elsewhere):
        return group_bandwidth(run, ranks, stride, nvlink, nic)
    fewest = ranks * np.minimum(run.elsewhere, run.dp - run.elsewhere) / run.dp
    together = members_per_domain(run.fabric, fewest, stride)
    return np.minimum(nvlink * run.fabric.nvlink, nic * run.fabric.nic * together)


def ring_bandwidth(fabric: Fabric, ranks: Column, stride: Column, nvlink: float, nic: Column) -> Array:
    """bytes/s a rank sends in a ring over a group, NVLink inside a domain, NICs between domains.

    B = e_nv*NVLink if stride*ranks fits the domain, else min(e_nv*NVLink, e_nic*NIC*q): the buffer
    crosses each domain once, and the q members in it each bring a NIC.
    """
    inside = nvlink * fabric.nvlink
    across = np.minimum(inside, nic * fabric.nic * members_per_domain(fabric, ranks, stride))
    return np.where(ranks * stride <= fabric.domain, inside, across)


def tensor_parallel_time(run: Run, op: Collective, size: Column) -> Array:
    """Seconds of one collective over the tp group (stride 1), before overlap.

    Across domains: t = latency*(1 + log2(nodes)) + V/min(NVLink, e_nic*NIC*q), never less than inside one.
    """
    stack = run.stack.tensor_parallel
    inside = domain_collective_time(run.gpu, op, size, run.tp, link_scale(run))
    nodes = np.maximum(run.tp / run.fabric.domain, 1.0)
    rate = group_bandwidth(run, run.tp, 1, 1.0, stack.nic_efficiency)
    across = stack.latency * (1 + np.log2(nodes)) + wire_bytes(op, size, run.tp) / rate
    return stack.slowdown * np.where(
        np.greater(run.tp, run.fabric.domain), np.maximum(across, inside), inside
    )
