"""Storage: what plans need of it, what described systems give, and the section of the problem file."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from costmodel.goodput.checkpoint import checkpoint_bytes
from costmodel.goodput.goodput import goodput, usual_reliability
from costmodel.storage.data import fewest_shards, token_id_bytes
from costmodel.storage.demand import Demand, outrun, servers_needed, storage_demand, within
from costmodel.storage.description import Storage as Described
from costmodel.storage.description import of_servers, usual_storage
from costmodel.storage.logs import usual_log_bytes
from costmodel.storage.retention import Retention
from hardware.site import site_storage
from planner.complaints import invalid_input
from planner.errors import InvalidInput
from planner.storage import Storage
from planner.yaml_file import parse

DAY = 86400.0


def demand(num_gpus: Any = 640, **changes: Any) -> Demand:
    """A 70B run of 60 days on 80 nodes."""
    size = checkpoint_bytes(70e9)
    storage = usual_storage(num_gpus / 8)
    losses = goodput(usual_reliability(), storage, num_gpus=num_gpus, gpus_per_node=8, checkpoint=size)
    args: dict[str, Any] = {
        "tokens": 3e12,
        "vocab": 32000,
        "num_gpus": num_gpus,
        "checkpoint": size,
        "losses": losses,
        "run_seconds": 60 * DAY,
        "batch_tokens": 640 * 4096,
        "step_time": 5.0,
        "retention": Retention(recent=5, every=DAY, milestones=2),
    }
    return storage_demand(**args | changes)


def read(text: str) -> Storage:
    try:
        return Storage.model_validate(parse(text, "storage"))
    except ValidationError as error:
        raise invalid_input(error, "storage") from None


# --- what a plan needs


def test_a_run_keeps_its_data_its_checkpoints_and_its_logs() -> None:
    needs = demand()
    assert needs.data == pytest.approx(3e12 * (4 * 1.5 + 2))
    assert needs.checkpoints == pytest.approx(980e9 * (5 + 60 + 2 + 1))
    assert needs.capacity == pytest.approx(needs.data + needs.checkpoints + needs.logs)


def test_text_is_read_slowly_and_checkpoints_are_what_storage_is_for() -> None:
    needs = demand()
    assert needs.read == pytest.approx(640 * 4096 * 2 / 5)
    assert needs.write > 100 * needs.read


def test_large_vocabularies_need_four_bytes_an_id() -> None:
    assert token_id_bytes(np.array([32000, 65536, 65537, 128256])).tolist() == [2, 2, 4, 4]
    assert demand(vocab=128256).read == 2 * demand().read


def test_slow_storage_is_said_to_be_slow_though_the_interval_gives_way() -> None:
    size, slow = checkpoint_bytes(70e9), Described(write=2e8, read=1e11)
    losses = goodput(usual_reliability(), slow, num_gpus=640, gpus_per_node=8, checkpoint=size)
    needs = demand(losses=losses)
    assert losses.interval + losses.saving.stall == pytest.approx(size / 2e8)
    assert [each.limit for each in outrun(needs, slow)] == ["write"]
    assert needs.write == pytest.approx(size / (losses.wished + losses.saving.stall))


def test_a_restart_in_a_minute_needs_the_checkpoint_in_a_minute() -> None:
    assert demand(load_within=60.0).restart_read == pytest.approx(980e9 / 60)
    assert demand().restart_read == 0


def test_marks_are_kept_for_good_and_recent_ones_are_not() -> None:
    kept = Retention(recent=3, every=10 * DAY).count(np.array([5, 25, 60]) * DAY)
    assert kept.tolist() == [3 + 0 + 1, 3 + 2 + 1, 3 + 6 + 1]
    assert Retention(recent=3).count(60 * DAY) == 4


def test_ten_shards_a_reader() -> None:
    assert fewest_shards(40) == 400


def test_verbose_logs_of_16384_gpus_take_terabytes() -> None:
    plain, verbose = usual_log_bytes(16384, 90), usual_log_bytes(16384, 90, verbose=True)
    assert plain == pytest.approx(16384 * 90 * 2e6 + 254.8e9, rel=1e-3)
    assert verbose > 25e12 > plain


# --- what storage gives


def test_ten_servers_give_what_their_network_carries_less_the_file_systems_share() -> None:
    server = site_storage().servers["nvme-10"]
    storage = of_servers(server, 10, replicas=2, efficiency=0.8)
    assert storage.write == pytest.approx(10 * 40e9 * 0.8 / 2)
    assert storage.read == pytest.approx(10 * 50e9 * 0.8)
    assert storage.capacity == pytest.approx(10 * 154e12 / 2)


def test_published_systems_are_near_the_sum_of_their_servers() -> None:
    """3FS: 180 servers reach 6.6 TiB/s; the catalogue's server of that kind gives it without further loss."""
    facts = site_storage()
    servers = of_servers(facts.servers["nvme-16"], 180, replicas=2, efficiency=1.0)
    assert servers.read == pytest.approx(facts.systems["3fs"].read, rel=0.15)
    assert servers.write == pytest.approx(facts.systems["3fs"].write, rel=0.15)
    assert servers.capacity == pytest.approx(facts.systems["3fs"].capacity, rel=0.15)


