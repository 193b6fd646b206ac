"""No bound of the search is beaten by brute force: neither of pipelines, nor of groups, nor of rows."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import Layout, Oracle, all_splits, assignments, modes_of, scalar_rates, small_problem
from random_problems import leading, overlapping, problem, rounds, sharing_alone, with_room
from searched import blank, execution, rows_of, values_of, written_down

from costmodel.pipeline import plain_layers, stage_split
from costmodel.stack import load_stack
from costmodel.stage import stage_memory, stage_time
from costmodel.step import step_time
from planner.bound.fit import may_fit
from planner.evaluate import evaluate
from planner.instance import Instance
from planner.search import Table, open_variants
from planner.search.tight import group_memory_bound, row_memory_bound
from planner.stages.cases import cases_of
from planner.stages.problem import StageProblem

ROUNDING = 1e-9
SHARES = (0.05, 0.3, 0.7)
"""Of the way from the leanest assignment to the fastest ones' memory."""
PIPELINE = ("pool", "executed", "tp", "cp", "ep", "etp", "micro_batch", "pp", "zero", "filled")
GROUP = (*PIPELINE, "dp", "zero_scope")
ROW = (*GROUP, "vpp", "variant")
seeds = st.integers(0, 1 << 20)
kinds = st.sampled_from((problem, leading, overlapping, rounds))
shares = st.sampled_from(SHARES)
some = settings(max_examples=12, deadline=None, derandomize=True)
many = settings(max_examples=25, deadline=None, derandomize=True)
Make = Callable[[Random], Instance]


def by_key(rows: Any, names: tuple[str, ...]) -> dict[tuple[int, ...], list[int]]:
    found: dict[tuple[int, ...], list[int]] = {}
    for index, key in enumerate(rows_of(rows, names)):
        found.setdefault(key, []).append(index)
    return found


def quickest(oracle: Oracle, instance: Instance) -> list[tuple[Layout, float]]:
    """Seconds of each candidate's quickest assignment that fits memory, inf if none does."""
    room = [pool.memory_limit(instance.limits.memory_headroom) for pool in instance.pools]
    needed = set(oracle.needed)
    return [
        (layout, float(np.where(of.memory <= room[layout.pool], of.step, np.inf).min()))
        for layout, of in zip(oracle.layouts, oracle.priced, strict=True)
        if layout in needed
    ]


def beaten(rows: Any, bound: Any, oracle: Oracle, instance: Instance, names: tuple[str, ...]) -> list[str]:
    """Assignments that take less time a micro-batch than the bound of their row at its largest number."""
    found, wrong = by_key(rows, names), []
    for layout, step in quickest(oracle, instance):
        if step == np.inf:
            continue
        indices = found.get(values_of(instance, layout, names), [])
        of = [i for i in indices if rows.m_low[i] <= layout.num_microbatches <= rows.m_high[i]]
        if len(of) != 1:
            wrong.append(f"{layout}: {step} s, and {len(of)} rows")
        elif bound[of[0]] / rows.m_high[of[0]] > step / layout.num_microbatches * (1 + ROUNDING):
            wrong.append(f"{layout}: {step} s, but {bound[of[0]]} s or more at {rows.m_high[of[0]]}")
    return wrong


def beaten_pipelines(table: Table, oracle: Oracle, instance: Instance) -> list[str]:
    """Assignments that spend fewer GPU-seconds a token than their pipeline at least."""
    found, wrong = by_key(table.pipelines.rows, PIPELINE), []
    bound = table.gpu_seconds()
    for layout, step in quickest(oracle, instance):
        spent = step * layout.num_gpus / (layout.batch * instance.seq_len)
        (index,) = found[values_of(instance, layout, PIPELINE)]
        if bound[index] > spent * (1 + ROUNDING):
            wrong.append(f"{layout}: {spent} GPU-seconds a token, but {bound[index]} at least")
    return wrong


def all_beaten(oracle: Oracle, instance: Instance, know_memory: bool) -> list[str]:
    """What beats a bound of pipelines, or the loose, tight or uniform one of groups and rows."""
    table = written_down(instance, know_memory)
    groups, rows = table.groups.rows, table.rows.rows
    bounds = {
        "loose groups": (groups, table.groups.bound, GROUP),
        "tight groups": (groups, group_memory_bound(table.book, groups), GROUP),
        "loose rows": (rows, table.rows.bound, ROW),
        "tight rows": (rows, row_memory_bound(table.book, rows, uniform=False), ROW),
    }
    if not instance.per_stage_recompute:
        bounds["uniform rows"] = rows, row_memory_bound(table.book, rows, uniform=True), ROW
    wrong = [f"pipelines: {line}" for line in beaten_pipelines(table, oracle, instance)]
    for name, (of, bound, names) in bounds.items():
        wrong += [f"{name}: {line}" for line in beaten(of, bound, oracle, instance, names)]
    return wrong


