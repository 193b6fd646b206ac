"""Goodput: the closed form is the process it claims to be, and published runs come out as published."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.cards import load_card
from costmodel.goodput import interval as intervals
from costmodel.goodput.checkpoint import checkpoint_bytes, saved_parameters, saving
from costmodel.goodput.failures import Failures, failures_of, stop_rate, swap_rate, with_spot
from costmodel.goodput.finish import finish_moments, finish_quantiles
from costmodel.goodput.goodput import Goodput, goodput, no_losses, usual_reliability
from costmodel.goodput.interval import (
    daly_interval,
    expected_seconds,
    first_order_goodput,
    optimal_interval,
    young_interval,
)
from costmodel.goodput.restart import load_seconds
from costmodel.goodput.simulate import Process, simulate
from costmodel.goodput.spares import erlang_b, spares_for, swap_chance, waiting_share
from costmodel.parameters import total_parameters
from costmodel.phases import phased_seconds, steps_of
from costmodel.storage.description import Storage, usual_storage
from hardware.site import site_reliability, site_storage
from planner.estimates import estimated
from planner.fine_tune import FineTune
from planner.phases import Phase
from planner.power import Power
from planner.pricing import Pricing
from planner.reliability import Reliability
from planner.runs import DescribedRun, describe
from planner.storage import Storage as Section
from planner.yaml_file import parse

HOUR, DAY = 3600.0, 86400.0
KNOWN = yaml.safe_load((Path(__file__).parent / "data" / "known_runs.yaml").read_text(encoding="utf-8"))

seconds = st.floats(1.0, 2000.0)
mtbfs = st.floats(3000.0, 1e7)


def usual(num_gpus: Any, checkpoint: Any = 966e9, **changes: Any) -> Goodput:
    reliability = usual_reliability(**changes)
    storage = usual_storage(num_gpus / 8)
    return goodput(reliability, storage, num_gpus=num_gpus, gpus_per_node=8, checkpoint=checkpoint)


# --- failures


@pytest.mark.parametrize("gpus_per_node", [4, 8, 72])
def test_the_default_is_a_stop_every_50000_gpu_hours_whatever_the_node(gpus_per_node: int) -> None:
    failures = failures_of("default", gpus_per_node=gpus_per_node)
    assert 1 / stop_rate(failures, 1, gpus_per_node) == pytest.approx(50_000 * HOUR)


def test_causes_add_up_to_the_stops_of_the_published_run() -> None:
    assert sum(cause.stops for cause in site_reliability().causes.values()) == 419


def test_llama_3_stops_every_three_hours() -> None:
    rate = stop_rate(failures_of("default"), 16384, 8)
    assert 1 / rate / HOUR == pytest.approx(3.1, rel=0.02)


def test_parts_fail_by_themselves_and_rates_add() -> None:
    failures = Failures(gpu=1e-9, node=2e-8, switch=3e-8, software=5e-10, gpus_per_switch=32)
    assert stop_rate(failures, 64, 8) == pytest.approx(64 * 1.5e-9 + 8 * 2e-8 + 2 * 3e-8)
    assert swap_rate(failures, 64, 8) == pytest.approx(64 * 1e-9 + 8 * 2e-8)


def test_three_of_four_stops_take_a_node_out() -> None:
    failures = failures_of("default")
    assert swap_rate(failures, 640, 8) / stop_rate(failures, 640, 8) == pytest.approx(321 / 419)


def test_spot_nodes_that_are_taken_back_are_stops() -> None:
    usual_rate = stop_rate(failures_of("default"), 640, 8)
    spot = stop_rate(with_spot(failures_of("default"), 0.2), 640, 8)
    assert np.exp(-(spot - usual_rate) / 80 * 30 * DAY) == pytest.approx(0.8)


def test_presets_are_in_order() -> None:
    fractions = [float(1 / usual(4096, preset=p).slowdown) for p in ("optimistic", "default", "pessimistic")]
    assert fractions == sorted(fractions, reverse=True)


# --- checkpoints


def test_a_resumable_checkpoint_is_14_bytes_a_parameter_and_holds_all_experts() -> None:
    mixtral = load_card("mixtral-8x7b")
    assert checkpoint_bytes(saved_parameters(mixtral)) == 14 * total_parameters(mixtral)


def test_the_prediction_modules_are_saved_too() -> None:
    card = load_card("deepseek-v3")
    assert 671e9 * 14 < checkpoint_bytes(saved_parameters(card)) < 686e9 * 14


def test_waiting_for_the_write_stalls_for_all_of_it_and_copying_does_not() -> None:
    storage = Storage(write=100e9, read=100e9)
    args: dict[str, Any] = {"num_gpus": 640, "gpus_per_node": 8, "overhead": 2.0, "copy_rate": 20e9}
    sync = saving(1e12, storage, mode="sync", **args)
    beside = saving(1e12, storage, mode="async", **args)
    assert (sync.stall, sync.write) == (12.0, 0.0)
    assert beside.stall == pytest.approx(2 + 1e12 / 640 / 20e9)
    assert beside.write == pytest.approx(10.0)
    assert beside.host_bytes == pytest.approx(1e12 / 80)


def test_fewer_writers_reach_less_of_the_storage() -> None:
    storage = Storage(write=500e9, read=500e9, node_write=4e9)
    args: dict[str, Any] = {"num_gpus": 640, "gpus_per_node": 8, "mode": "sync", "replicas": 40}
    all_, replica, one = (saving(1e12, storage, writers=w, **args).stall for w in ("all", "replica", "one"))  # type: ignore[arg-type]
    assert all_ == pytest.approx(1e12 / 320e9)
    assert replica == pytest.approx(1e12 / 8e9)
    assert one == pytest.approx(1e12 / 4e9)


def test_a_restart_includes_loading() -> None:
    slow, fast = Storage(1e12, 10e9), Storage(1e12, 1e12)
    args: dict[str, Any] = {"num_gpus": 640, "gpus_per_node": 8, "checkpoint": 1e12}
    reliability = usual_reliability()
    difference = goodput(reliability, slow, **args).restart - goodput(reliability, fast, **args).restart
    assert difference == pytest.approx(100 - 1)
    kind = site_reliability().presets["default"]
    fixed = kind.detection + kind.relaunch + kind.warm_up
    assert goodput(reliability, fast, **args).restart == pytest.approx(fixed + 1)


def test_replicas_that_each_read_the_weights_load_longer() -> None:
    storage = Storage(1e12, 1e12)
    assert load_seconds(14e12, storage, num_nodes=8) == 14
    assert load_seconds(14e12, storage, num_nodes=8, weight_bytes=2e12, copies=40) == 14 + 39 * 2


# --- the interval


@given(stall=seconds, mtbf=mtbfs, factor=st.floats(0.2, 5.0))
def test_no_interval_is_better_than_the_optimum(stall: float, mtbf: float, factor: float) -> None:
    best = optimal_interval(stall, mtbf)
    args = (stall, 0.0, 600.0, mtbf)
    assert expected_seconds(best, *args) <= expected_seconds(best * factor, *args) * (1 + 1e-12)


@given(stall=seconds, write=seconds, mtbf=mtbfs, factor=st.floats(0.2, 5.0))
def test_nor_where_a_write_goes_on_beside_training(
    stall: float, write: float, mtbf: float, factor: float
) -> None:
    best = optimal_interval(stall, mtbf, write)
    args = (stall, write, 600.0, mtbf)
    assert expected_seconds(best, *args) <= expected_seconds(best * factor, *args) * (1 + 1e-12)


def test_young_and_daly_come_near_it() -> None:
    stall, mtbf = np.array([1.0, 10.0, 100.0]), 11160.0
    exact = optimal_interval(stall, mtbf)
    assert daly_interval(stall, mtbf) == pytest.approx(exact, rel=1e-4)
    assert young_interval(stall, mtbf)[0] == pytest.approx(exact[0], rel=0.01)
    assert daly_interval(3000.0, 1000.0) == 1000.0


def test_without_a_write_beside_training_the_expected_time_is_dalys() -> None:
    tau, delta, R, M = 500.0, 20.0, 600.0, 11160.0
    daly = M * np.exp(R / M) * (np.exp((tau + delta) / M) - 1) / tau
    assert expected_seconds(tau, delta, 0.0, R, M) == pytest.approx(daly)


def test_the_textbooks_goodput_is_its_first_order() -> None:
    tau, delta, R, M = 400.0, 2.0, 60.0, 1e6
    assert 1 / expected_seconds(tau, delta, 0.0, R, M) == pytest.approx(
        first_order_goodput(tau, delta, R, M), abs=1e-4
    )


@given(stall=st.floats(1, 60), write=st.floats(0, 300), mtbf=mtbfs, step=st.floats(0.5, 30))
def test_whole_steps_cost_next_to_nothing(stall: float, write: float, mtbf: float, step: float) -> None:
    best = optimal_interval(stall, mtbf, write)
    args = (stall, write, 600.0, mtbf)
    count = intervals.whole_steps(best, step, *args)
    around = np.maximum(count + np.arange(-3, 4), 1)
    rounded = expected_seconds(count * step, *args)
    assert rounded <= expected_seconds(around * step, *args).min() * (1 + 1e-12)
    assert expected_seconds(best, *args) <= rounded * (1 + 1e-12)
    if count >= 10 and mtbf >= 500 * step:
        assert rounded <= expected_seconds(best, *args) * (1 + 0.002)


@given(stall=st.floats(1, 60), write=st.floats(0, 300), mtbf=mtbfs, data=st.data())
def test_a_longer_step_is_never_a_shorter_run(
    stall: float, write: float, mtbf: float, data: st.DataObject
) -> None:
    """With the interval in whole steps; a bound on the time of a step thus bounds the days of a run."""
    short = data.draw(st.floats(0.5, 60))
    long = short * data.draw(st.floats(1, 3))
    args = (stall, write, 600.0, mtbf)

    def a_step(time: float) -> float:
        count = intervals.whole_steps(optimal_interval(stall, mtbf, write), time, *args)
        return float(time * expected_seconds(count * time, *args))

    assert a_step(short) <= a_step(long) * (1 + 1e-12)


# --- spares


def test_erlangs_formula_is_the_truncated_poisson_law() -> None:
    from math import factorial

    weights = np.array([2.5**k / factorial(k) for k in range(7)])
    assert erlang_b(6, 2.5) == pytest.approx(weights[6] / weights.sum())
    assert erlang_b(0, 2.5) == 1


@given(offered=st.floats(0.001, 60), probability=st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_spares_are_the_fewest_that_suffice(offered: float, probability: float) -> None:
    spares = int(spares_for(offered, probability))
    assert swap_chance(spares, offered) >= probability - 1e-12
    if spares:
        assert swap_chance(spares - 1, offered) < probability


def test_a_run_that_never_stops_failing_needs_no_more_than_the_most_spares() -> None:
    assert spares_for(np.array([1e6, 0.5]), 0.99).tolist() == [4096, spares_for(0.5, 0.99)]


def test_without_spares_every_failed_node_is_waited_for() -> None:
    assert waiting_share(0, 0.25) == pytest.approx(0.25 / 1.25)
    lost = usual(640, repair=3 * DAY, spares=0)
    assert lost.shares["waiting"] > 0.3
    assert usual(640, repair=3 * DAY, spares=8).shares["waiting"] < 1e-4


def test_spares_are_columns_of_the_plans_they_belong_to() -> None:
    found = usual(np.array([64, 640, 16384]), repair=3 * DAY).spare_nodes
    assert (np.diff(found) > 0).all()
    each = [int(usual(n, repair=3 * DAY).spare_nodes) for n in (64, 640, 16384)]
    assert found.tolist() == each


# --- the whole


@given(
    gpus=st.integers(1, 3000),
    more=st.integers(0, 3000),
    stall=st.floats(1, 120),
    write=st.floats(0, 120),
    restart=st.floats(10, 2000),
)
def test_more_gpus_never_keep_more_of_their_time(
    gpus: int, more: int, stall: float, write: float, restart: float
) -> None:
    """At the same cost of a checkpoint and a restart."""
    mtbf = 50_000 * HOUR / np.array([gpus, gpus + more])
    best = optimal_interval(stall, mtbf, write)
    few, many = expected_seconds(best, stall, write, restart, mtbf)
    assert few <= many * (1 + 1e-12)


@settings(max_examples=50)
@given(
    nodes=st.integers(1, 2000),
    size=st.floats(1e9, 3e13),
    better=st.sampled_from(["storage", "hours", "recovery", "model", "spares"]),
)
def test_what_is_better_never_makes_a_run_longer(nodes: int, size: float, better: str) -> None:
    storage = Storage(write=50e9, read=50e9, node_write=4e9)
    usual_ = usual_reliability(repair=DAY, spares=2)
    improved, room, smaller = usual_, storage, size
    if better == "storage":
        room = Storage(write=100e9, read=100e9, node_write=8e9)
    elif better == "hours":
        improved = usual_reliability(repair=DAY, spares=2, failures=failures_of("default", 100_000))
    elif better == "recovery":
        improved = usual_reliability(repair=DAY, spares=2, detection=10.0, relaunch=100.0)
    elif better == "model":
        smaller = size / 2
    else:
        improved = usual_reliability(repair=DAY, spares=3)
    args: dict[str, Any] = {"num_gpus": nodes * 8, "gpus_per_node": 8}
    before = goodput(usual_, storage, checkpoint=size, **args).slowdown
    after = goodput(improved, room, checkpoint=smaller, **args).slowdown
    assert after <= before * (1 + 1e-12)
    assert before >= 1


@given(
    nodes=st.lists(st.integers(1, 5000), min_size=1, max_size=6),
    size=st.floats(1e9, 3e13),
    mode=st.sampled_from(["sync", "async"]),
    repair=st.sampled_from([0.0, DAY]),
    fixed=st.sampled_from([None, 60.0, 1800.0]),
)
def test_shares_sum_to_the_whole_and_columns_equal_scalars(
    nodes: list[int], size: float, mode: str, repair: float, fixed: float | None
) -> None:
    gpus = 8 * np.array(nodes)
    changes: dict[str, Any] = {"mode": mode, "repair": repair, "interval": fixed}
    found = usual(gpus, size, **changes)
    assert sum(found.shares.values()) + 1 / found.slowdown == pytest.approx(np.ones(len(nodes)))
    assert all((share > -1e-9).all() for share in found.shares.values())
    for index, count in enumerate(gpus):
        alone = usual(int(count), size, **changes)
        assert found.slowdown[index] == pytest.approx(float(alone.slowdown))
        assert found.interval[index] == pytest.approx(float(alone.interval))


def test_evaluations_and_the_start_are_wall_clock_time_too() -> None:
    plain = usual(640)
    tested = usual(640, evaluation=100.0, evaluation_steps=1000)
    difference = tested.wall_seconds(50_000, 10.0) - plain.wall_seconds(50_000, 10.0)
    assert difference == pytest.approx(50 * 100 * float(plain.slowdown))
    assert plain.wall_seconds(0, 10.0) == plain.startup
    assert 0 < plain.startup < plain.restart
    assert tested.fraction(50_000, 10.0) < plain.fraction(50_000, 10.0) < 1


def test_an_interval_shorter_than_the_write_waits_for_it() -> None:
    storage = Storage(write=10e9, read=100e9)
    args: dict[str, Any] = {"num_gpus": 640, "gpus_per_node": 8, "checkpoint": 1e12}
    hurried = goodput(usual_reliability(interval=30.0), storage, **args)
    assert hurried.shares["checkpoint"] > 0.6
    assert goodput(usual_reliability(), storage, **args).interval > 90


def test_a_million_candidates_are_priced_at_once() -> None:
    gpus = np.random.default_rng(0).integers(1, 2048, 200_000) * 8
    found = usual(gpus, np.full(gpus.shape, 1e12))
    assert found.slowdown.shape == gpus.shape
    assert np.isfinite(found.slowdown).all()


# --- the process, event by event

GRID = [
    # mtbf, stall, write, restart, interval (None: the best), spares (None: not one's own)
    (11_000, 3, 5, 560, None, None),
    (11_000, 30, 0, 560, None, None),
    (11_000, 3, 200, 560, None, 3),
    (90_000, 5, 60, 600, None, 0),
    (90_000, 20, 0, 1800, 7200, 2),
    (3_000, 20, 100, 900, None, None),
    (3_000, 20, 100, 900, None, 4),
    (600, 3, 30, 300, None, None),
    (1e6, 10, 100, 600, None, 1),
]


def process_of(
    mtbf: float, stall: float, write: float, restart: float, interval: Any, spares: Any
) -> Process:
    tau = float(optimal_interval(stall, mtbf, write)) if interval is None else interval
    own = {} if spares is None else {"swap_share": 0.77, "repair": 1.5 * mtbf, "spares": spares}
    return Process(mtbf, tau, stall, write, restart, **own)


@pytest.mark.parametrize("row", GRID)
def test_the_closed_form_agrees_with_the_simulation_within_a_percent(row: tuple[Any, ...]) -> None:
    process = process_of(*row)
    work = 250 * process.mtbf
    lengths = simulate(process, work, runs=1500, seed=7)
    mean = work * float(
        expected_seconds(process.interval, process.stall, process.write, process.restart, process.mtbf)
    )
    if process.repair:
        in_repair = process.swap_share * process.repair / process.mtbf
        mean /= 1 - float(waiting_share(process.spares, in_repair))
    assert lengths.mean() == pytest.approx(mean, rel=0.01)
    assert finish_moments(process, work)[0] == pytest.approx(lengths.mean(), rel=0.005)


@pytest.mark.parametrize("row", [row for row in GRID if row[0] >= 11_000])
def test_the_finish_date_is_distributed_as_simulated(row: tuple[Any, ...]) -> None:
    process = process_of(*row)
    work = 60 * process.mtbf
    lengths = simulate(process, work, runs=4000, seed=3)
    for share, length in zip((0.5, 0.8, 0.95), finish_quantiles(process, work), strict=True):
        assert float(np.quantile(lengths, share)) == pytest.approx(length, rel=0.02)
    assert finish_moments(process, work)[1] == pytest.approx(lengths.std(), rel=0.12)


def test_the_simulation_can_be_repeated() -> None:
    process = process_of(*GRID[2])
    once, again, other = (simulate(process, 1e6, 50, seed) for seed in (1, 1, 2))
    assert once.tolist() == again.tolist() != other.tolist()


def test_a_run_without_a_failure_takes_its_work_and_its_checkpoints() -> None:
    never = Process(mtbf=1e15, interval=100.0, stall=2.0, write=50.0, restart=600.0)
    assert simulate(never, 1000.0, 3).tolist() == pytest.approx([1000 + 9 * 2.0] * 3)


def test_nothing_is_lost_where_the_time_is_the_whole_runs() -> None:
    found = no_losses(np.array([8, 640]))
    assert found.wall_seconds(100, 3.0).tolist() == [300.0, 300.0]
    assert found.fraction(100, 3.0).tolist() == [1.0, 1.0]
    assert found.spare_nodes.tolist() == [0, 0]


# --- phases


def test_phases_add_up() -> None:
    ramp, main = steps_of(469e9, 3072, 4096), steps_of(14.331e12, 15360, 4096)
    assert phased_seconds([ramp, main], [4.5, 19.9]) == pytest.approx(ramp * 4.5 + main * 19.9)


# --- runs that were published


def described(name: str) -> DescribedRun:
    found = describe(KNOWN[name]["run"])
    assert isinstance(found, DescribedRun), found
    return found


def losses_of(name: str, **changes: Any) -> Goodput:
    system = site_storage().systems[KNOWN[name]["storage"]]
    run = described(name).run
    return goodput(
        usual_reliability(**changes),
        Storage(system.write, system.read, system.capacity),
        num_gpus=run.num_gpus,
        gpus_per_node=8,
        checkpoint=checkpoint_bytes(saved_parameters(run.architecture)),
        replicas=run.dp,
    )


def test_llama_3_trains_for_more_than_nine_tenths_of_the_time() -> None:
    """Their rate of stops and storage; recovery of the default preset; the step is predicted."""
    known = KNOWN["llama-3-405b"]
    hours = known["run"]["num_gpus"] * known["days"] * 24 / known["stops"]
    losses = losses_of("llama-3-405b", failures=failures_of("default", hours))
    run = described("llama-3-405b")
    step = estimated(run).step_time
    steps = known["tokens"] / float(run.run.tokens_per_step)
    assert known["effective"] < losses.fraction(steps, step) < 0.96
    assert losses.mtbf / HOUR == pytest.approx(3.09, abs=0.01)
    assert 20 < losses.interval_steps(step) < 100


def test_deepseek_v3_takes_its_gpu_hours_within_a_tenth() -> None:
    """Step time, checkpoints and storage are predicted; failures and recovery are the default preset's."""
    known = KNOWN["deepseek-v3"]
    run = described("deepseek-v3")
    step = estimated(run).step_time
    steps = known["tokens"] / float(run.run.tokens_per_step)
    ideal = steps * step * 2048 / HOUR
    real = float(losses_of("deepseek-v3").wall_seconds(steps, step)) * 2048 / HOUR
    assert ideal == pytest.approx(known["gpu_hours"], rel=0.1)
    assert real == pytest.approx(known["gpu_hours"], rel=0.1)
    assert 0.97 < ideal / real < 0.995