def test_usual_storage_grows_with_the_cluster() -> None:
    few, many = usual_storage(np.array([32, 128])).write
    assert few == pytest.approx(20e9, rel=0.02)
    assert many == 4 * few


# --- both


def test_what_a_plan_outruns_is_said_with_the_number() -> None:
    needs = demand(load_within=60.0)
    small = Described(write=5e8, read=1e9, capacity=50e12)
    found = {each.limit: each for each in outrun(needs, small)}
    assert set(found) == {"capacity", "write", "read"}
    assert found["read"].needed == pytest.approx(980e9 / 60)
    assert found["capacity"].described == 50e12
    assert found["capacity"].needed == pytest.approx(float(needs.capacity))
    assert outrun(needs, Described(1e12, 1e12, 1e15)) == []


def test_rows_that_fit_are_those_that_outrun_nothing() -> None:
    gpus = np.array([64, 640, 16384])
    needs = demand(gpus)
    storage = Described(write=1.2e9, read=1e12, capacity=1e15)
    each = [outrun(demand(int(count)), storage) == [] for count in gpus]
    assert within(needs, storage).tolist() == each
    assert True in each
    assert False in each


@given(replicas=st.integers(1, 3), nodes=st.integers(1, 2000), load=st.sampled_from([None, 30.0, 600.0]))
def test_as_many_servers_as_needed_are_not_outrun(replicas: int, nodes: int, load: float | None) -> None:
    server = site_storage().servers["nvme-10"]
    needs = demand(nodes * 8, load_within=load)
    count = int(servers_needed(needs, server, replicas))
    assert outrun(needs, of_servers(server, count, replicas)) == []
    if count > replicas:
        assert outrun(needs, of_servers(server, count - replicas, replicas)) != []


# --- the section


def test_without_keys_it_is_the_usual_storage() -> None:
    assert read("{}").resolved(80) == usual_storage(80)
    assert read("tier: best").resolved(80) == usual_storage(80, "best")


def test_it_is_read_with_its_units() -> None:
    section = read(
        """
        write: 100 GB/s
        read: 1.6 Tbit/s
        capacity: 2 PB
        node_write: 5 GB/s
        keep: {recent: 3, every: 10 days}
        load_within: 2 min
        """
    )
    assert section.resolved(80) == Described(100e9, 200e9, 2e15, 5e9)
    assert section.retention() == Retention(recent=3, every=10 * DAY)
    assert section.load_within == 120


def test_servers_and_systems_are_named() -> None:
    servers = read("servers: {kind: nvme-10, count: 20, replicas: 2}")
    assert servers.resolved(80).write == pytest.approx(20 * 40e9 * 0.75 / 2)
    assert read("system: tectonic").resolved(80).capacity == 240e15


@pytest.mark.parametrize(
    ("text", "path", "said"),
    [
        ("system: tectonik", "system", "tectonic"),
        ("servers: {kind: nvme, count: 3}", "servers.kind", "nvme-10"),
        ("servers: {kind: nvme-10, count: 0}", "servers.count", "1 or more"),
        ("write: 100 GB/s", "read", "together"),
        ("{write: 1 GB/s, read: 1 GB/s, tier: best}", "write", "one of"),
        ("write: 100", "write", "GB/s"),
        ("capacity: 2 petabytes", "capacity", "80 GB"),
        ("tier: beter", "tier", "'better'"),
        ("keep: {recent: -1}", "keep.recent", "whole number"),
        ("kep: 1", "kep", "'keep'"),
    ],
)
def test_mistakes_are_named(text: str, path: str, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read(text)
    assert caught.value.path == path
    assert said in str(caught.value)


def test_it_survives_a_round_trip() -> None:
    section = read(
        "{write: 100 GB/s, read: 200 GB/s, capacity: 2 PiB, keep: {every: 1 days}, load_within: 90 s}"
    )
    written = section.model_dump(mode="json", exclude_unset=True)
    assert Storage.model_validate(written) == section
