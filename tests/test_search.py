"""What the search claims: more never hurts, several questions at once are as good as alone, gaps are honest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from time import monotonic
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import Answer, Oracle, objective, within
from random_problems import leading, overlapping, problem, with_memory, with_room
from searched import (
    SAME,
    Looks,
    blank,
    execution,
    least,
    limited,
    open_all,
    solved,
    usual_families,
    value,
)
from small_job import job

from costmodel.architecture import Architecture
from costmodel.run import Fabric
from costmodel.stack import load_stack
from hardware.catalogue import load_accelerator
from planner.economics import gap
from planner.explain import mode_of, questions
from planner.instance import Instance, Limits, Narrowing, Pool
from planner.relaxed import every_family
from planner.resolve import instance_of
from planner.search import Effort, Plan, Table, best, best_each, goal_of
from planner.search.goal import differs, in_families
from planner.space.recompute import recompute_modes
from planner.variants import best_plan

Make = Callable[[Random], Instance]
seeds = st.integers(0, 1 << 20)
kinds = st.sampled_from((problem, leading))
some = settings(max_examples=12, deadline=None, derandomize=True)


@some
@given(seeds)
def test_no_plain_candidate_beats_the_plan(seed: int) -> None:
    oracle, instance = limited(seed)
    mine = value(instance, solved(instance))
    for answer in within(instance, oracle.answers(instance)):
        assert objective(instance, answer.seconds, answer.dollars)[0] >= mine * (1 - SAME), answer


# ---------------------------------------------------------------------------------------------------
# More never hurts


def with_fabric(instance: Instance, name: str, factor: float) -> Instance:
    pools = tuple(
        replace(pool, fabric=replace(pool.fabric, **{name: getattr(pool.fabric, name) * factor}))
        for pool in instance.pools
    )
    return replace(instance, pools=pools)


def no_worse(better: Instance, instance: Instance) -> bool:
    return value(better, solved(better)) <= value(instance, solved(instance)) * (1 + SAME)


@some
@given(seeds, st.sampled_from(("nvlink", "nic")), st.sampled_from((1.2, 3.0)))
def test_more_bandwidth_is_never_worse(seed: int, name: str, factor: float) -> None:
    _, instance = limited(seed)
    assert no_worse(with_fabric(instance, name, factor), instance)


@some
@given(seeds, st.sampled_from((1.01, 1.2, 3.0)))
def test_more_memory_is_never_worse(seed: int, factor: float) -> None:
    _, instance = limited(seed)
    pools = tuple(
        replace(pool, gpu=with_memory(pool.gpu, pool.gpu.memory.driver * factor)) for pool in instance.pools
    )
    assert no_worse(replace(instance, pools=pools), instance)


@some
@given(seeds, st.sampled_from((0.5, 0.9)))
def test_a_lower_price_is_never_worse(seed: int, factor: float) -> None:
    _, instance = limited(seed)
    pools = tuple(replace(pool, price=pool.price * factor) for pool in instance.pools)
    assert no_worse(replace(instance, pools=pools), instance)


@some
@given(seeds)
def test_another_pool_is_never_worse(seed: int) -> None:
    _, instance = limited(seed)
    first = instance.pools[0]
    other = replace(first, price=first.price * 0.7, min_nodes=1, max_nodes=1, committed=0.0)
    assert no_worse(replace(instance, pools=(*instance.pools, other)), instance)


# ---------------------------------------------------------------------------------------------------
# How the search gets there does not matter


def same(first: Plan | None, second: Plan | None) -> bool:
    if first is None or second is None:
        return first is second
    return (first.key, first.step, first.memory) == (second.key, second.step, second.memory)


@some
@given(seeds, kinds)
def test_the_same_problem_gets_the_same_plan(seed: int, make: Make) -> None:
    _, instance = limited(seed, make=make)
    assert same(solved(instance), solved(instance))


@some
@given(seeds, kinds)
def test_opening_layouts_step_by_step_loses_nothing(seed: int, make: Make) -> None:
    _, instance = limited(seed, make=make)
    table = blank(instance)
    open_all(table)
    assert value(instance, best(table)) == pytest.approx(value(instance, solved(instance)), rel=SAME)


def some_masks(random: Random, instance: Instance, oracle: Oracle) -> list[Any]:
    """Questions of all kinds: other values of a decision, a pool, a recompute family, and no mask at all."""
    usual, layout = usual_families(instance), random.choice(oracle.layouts)
    names = random.sample(("tp", "cp", "pp", "vpp", "dp", "ep", "micro_batch", "zero", "num_gpus"), 4)
    masks: list[Any] = [in_families(usual, differs(name, getattr(layout, name))) for name in names]
    masks += [in_families((family,)) for family in every_family(instance)]
    masks += [in_families(usual, lambda rows: rows.pool == layout.pool), in_families(usual)]
    random.shuffle(masks)
    return masks


@pytest.mark.parametrize("seed", range(24))
def test_questions_asked_together_get_the_answers_they_get_alone(seed: int) -> None:
    random = Random(seed)
    oracle, instance = limited(seed, make=leading if seed % 2 else problem)
    masks = some_masks(random, instance, oracle)
    goal, families = goal_of(instance), every_family(instance)
    together = best_each(Table.of(instance, goal, families), masks)
    after_best = Table.of(instance, goal, families)
    best(after_best, in_families(usual_families(instance)))
    reused = best_each(after_best, masks)
    for mask, first, second in zip(masks, together, reused, strict=True):
        alone = value(instance, best(Table.of(instance, goal, families), mask))
        assert value(instance, first) == pytest.approx(alone, rel=SAME)
        assert value(instance, second) == pytest.approx(alone, rel=SAME)


# ---------------------------------------------------------------------------------------------------
# What a decision would cost otherwise


def otherwise(
    oracle: Oracle, instance: Instance, answers: list[Answer], decision: str, plan: Plan
) -> list[Answer]:
    """Brute force of the candidates that decide otherwise."""
    mine = execution(instance, plan.of("variant"))
    if decision == "ep_overlap":
        return [of for of in answers if of.layout.ep_overlap != mine["ep_overlap"]]
    if decision == "recompute_modules":
        needed = set(oracle.needed)
        return [
            of
            for of in answers
            if of.layout in needed and of.layout.modules not in (frozenset(), mine["modules"])
        ]
    if decision != "recompute":
        return [of for of in answers if getattr(of.layout, decision) != plan.of(decision)]
    rest = tuple(sorted(recompute_modes(instance) - {mode_of(plan)}))
    narrowing = Narrowing(instance.narrowing.allowed | {"recompute": rest})
    priced = Oracle.of(replace(oracle.instance, narrowing=narrowing), 1 << 20, 1 << 30)
    assert priced is not None
    return priced.answers(replace(instance, narrowing=narrowing))


@pytest.mark.parametrize("seed", range(18))
def test_each_reason_names_the_best_plan_that_decides_otherwise(seed: int) -> None:
    oracle, instance = limited(100 + seed, make=(leading, problem, overlapping)[seed % 3])
    table = Table.of(instance, goal_of(instance), every_family(instance))
    plan = best(table, in_families(usual_families(instance)))
    answers = oracle.answers(instance)
    if plan is None:
        assert least(instance, answers) == np.inf
        return
    asked = list(questions(instance, plan))
    for question, other in zip(asked, best_each(table, [of.mask for of in asked]), strict=True):
        expected = least(instance, otherwise(oracle, instance, answers, question.decision, plan))
        assert value(instance, other) == pytest.approx(expected, rel=SAME), question.decision
        assert other is None or question.value(other) != question.chosen


# ---------------------------------------------------------------------------------------------------
# Out of time


def honest(instance: Instance, plan: Plan | None, gap: float, optimum: float) -> bool:
    """The optimum is no further from the plan than the gap says, and the plan no better than the optimum."""
    mine = value(instance, plan)
    return plan is None or mine * (1 - gap) <= optimum * (1 + SAME) <= mine * (1 + 3 * SAME)


@pytest.mark.parametrize("block", range(3))
def test_out_of_time_the_gap_is_honest(block: int) -> None:
    for seed in range(block * 8, block * 8 + 8):
        oracle, instance = limited(seed, make=leading if seed % 2 else problem)
        optimum = least(instance, oracle.answers(instance))
        for looks in (0, 4, 7, 9, 12, 16):
            effort = Looks(looks)
            plan = solved(instance, effort)
            assert honest(instance, plan, effort.gap, optimum), (seed, looks)
            assert plan is not None or effort.out_of_time or optimum == np.inf
            assert effort.out_of_time or effort.gap == 0.0


def test_out_of_time_a_plan_may_be_left_with_a_gap() -> None:
    def left_with_a_gap(seed: int, looks: int) -> bool:
        instance, effort = limited(seed, make=leading)[1], Looks(looks)
        return solved(instance, effort) is not None and effort.gap > 0

    assert any(left_with_a_gap(seed, looks) for seed in range(30) for looks in (7, 9, 12, 16))


@some
@given(seeds, st.sampled_from((-1.0, 1e-3, 1e-2)))
def test_the_clock_ends_a_search_with_what_there_is(seed: int, seconds: float) -> None:
    oracle, instance = limited(seed)
    effort = Effort(until=monotonic() + seconds)
    plan = solved(instance, effort)
    optimum = least(instance, oracle.answers(instance))
    assert effort.out_of_time or seconds > 0 or optimum == np.inf
    assert honest(instance, plan, effort.gap, optimum)


# ---------------------------------------------------------------------------------------------------
# Cases that went wrong, or could


@given(st.floats(0, 1e12), st.floats(0, 1e12) | st.just(np.inf))
def test_a_gap_is_a_share_of_the_objective_even_of_nothing(value: float, least: float) -> None:
    share = gap(value, least)
    assert 0 <= share <= 1
    assert value * (1 - share) == pytest.approx(min(value, least), abs=1e-9 * value)


def test_on_a_grid_that_emits_nothing_the_fastest_plan_has_the_least_carbon() -> None:
    clean = ("power", {"carbon": "0 gCO2/kWh"})
    fastest = best_plan(instance_of(job(clean, ("objective", "time"))))
    assert fastest is not None
    for limits in ((), (("limits.carbon", "3 t"),)):
        instance = instance_of(job(clean, ("objective", "carbon"), *limits))
        assert solved(instance) == fastest
        for looks in (2, 7, 9, 12):
            effort = Looks(looks)
            plan = solved(instance, effort)
            assert (effort.gap, plan is None or plan.step >= fastest.step) == (0.0, True)
    assert solved(instance_of(job(clean, ("objective", "carbon"), ("limits.deadline", "1 day")))) is None


def deep(max_batch: int, **allowed: tuple[Any, ...]) -> Instance:
    """Eight wide layers on four stages whose activations are what fills a GPU."""
    gpu = load_accelerator("H800")
    model = Architecture(
        name="deep", layers=8, hidden=8192, ffn=28672, heads=64, kv_heads=8, head_dim=128, vocab=1024
    )
    pool = Pool(with_memory(gpu, 1e15), Fabric.of(gpu), 4, 4, 2.0)
    narrowing = {"pp": (4,), "tp": (8,), "cp": (1,), "micro_batch": (8,), "vpp": (1,), **allowed}
    return Instance(
        model, load_stack("megatron-core"), 1e10, 16384, 1, max_batch, (pool,),
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
        assert value(tight, solved(tight)) == pytest.approx(answer.seconds, rel=SAME), answer
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
    assert value(tight, solved(tight)) == pytest.approx(answer.seconds, rel=SAME), answer
