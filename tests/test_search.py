"""What the search claims: bounds bound, more never hurts, and what it says of infeasible problems holds."""

from __future__ import annotations

import itertools
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import (
    Layout,
    Oracle,
    all_splits,
    modes,
    objective,
    scalar_rates,
    small_problem,
    with_limits,
    within,
)
from random_problems import with_memory, with_room

from costmodel.architecture import Architecture
from costmodel.pipeline import plain_layers, stage_split
from costmodel.run import Fabric
from costmodel.stack import load_stack
from costmodel.stage import stage_memory, stage_time
from costmodel.step import step_time
from hardware.catalogue import load_accelerator
from planner import economics
from planner.evaluate import group_bounds
from planner.instance import Instance, Limits, Narrowing, Pool
from planner.relax import goal_of
from planner.search import Plan, Table, best, group_memory_bound, memory_bound
from planner.stages import StageProblem

ROUNDING = 1e-6
seeds = st.integers(0, 1 << 20)
some = settings(max_examples=12, deadline=None, derandomize=True)
many = settings(max_examples=25, deadline=None, derandomize=True)


def solved(instance: Instance) -> Plan | None:
    return best(Table.of(instance, instance.limits), goal_of(instance))


def value(instance: Instance, plan: Plan | None) -> float:
    """The objective's first term; inf where there is no plan."""
    if plan is None:
        return np.inf
    seconds = economics.run_seconds(instance, plan.row, np.array([plan.step]))
    dollars = economics.run_dollars(instance, plan.row, seconds)
    return objective(instance, float(seconds[0]), float(dollars[0]))[0]


def limited(seed: int, most: int = 300) -> tuple[Oracle, Instance]:
    random = Random(seed)
    oracle = small_problem(random, most)
    return oracle, with_limits(random, oracle)


# ---------------------------------------------------------------------------------------------------
# Bounds


def written_down(instance: Instance) -> Table:
    """Every candidate of an instance, whatever its limits on days and dollars."""
    table = Table.of(instance, Limits(memory_headroom=instance.limits.memory_headroom))
    table.expand(np.arange(len(table.groups)))
    return table


GROUP = ("pool", "tp", "cp", "pp", "dp", "ep", "etp", "micro_batch", "selective")
ROW = (*GROUP, "vpp", "zero")