def tightened(oracle: Oracle, share: float) -> Instance:
    low, high = oracle.memory_range()
    return with_room(oracle.instance, low + share * (high - low))


@many
@given(seeds, kinds)
def test_no_assignment_beats_the_bounds_that_ignore_memory(seed: int, make: Make) -> None:
    oracle = small_problem(Random(seed), 200, make)
    assert not all_beaten(oracle, oracle.instance, know_memory=False)


@many
@given(seeds, shares, kinds)
def test_no_assignment_that_fits_beats_the_bounds_that_know_memory(
    seed: int, share: float, make: Make
) -> None:
    oracle = small_problem(Random(seed), 200, make)
    assert not all_beaten(oracle, tightened(oracle, share), know_memory=True)


def test_a_single_replica_may_need_less_memory_than_many() -> None:
    for seed in (18, 30, 34, 37, 39):
        oracle = small_problem(Random(seed), 300, sharing_alone)
        for share in SHARES:
            assert not all_beaten(oracle, tightened(oracle, share), know_memory=True), (seed, share)


def test_a_rank_that_holds_a_layer_fewer_is_spared_bytes_before_any_layer_is_recomputed() -> None:
    """7 layers on 2 x 2 chunks, 1, 2 | 2, 2, fit without recompute where 2, 2 | 2, 2 would not."""
    oracle = small_problem(Random(94_003), 500, overlapping)
    for stack in ("megatron-core", "llama-3"):
        instance = replace(oracle.instance, stack=load_stack(stack))
        of = Oracle.of(instance, 500, 10_000)
        assert of is not None
        for share in SHARES:
            assert not all_beaten(of, tightened(of, share), know_memory=True), (stack, share)


@pytest.mark.slow
@pytest.mark.parametrize("make", [problem, leading, overlapping, rounds])
@pytest.mark.parametrize("block", range(10))
def test_no_assignment_of_many_more_beats_a_bound(block: int, make: Make) -> None:
    wrong = []
    for seed in range(30_000 + 20 * block, 30_020 + 20 * block):
        oracle = small_problem(Random(seed), 500, make)
        for share in SHARES:
            lines = all_beaten(oracle, tightened(oracle, share), know_memory=True)
            wrong += [f"seed {seed}, share {share}: {line}" for line in lines]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("make", [problem, leading, overlapping])