def test_a_site_that_recovers_fast_keeps_97_percent_at_9600_gpus() -> None:
    """ByteRobust (arXiv:2509.16293) reports 97 % on 9,600 GPUs over three months."""
    size = checkpoint_bytes(405e9)
    assert 1 / usual(9600, size, preset="optimistic").slowdown == pytest.approx(0.97, abs=0.015)


# --- the page


PAGE = (Path(__file__).parent.parent / "docs" / "goodput.md").read_text(encoding="utf-8")


def test_the_pages_example_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    exec(compile(example, "docs/goodput.md", "exec"), {})


def test_the_pages_sections_are_read() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)
    written = parse(text, "docs/goodput.md")
    assert Reliability.model_validate(written["reliability"]).evaluation is not None
    assert Section.model_validate(written["storage"]).servers is not None
    assert Power.model_validate(written["power"]).carbon == 56
    kinds = {name: Pricing.model_validate(each).kind for name, each in written["pricing"].items()}
    assert kinds == {"H800": "reserved", "H20": "owned"}
    assert [Phase.model_validate(each).name for each in written["phases"]] == ["ramp", "main"]
    assert FineTune.model_validate(written["fine_tune"]).gpus == 4
    assert set(written) == {"reliability", "storage", "pricing", "power", "fine_tune", "phases"}


def test_the_pages_table_is_what_the_model_says() -> None:
    rows = re.findall(
        r"^\| (\d+) \| ([\d.]+) h \| ([\d.]+) % \| (\d+) min \| (\d+) \|$", PAGE, flags=re.MULTILINE
    )
    assert len(rows) == 4
    for gpus, hours, percent, minutes, spares in rows:
        rented = usual(int(gpus), checkpoint_bytes(total_parameters(load_card("llama-2-70b"))))
        own = usual(int(gpus), 966e9, repair=72 * HOUR)
        assert f"{float(rented.mtbf) / HOUR:.3g}" == f"{float(hours):.3g}"
        assert f"{100 / float(rented.slowdown):.1f}" == percent
        assert round(float(rented.interval) / 60) == int(minutes)
        assert int(own.spare_nodes) == int(spares)