def key_of(rows: Any, index: int, names: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(int(getattr(rows, name)[index]) for name in names)


def beaten(
    rows: Any, bound: Any, oracle: Oracle, names: tuple[str, ...], room: dict[int, float]
) -> list[str]:
    """Assignments that take less time a micro-batch than the bound of their row at its largest number."""
    found, wrong = {}, []
    for index in range(len(rows)):
        found.setdefault(key_of(rows, index, names), []).append(index)
    for layout, of in zip(oracle.layouts, oracle.priced, strict=True):
        step = float(np.where(of.memory <= room[layout.pool], of.step, np.inf).min())
        indices = found[tuple(int(getattr(layout, name)) for name in names)]
        index = next(i for i in indices if rows.m_low[i] <= layout.num_microbatches <= rows.m_high[i])
        if bound[index] / rows.m_high[index] > step / layout.num_microbatches * (1 + 1e-9):
            wrong.append(
                f"{layout}: {step} s, but a step at {rows.m_high[index]} takes {bound[index]} s or more"
            )
    return wrong


@many
@given(seeds)
def test_no_assignment_beats_the_bounds_that_ignore_memory(seed: int) -> None:
    oracle = small_problem(Random(seed), 200)
    table, room = written_down(oracle.instance), dict.fromkeys(range(3), np.inf)
    assert not beaten(table.rows, table.estimates.bound, oracle, ROW, room)
    bound = group_bounds(oracle.instance, table.groups)
    assert not beaten(table.groups, bound, oracle, GROUP, room)


@many
@given(seeds, st.sampled_from((0.05, 0.3, 0.7)))
def test_no_assignment_that_fits_beats_the_bounds_that_know_memory(seed: int, share: float) -> None:
    oracle = small_problem(Random(seed), 200)
    low, high = oracle.memory_range()
    instance = with_room(oracle.instance, low + share * (high - low))
    table, goal = written_down(instance), goal_of(instance)
    room = {i: pool.memory_limit(instance.limits.memory_headroom) for i, pool in enumerate(instance.pools)}
    for uniform in {False, not instance.per_stage_recompute}:
        bound = memory_bound(table, goal, np.arange(len(table.rows)), uniform)
        assert not beaten(table.rows, bound, oracle, ROW, room)
    bound = group_memory_bound(table, goal, np.arange(len(table.groups)))
    assert not beaten(table.groups, bound, oracle, GROUP, room)


@many
@given(seeds, st.sampled_from((0.05, 0.3, 0.7)))
def test_no_assignment_that_fits_has_a_quicker_slowest_rank_than_its_bound(seed: int, share: float) -> None:
    random = Random(seed)
    oracle = small_problem(random, 100)
    instance, uniform = oracle.instance, not oracle.instance.per_stage_recompute
    low, high = oracle.memory_range()
    limit = low + share * (high - low)
    for layout in random.sample(oracle.layouts, min(8, len(oracle.layouts))):
        recompute = modes(instance, layout.selective)
        rates = scalar_rates(instance, layout)
        m = layout.num_microbatches
        split = all_splits(instance.architecture, layout.pp, layout.vpp, m, recompute, uniform)
        slowest = np.where(
            stage_memory(rates, split).max(axis=-1) <= limit, stage_time(rates, split).max(axis=-1), np.inf
        ).min()
        bound = StageProblem(
            instance.architecture, rates, layout.pp, layout.vpp, m, limit, recompute, uniform
        ).slowest
        assert bound <= slowest * (1 + ROUNDING), (layout, bound, slowest)


@many
@given(seeds)
def test_the_time_a_token_falls_with_the_number_of_micro_batches(seed: int) -> None:
    random = Random(seed)
    oracle = small_problem(random, 100)
    instance = oracle.instance
    layout = random.choice(oracle.layouts)
    layers = plain_layers(instance.architecture.layers, layout.pp * layout.vpp)
    times = []
    for number in (1, 2, 3, 4, 7, 20):
        m = number * layout.pp if layout.vpp > 1 else number
        split = stage_split(instance.architecture, layout.pp, layout.vpp, m, layers)
        rates = scalar_rates(instance, replace(layout, num_microbatches=m))
        times.append(float(step_time(rates, split, m, layout.pp, layout.vpp).total) / m)
    assert all(b <= a * (1 + 1e-12) for a, b in itertools.pairwise(times)), times


# ---------------------------------------------------------------------------------------------------
# Estimates


def layout_of(rows: Any, index: int) -> Layout:
    values = {name: int(getattr(rows, name)[index]) for name in ROW if name != "selective"}
    return Layout(**values, num_microbatches=int(rows.m_high[index]), selective=bool(rows.selective[index]))


@some
@given(seeds)
def test_a_row_of_many_is_estimated_as_it_is_alone(seed: int) -> None:
    random = Random(seed)
    instance = small_problem(random, 300).instance
    table = written_down(instance)
    for index in random.sample(range(len(table.rows)), min(6, len(table.rows))):
        layout, of = layout_of(table.rows, index), table.estimates
        layers = plain_layers(instance.architecture.layers, layout.pp * layout.vpp)
        rates, m = scalar_rates(instance, layout), layout.num_microbatches
        expected = []
        for again in (None, layers):
            split = stage_split(instance.architecture, layout.pp, layout.vpp, m, layers, again)
            expected.append(float(step_time(rates, split, m, layout.pp, layout.vpp).total))
            expected.append(float(stage_memory(rates, split).max()))
        columns = [of.plain, of.plain_memory]
        columns += [] if layout.selective else [of.recomputed, of.recomputed_memory]
        assert [float(c[index]) for c in columns] == pytest.approx(expected[: len(columns)], rel=1e-9)


@some
@given(seeds)
def test_no_plain_candidate_beats_the_plan(seed: int) -> None:
    oracle, instance = limited(seed)
    mine = value(instance, solved(instance))
    for answer in within(instance, oracle.answers(instance)):
        assert objective(instance, answer.seconds, answer.dollars)[0] >= mine * (1 - ROUNDING), answer


# ---------------------------------------------------------------------------------------------------
# More never hurts


def with_fabric(instance: Instance, name: str, factor: float) -> Instance:
    pools = tuple(
        replace(pool, fabric=replace(pool.fabric, **{name: getattr(pool.fabric, name) * factor}))
        for pool in instance.pools
    )
    return replace(instance, pools=pools)


@some
@given(seeds, st.sampled_from(("nvlink", "nic")), st.sampled_from((1.2, 3.0)))
def test_more_bandwidth_is_never_worse(seed: int, name: str, factor: float) -> None:
    _, instance = limited(seed)
    assert value(instance, solved(with_fabric(instance, name, factor))) <= value(
        instance, solved(instance)
    ) * (1 + ROUNDING)


@some
@given(seeds, st.sampled_from((1.01, 1.2, 3.0)))
def test_more_memory_is_never_worse(seed: int, factor: float) -> None:
    _, instance = limited(seed)
    pools = tuple(
        replace(pool, gpu=with_memory(pool.gpu, pool.gpu.memory.driver * factor)) for pool in instance.pools
    )
    roomy = replace(instance, pools=pools)
    assert value(roomy, solved(roomy)) <= value(instance, solved(instance)) * (1 + ROUNDING)


@some
@given(seeds, st.sampled_from((0.5, 0.9)))
def test_a_lower_price_is_never_worse(seed: int, factor: float) -> None:
    _, instance = limited(seed)
    cheap = replace(
        instance, pools=tuple(replace(pool, price=pool.price * factor) for pool in instance.pools)
    )
    assert value(cheap, solved(cheap)) <= value(instance, solved(instance)) * (1 + ROUNDING)


@some
@given(seeds)
def test_another_pool_is_never_worse(seed: int) -> None:
    _, instance = limited(seed)
    other = replace(
        instance.pools[0], price=instance.pools[0].price * 0.7, min_nodes=1, max_nodes=1, committed=0.0
    )
    more = replace(instance, pools=(*instance.pools, other))
    assert value(more, solved(more)) <= value(instance, solved(instance)) * (1 + ROUNDING)


@some
@given(seeds)
def test_the_same_problem_gets_the_same_plan(seed: int) -> None:
    _, instance = limited(seed)
    first, second = solved(instance), solved(instance)
    assert (first is None) == (second is None)
    if first and second:
        assert (first.key, first.step, first.memory) == (second.key, second.step, second.memory)


# ---------------------------------------------------------------------------------------------------
# Cases that went wrong, or could


def deep(max_batch: int, **allowed: tuple[Any, ...]) -> Instance:
    """Eight wide layers on four stages whose activations are what fills a GPU."""
    gpu = load_accelerator("H800")
    model = Architecture(
        name="deep", layers=8, hidden=8192, ffn=28672, heads=64, kv_heads=8, head_dim=128, vocab=1024
    )
    pool = Pool(with_memory(gpu, 1e15), Fabric.of(gpu), 4, 4, 2.0)
    narrowing = {"pp": (4,), "tp": (8,), "cp": (1,), "micro_batch": (8,), "vpp": (1,), **allowed}
    return Instance(
        model, load_stack("megatron-core"), "bf16", 1e10, 16384, 1, max_batch, (pool,),
        Limits(memory_headroom=0.0), (("time", 1.0),), True, Narrowing(narrowing),
    )  # fmt: skip


def test_fewer_micro_batches_win_where_only_they_leave_room_for_even_stages() -> None:
    """Four in flight fit only if the first stage has one layer of eight; three in flight fit evenly."""
    instance = deep(32, recompute=("none",))
    oracle = Oracle.of(instance, 100, 10_000)
    assert oracle is not None
    low, high = oracle.memory_range()
    fewer = 0
    for share in np.linspace(0.55, 1.01, 24):
        tight = with_room(instance, low + share * (high - low))
        answer = min(oracle.answers(tight), key=lambda of: of.seconds)
        assert value(tight, solved(tight)) == pytest.approx(answer.seconds, rel=ROUNDING), answer
        fewer += answer.layout.num_microbatches == 3
    assert fewer


@pytest.mark.parametrize("stack", ["megatron-core", "zero-bubble", "plain-pytorch", "internevo", "fsdp"])
def test_zero_stages_are_chosen_as_brute_force_does(stack: str) -> None:
    """With one or two micro-batches a step the traffic of ZeRO-3 may show less than that of ZeRO-1."""
    instance = replace(
        deep(16, pp=(1,), tp=(2,), micro_batch=(1,), recompute=("none",)),
        stack=load_stack(stack), architecture=Architecture(
            name="wide", layers=4, hidden=1024, ffn=4096, heads=8, kv_heads=8, head_dim=128, vocab=32_000
        ),
        seq_len=2048, max_batch=32, pools=(replace(deep(1).pools[0], min_nodes=1),),
    )  # fmt: skip
    oracle = Oracle.of(instance, 300, 10_000)
    assert oracle is not None
    answer = min(oracle.answers(instance), key=lambda of: of.seconds)
    # A deadline just met leaves only what the bounds must not exclude.
    tight = replace(instance, limits=replace(instance.limits, deadline=answer.seconds * 1.0001))
    assert value(tight, solved(tight)) == pytest.approx(answer.seconds, rel=ROUNDING), answer
