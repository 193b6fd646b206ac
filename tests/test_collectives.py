"""Claims about collectives and the links they cross."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from time_runs import some_run

from costmodel.collectives import (
    domain_collective_time,
    group_bandwidth,
    tensor_parallel_time,
    wire_bytes,
)
from costmodel.moe import dispatch_time
from costmodel.run import Fabric
from hardware.accelerator import Collective
from hardware.catalogue import load_accelerator

operations = st.sampled_from(["all_gather", "reduce_scatter", "all_reduce", "all_to_all"])
ranks = st.sampled_from([2, 3, 4, 6, 8])


def test_a_ring_sends_all_but_its_own_share() -> None:
    assert wire_bytes("all_gather", 8e9, 8) == 7e9
    assert wire_bytes("all_reduce", 8e9, 8) == 14e9


@given(operations, ranks, st.floats(1e3, 1e10))
def test_collectives_never_beat_the_link(op: Collective, n: int, size: float) -> None:
    gpu = load_accelerator("H100")
    sharp = 1.25  # in-switch reduction sends less than the ring's bytes
    assert domain_collective_time(gpu, op, size, n) >= wire_bytes(op, size, n) / (sharp * gpu.link.one_way)


@given(operations, ranks, st.floats(1e3, 1e10), st.floats(1.0, 4.0))
def test_more_bandwidth_is_never_slower(op: Collective, n: int, size: float, factor: float) -> None:
    gpu = load_accelerator("H800")
    assert domain_collective_time(gpu, op, size, n, factor) <= domain_collective_time(gpu, op, size, n)


@given(operations, ranks, st.floats(1e3, 1e10))
def test_more_bytes_are_never_faster(op: Collective, n: int, size: float) -> None:
    gpu = load_accelerator("GB200")
    assert domain_collective_time(gpu, op, 2 * size, n) >= domain_collective_time(gpu, op, size, n)


def test_h800_pays_more_for_a_large_all_gather_by_the_ratio_of_links() -> None:
    h100, h800 = load_accelerator("H100"), load_accelerator("H800")
    ratio = domain_collective_time(h800, "all_gather", 4e9, 8) / domain_collective_time(
        h100, "all_gather", 4e9, 8
    )
    assert ratio == pytest.approx(1 / h800.link.bandwidth_scale, rel=0.02)


def test_h100_reaches_the_bus_bandwidth_that_is_published_for_eight_gpus() -> None:
    gpu = load_accelerator("H100")
    seconds = domain_collective_time(gpu, "all_reduce", 8e9, 8)
    assert 400e9 < wire_bytes("all_reduce", 8e9, 8) / seconds < 480e9


def test_one_rank_has_nobody_to_talk_to() -> None:
    assert domain_collective_time(load_accelerator("H100"), "all_reduce", 1e9, 1) == 0.0


def test_a_group_inside_the_domain_never_touches_a_nic() -> None:
    run = some_run()
    slow = replace(run, fabric=replace(run.fabric, nic=1.0))
    assert group_bandwidth(slow, 8, 1, 0.75, 0.9) == group_bandwidth(run, 8, 1, 0.75, 0.9)


def test_every_member_of_a_group_in_a_node_brings_its_nic() -> None:
    run = some_run()
    one = group_bandwidth(run, 16, 8, 0.75, 0.9)
    four = group_bandwidth(run, 16, 2, 0.75, 0.9)
    assert one == pytest.approx(0.9 * run.fabric.nic)
    assert four == pytest.approx(4 * one)


def test_nics_together_are_never_faster_than_nvlink() -> None:
    run = some_run("B300")
    assert group_bandwidth(run, 64, 1, 0.75, 0.9) <= 0.75 * run.fabric.nvlink


def test_tp16_leaves_the_node_and_pays_for_it() -> None:
    run = some_run(tp=np.array([8, 16]))
    inside, across = tensor_parallel_time(run, "all_gather", 1e8)
    assert across > inside
    slow = replace(run, fabric=replace(run.fabric, nic=run.fabric.nic / 4))
    assert tensor_parallel_time(slow, "all_gather", 1e8)[1] > 3 * across


def test_tp16_stays_on_nvlink_in_a_rack_of_72() -> None:
    run = some_run("GB200", tp=np.array([8, 16]))
    inside, wider = tensor_parallel_time(run, "all_gather", 1e8)
    assert wider < 1.3 * inside


def test_collective_times_of_a_column_are_those_of_its_rows() -> None:
    gpu, sizes = load_accelerator("H100"), np.array([1e5, 1e7, 1e9])
    column = domain_collective_time(gpu, "reduce_scatter", sizes, np.array([2, 6, 8]))
    rows = [
        domain_collective_time(gpu, "reduce_scatter", float(s), n)
        for s, n in zip(sizes, (2, 6, 8), strict=True)
    ]
    assert column.tolist() == [float(row) for row in rows]


def test_experts_in_one_node_are_cheaper_to_reach_than_across_nodes() -> None:
    run = some_run(model="deepseek-v3", tp=1, dp=64, ep=np.array([1, 8, 64]))
    assert run.architecture.moe
    alone, node, nodes = dispatch_time(run, run.architecture.moe)
    assert alone == 0.0 < node < nodes


def test_a_faster_network_never_slows_dispatch() -> None:
    run = some_run(model="deepseek-v3", tp=1, dp=64, ep=64)
    fabric = Fabric(8, 8, run.fabric.nvlink, run.fabric.nic / 2)
    assert run.architecture.moe
    slow = dispatch_time(replace(run, fabric=fabric), run.architecture.moe)
    assert slow > dispatch_time(run, run.architecture.moe)
