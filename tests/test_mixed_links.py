"""What crosses between two pools goes over the link between them, however near to each other ranks are counted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from costmodel.cards import load_card
from costmodel.estimate import estimate
from costmodel.mixed import Mixed, Part
from costmodel.mixed_estimate import estimate_mixed
from costmodel.run import Fabric, Run
from costmodel.stack import load_stack
from hardware.catalogue import load_accelerator

LAYERS = [8] * 4


def run(gpu: str = "H800", model: str = "llama-2-7b", **changes: int) -> Run:
    of = load_accelerator(gpu)
    decided = {
        "tp": 1, "cp": 1, "pp": 4, "vpp": 1, "dp": 4, "ep": 1, "etp": 1,
        "micro_batch": 1, "num_microbatches": 8, "zero": 1,
    }  # fmt: skip
    stack = load_stack("megatron-core")
    return Run(
        load_card(model), of, Fabric.of(of), stack, 4096, "bf16", frozenset[str](), **decided | changes
    )


def replicas(link: float, dp: tuple[int, int], gpus: tuple[str, str] = ("H800", "H20"), **of: int) -> Mixed:
    first, second = (Part(run(gpu, dp=n, **of), range(4)) for gpu, n in zip(gpus, dp, strict=True))
    return Mixed((first, second), link)


def exposed(of: Mixed) -> float:
    return estimate_mixed(of, LAYERS).breakdown["data_parallel"]


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
@pytest.mark.parametrize("dp", [(1, 1), (2, 2), (1, 7), (4, 4)])
def test_gradients_of_replicas_on_two_pools_wait_for_the_link(tp: int, dp: tuple[int, int]) -> None:
    """Also where all replicas together would fit in one NVLink domain."""
    fast, slow = (exposed(replicas(link, dp, tp=tp)) for link in (1e10, 1e9))
    assert slow > 5 * fast


def test_gradients_of_nvl72_racks_in_two_pools_wait_for_the_link() -> None:
    fast, slow = (exposed(replicas(link, (8, 8), ("GB200", "GB300"))) for link in (1e10, 1e9))
    assert slow > 5 * fast


def test_as_many_nics_carry_gradients_as_the_pool_with_fewer_of_a_group_in_a_node_has() -> None:
    """Of 8 GPUs a node, each in a group of its own or 8 in one: V/NIC or V/(8*NIC) seconds."""
    alone, eight = (Mixed(replicas(1e9, dp).parts, 1e9) for dp in ((1, 8), (8, 8)))
    traffic = [float(of.rates(0).reduce.kinds.sum()) for of in (alone, eight)]
    shares = [8 / 9, 15 / 16]
    assert traffic[0] / shares[0] == pytest.approx(8 * traffic[1] / shares[1], rel=1e-9)


def test_the_pool_with_smaller_domains_limits_the_nics_of_a_group() -> None:
    mixed = replicas(1e9, (8, 8), ("GB200", "H800"))
    first, second = (float(mixed.rates(side).reduce.kinds.sum()) for side in (0, 1))
    assert first == pytest.approx(second, rel=1e-9)


def test_experts_are_reduced_over_the_link_too() -> None:
    """Each of 8 ranks holds experts of its own, 2 GPUs of the whole run the same ones: q is 1."""
    moe = replicas(1e9, (8, 8), tp=1, ep=8)
    parts = tuple(replace(p, run=replace(p.run, architecture=load_card("mixtral-8x7b"))) for p in moe.parts)
    fast, slow = (exposed(Mixed((parts[0], parts[1]), link)) for link in (1e10, 1e9))
    assert slow > 5 * fast


def test_one_run_is_priced_as_ever() -> None:
    of = run("H800")
    assert estimate(of, LAYERS).step_time == estimate(replace(of, elsewhere=0), LAYERS).step_time
