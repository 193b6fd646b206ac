"""Groups of the data-parallel ranks that share a node's NICs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from time_runs import some_run

from costmodel.run import Run
from costmodel.sharding import nic_share, seconds_per_byte
from costmodel.stack import load_stack

SHARE = 0.5
WIDTHS = np.array([1, 2, 4, 8, 16])


def unevenly(run: Run, share: float = SHARE) -> Run:
    """The run with groups that reach only a share of the NICs together."""
    part = run.stack.data_parallel.model_copy(update={"shared_nics": share})
    return replace(run, stack=run.stack.model_copy(update={"data_parallel": part}))


def test_only_several_groups_of_several_members_in_a_node_lose_bandwidth() -> None:
    run = unevenly(some_run("A100"))
    whole = run.stack.data_parallel.nic_efficiency
    assert nic_share(run, WIDTHS) == pytest.approx(whole * np.array([1, SHARE, SHARE, 1, 1]))


def test_a_group_across_nodes_takes_longer_by_the_share_it_loses() -> None:
    run = some_run("A100")
    even, uneven = (seconds_per_byte(each, 64, WIDTHS) for each in (run, unevenly(run)))
    assert uneven / even == pytest.approx(np.array([1, 1 / SHARE, 1 / SHARE, 1, 1]))


def test_a_group_inside_a_node_has_no_nics_to_share() -> None:
    run = some_run("A100")
    assert seconds_per_byte(unevenly(run), 4, 2) == seconds_per_byte(run, 4, 2)


def test_a_stack_that_was_seen_to_share_evenly_is_left_alone() -> None:
    run = some_run("A100")
    assert nic_share(run, WIDTHS) == run.stack.data_parallel.nic_efficiency
    assert load_stack("megatron-core").data_parallel.shared_nics == 1.0


def test_the_share_is_what_was_fitted_on_one_cluster_and_no_other() -> None:
    assert load_stack("megatron-deepspeed").data_parallel.shared_nics < 1.0
    assert load_stack("megatron-deepspeed-omnipath").data_parallel.shared_nics == 1.0