def test_what_cannot_fit_at_first_sight_does_not_fit_when_looked_at_closely(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    ruled_out = 0
    for seed in range(40):
        instance = make(Random(seed))
        for size in (2.0**28, 2.0**30, 2.0**32):
            tight = with_room(instance, size)
            first = blank(tight)
            first.list_pipelines(np.arange(len(first.book.keys)))
            second, every = first.again(first.goal), np.arange(len(first.pipelines))
            with monkeypatch.context() as patch:
                asked: list[int] = []

                def count(*given: Any, asked: list[int] = asked) -> Any:
                    fits = may_fit(*given)
                    asked.append(int((~fits).sum()))
                    return fits

                patch.setattr(open_variants, "may_fit", count)
                first.pipelines.fit(first.book, every, first.layouts)
                patch.setattr(
                    open_variants, "may_fit", lambda _, mix, pp, *rest: np.ones(len(pp), dtype=bool)
                )
                second.pipelines.fit(second.book, every, second.layouts)
            ruled_out += sum(asked)
            assert (np.isinf(first.pipelines.slowest) == np.isinf(second.pipelines.slowest)).all(), seed
    assert ruled_out > 100


def quickest_by_case(problem: StageProblem) -> dict[int | None, tuple[float, float]]:
    """Least seconds of the slowest rank and of a step, by brute force, in each case of what is recomputed."""
    of, m = problem, problem.num_microbatches
    split = all_splits(of.architecture, of.pp, of.vpp, m, of.recompute, of.uniform)
    fits = stage_memory(of.rates, split).max(axis=-1) <= of.memory_limit
    slowest = np.where(fits, stage_time(of.rates, split).max(axis=-1), np.inf)
    step = np.where(fits, step_time(of.rates, split, m, of.pp, of.vpp).total, np.inf)
    found: dict[int | None, tuple[float, float]] = {None: (float(slowest.min()), float(step.min()))}
    held, again = assignments(of.architecture.layers, of.pp, of.vpp, of.recompute, of.uniform)
    for each in range(int(held.max()) + 1) if of.uniform else ():
        mine = (again == np.minimum(each, held)).all(axis=1)
        found[each] = float(slowest[mine].min(initial=np.inf)), float(step[mine].min(initial=np.inf))
    return found


@many
@given(seeds, shares, kinds)
def test_no_assignment_that_fits_has_a_quicker_slowest_rank_than_its_bounds(
    seed: int, share: float, make: Make
) -> None:
    random = Random(seed)
    oracle = small_problem(random, 100, make)
    instance = tightened(oracle, share)
    table = written_down(instance, know_memory=True)
    found = by_key(table.pipelines.rows, PIPELINE)
    for layout in random.sample(oracle.layouts, min(8, len(oracle.layouts))):
        limit = instance.pools[layout.pool].memory_limit(instance.limits.memory_headroom)
        stages = StageProblem(
            instance.architecture, scalar_rates(instance, layout), layout.pp, layout.vpp,
            layout.num_microbatches, limit, modes_of(instance, layout), not instance.per_stage_recompute,
        )  # fmt: skip
        quickest = quickest_by_case(stages)
        # A case that is not there fits no memory.
        bounds = {case.each: (case.slowest, case.step) for case in cases_of(stages)}
        asked = [None] if None in bounds else [each for each in quickest if each is not None]
        for each in asked if bounds else quickest:
            for bound, least in zip(bounds.get(each, (np.inf, np.inf)), quickest[each], strict=True):
                assert bound <= least * (1 + ROUNDING), (layout, each, bound, least)
        (index,) = found[values_of(instance, layout, PIPELINE)]
        assert table.pipelines.slowest[index] <= quickest[None][0] * (1 + ROUNDING), layout


@many
@given(seeds, kinds)
def test_the_time_a_token_falls_with_the_number_of_micro_batches(seed: int, make: Make) -> None:
    random = Random(seed)
    oracle = small_problem(random, 100, make)
    instance = oracle.instance
    layout = random.choice(oracle.layouts)
    layers = plain_layers(instance.architecture.layers, layout.pp, layout.vpp)
    times = []
    for number in (1, 2, 3, 4, 7, 20):
        m = number * layout.pp if layout.vpp > 1 else number
        split = stage_split(instance.architecture, layout.pp, layout.vpp, m, layers)
        rates = scalar_rates(instance, replace(layout, num_microbatches=m))
        times.append(float(step_time(rates, split, m, layout.pp, layout.vpp).total) / m)
    assert all(b <= a * (1 + 1e-12) for a, b in itertools.pairwise(times)), times


def layout_of(instance: Instance, rows: Any, index: int) -> Layout:
    names = [name for name in ROW if name not in ("executed", "filled", "variant")]
    values = {name: int(getattr(rows, name)[index]) for name in names}
    how = execution(instance, int(rows.variant[index]))
    return Layout(**values, **how, num_microbatches=int(rows.m_high[index]))


@some
@given(seeds, kinds)
def test_a_row_of_many_is_estimated_as_it_is_alone(seed: int, make: Make) -> None:
    random = Random(seed)
    oracle = small_problem(random, 300, make)
    instance = tightened(oracle, random.choice(SHARES))
    table = written_down(instance)
    index = np.array(random.sample(range(len(table.rows)), min(6, len(table.rows))))
    rows = table.rows.rows.take(index)
    figures = evaluate(table.book, rows)
    columns = (figures.plain, figures.plain_memory, figures.recomputed, figures.recomputed_memory)
    for i in range(len(rows)):
        layout = layout_of(instance, rows, i)
        layers = plain_layers(instance.architecture.layers, layout.pp, layout.vpp)
        rates, m, expected = scalar_rates(instance, layout), layout.num_microbatches, []
        recompute = modes_of(instance, layout)
        for again, possible in ((None, recompute != "all"), (layers, recompute in ("some", "all"))):
            split = stage_split(instance.architecture, layout.pp, layout.vpp, m, layers, again)
            step = float(step_time(rates, split, m, layout.pp, layout.vpp).total)
            both = (step, float(stage_memory(rates, split).max()))
            expected += both if possible else (np.inf, np.inf)
        assert [float(column[i]) for column in columns] == pytest.approx(expected, rel=1e-9)
    table.look_at_plain(index)
    room = np.array([p.memory_limit(instance.limits.memory_headroom) for p in instance.pools])[rows.pool]
    step, again = figures.fitting(room)
    assert (table.rows.plain[index] == step).all()
    assert (table.rows.plain_recomputes[index] == again).all()
