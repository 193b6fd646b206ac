"""A required HFU, which a plan may keep to by recomputing more than it has to: against brute force."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from oracle import Answer, Layout, Oracle, assignments, modes_of, small_problem, with_limits, within
from random_problems import leading, overlapping, problem
from searched import SAME, num_modes, seconds_and_dollars, usual_families, value
from small_job import job
from test_oracle import disagreements, room_rounded
from test_requirements import any_batch, failing, kept

from costmodel.flops import model_flops_per_token, recomputed_flops_per_token
from planner.instance import Instance
from planner.requirements import Requirement
from planner.search import Effort, Table, best, goal_of
from planner.search.front import frontier, undominated
from planner.search.ledger import Ledger
from planner.search.reuse import Evaluation
from planner.search.rows import plan_hfu
from planner.solve import solve
from planner.validate import violations

DOUBT = 2e-4
"""Share of a step that is more than what rounding in the stage model leaves in doubt."""


def reached(oracle: Oracle) -> dict[Layout, np.ndarray]:
    """HFU of each stage assignment of each layout."""
    found, instance = {}, oracle.instance
    for layout, of in zip(oracle.layouts, oracle.priced, strict=True):
        recompute, layers = modes_of(instance, layout), instance.architecture.layers
        each = assignments(layers, layout.pp, layout.vpp, recompute, not instance.per_stage_recompute)
        found[layout] = hfu_of(instance, layout, of.step, *each)
    return found


def hfu_of(
    instance: Instance, layout: Layout, step: np.ndarray, held: np.ndarray, again: np.ndarray
) -> np.ndarray:
    """(assignments,) with the first layers of each virtual stage recomputed, stage after stage."""
    model, pool = instance.architecture, instance.pools[layout.pool]
    pattern, start, whole = np.array(model.pattern()), np.cumsum(held, axis=1) - held, {}
    for kind in model.kinds:
        before = np.concatenate([[0], np.cumsum(pattern == kind)])
        whole[kind] = (before[start + again] - before[start]).sum(axis=1)
    share = instance.stack.recompute.per_op_share
    flops = model_flops_per_token(model, instance.seq_len) + recomputed_flops_per_token(
        model, instance.seq_len, layout.modules, whole, per_op_share=share
    )
    peak = pool.gpu.peak_flops["bf16"] * layout.num_gpus
    return np.asarray(flops * layout.batch * instance.seq_len / step / peak, dtype=float)


def keeping(oracle: Oracle, least: float) -> Callable[[Layout, np.ndarray, np.ndarray], np.ndarray]:
    """Which assignments of a layout have such an HFU."""
    known = reached(oracle)
    return lambda layout, held, again: known[layout] >= least


def drawn(
    seed: int, most: int, make: Callable[[Random], Instance]
) -> tuple[Oracle, Instance, Requirement, list[Requirement]]:
    """A random problem with limits and a required HFU that some plan has, or few; now and then a short step too."""
    random = Random(seed)
    oracle = small_problem(random, most, make)
    instance, known = with_limits(random, oracle), reached(oracle)
    answers = oracle.answers(instance) or oracle.answers(oracle.instance)
    shares = np.concatenate([known[of.layout] for of in answers])
    of = random.choice(answers)
    least = random.choice(
        (float(np.quantile(shares[shares > 0], 0.9)), float(known[of.layout].max()) * 0.999)
    )
    hfu = Requirement("hfu", ">=", (least * 0.99999,))
    more = [Requirement("step_time_s", "<=", (of.step * 1.1,))] if random.random() < 0.3 else []
    return oracle, requiring_hfu(instance, [hfu, *more]), hfu, more


def requiring_hfu(instance: Instance, required: list[Requirement]) -> Instance:
    return replace(instance, limits=replace(instance.limits, steps=tuple(required)))


def answered(
    oracle: Oracle, instance: Instance, hfu: Requirement, more: list[Requirement]
) -> tuple[list[Answer], list[Answer]]:
    """What brute force answers, and what it does where rounding is in nobody's favour."""
    found = []
    for of, least in ((instance, hfu.values[0]), (room_rounded(instance), hfu.values[0] * (1 + DOUBT))):
        found.append(within(instance, kept(instance, oracle.answers(of, keeping(oracle, least)), more)))
    return found[0], found[1]


def compare(seed: int, most: int = 500, make: Callable[[Random], Instance] = problem) -> list[str]:
    oracle, instance, hfu, more = drawn(seed, most, make)
    table = Table.of(instance, goal_of(instance), usual_families(instance))
    plan = best(table)
    answers, safe = answered(oracle, instance, hfu, more)
    wrong = disagreements(instance, answers, safe, plan)
    ledger = Ledger.of(table, usual_families(instance))
    counted = (*ledger.rejected.values(), ledger.screened, ledger.bounded, ledger.solved)
    every = sum(num_modes(instance, at) for at in oracle.layouts)
    if min(counted) < 0 or not sum(counted) == ledger.valid == every:
        wrong.append(f"{ledger}")
    there = {of.layout for of in oracle.answers(instance, keeping(oracle, hfu.values[0] * (1 + DOUBT)))}
    broken = sum(num_modes(instance, at) for at in oracle.layouts if at not in there)
    if ledger.rejected.get(hfu.text, 0) > broken:
        wrong.append(f"{ledger.rejected[hfu.text]} rejected by {hfu.text}, {broken} break it")
    wrong += [f"{ledger.feasible} not ruled out"] if plan is None and ledger.feasible else []
    return [f"seed {seed}, {hfu.text}: {line}" for line in wrong]


@pytest.mark.parametrize("make", [problem, leading, overlapping, any_batch, failing])
def test_the_optimum_with_a_required_hfu_is_that_of_brute_force(make: Callable[[Random], Instance]) -> None:
    wrong = [line for seed in range(14) for line in compare(seed, 400, make)]
    assert not wrong, "\n".join(wrong)


def test_a_required_hfu_makes_plans_recompute_more_than_they_have_to() -> None:
    """Of the same problems, where the best plan without it breaks it: else brute force says nothing of the stages."""
    more = 0
    for seed in range(30):
        _, instance, hfu, _ = drawn(seed, 400, problem)
        plans = [
            best(Table.of(of, goal_of(of), usual_families(of))) for of in (instance, without(instance, hfu))
        ]
        if plans[0] is None or plans[1] is None or plan_hfu(instance, plans[1]) >= hfu.values[0]:
            continue
        assert plan_hfu(instance, plans[0]) >= hfu.values[0]
        more += sum(plans[0].stages.recomputed) > sum(plans[1].stages.recomputed)
    assert more > 2


def without(instance: Instance, of: Requirement) -> Instance:
    return requiring_hfu(instance, [each for each in instance.limits.steps if each != of])


@pytest.mark.parametrize("make", [problem, any_batch])
def test_what_ifs_that_share_an_evaluation_have_the_hfu(make: Callable[[Random], Instance]) -> None:
    for seed in range(8):
        _, instance, hfu, _ = drawn(seed, 400, make)
        families = usual_families(instance)
        shared = Evaluation.of(instance, families)
        for what_if in (instance, replace(instance, tokens=2 * instance.tokens)):
            assert shared.holds(what_if)
            plan, _ = shared.answer(what_if, Effort())
            alone = best(Table.of(what_if, goal_of(what_if), families))
            assert (plan is None) == (alone is None)
            if plan is not None and alone is not None:
                assert value(what_if, plan) == pytest.approx(value(what_if, alone), rel=SAME)
        assert not shared.holds(without(instance, hfu))


@pytest.mark.parametrize("make", [problem, any_batch])
def test_the_frontier_with_a_required_hfu_is_that_of_brute_force(make: Callable[[Random], Instance]) -> None:
    for seed in range(50, 60):
        oracle, instance, hfu, more = drawn(seed, 400, make)
        answers, safe = answered(oracle, instance, hfu, more)
        found = [seconds_and_dollars(instance, plan) for plan in frontier(instance)[0]]
        # What rounding leaves out aside: none is better than what there is, and none is missing.
        for mine in found:
            assert any(is_near(mine, (of.seconds, of.dollars)) for of in answers)
        for point in undominated([(of.seconds, of.dollars) for of in safe]):
            assert any(all(a <= b * (1 + SAME) for a, b in zip(mine, point, strict=True)) for mine in found)


def is_near(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return all(abs(a - b) <= SAME * b for a, b in zip(one, other, strict=True))


def test_a_plan_says_the_hfu_that_is_asked_for() -> None:
    of = job(("limits.require", ["hfu >= 0.47", "recompute == full"]))
    plan = solve(of).plans[0]
    assert plan.estimate.hfu >= 0.47 > plan.estimate.mfu
    assert plan.slack["hfu >= 0.47"].left == pytest.approx(plan.estimate.hfu - 0.47)
    assert violations(of, plan) == []
    (wrong,) = violations(job(("limits.require", ["hfu >= 0.9"])), plan)
    assert wrong == f"hfu >= 0.9: hfu is {plan.estimate.hfu}"


def test_an_agreed_mfu_leaves_the_hfu_to_what_is_recomputed() -> None:
    of = job(
        ("assume_mfu", 0.4),
        ("limits.require", ["hfu >= 0.45"]),
        ("limits.deadline", "300 days"),
        ("limits.budget", None),
    )
    plan = solve(of).plans[0]
    assert plan.estimate.hfu >= 0.45
    assert plan.decisions.recompute != "none"


@pytest.mark.slow
@pytest.mark.parametrize("make", [problem, leading, overlapping, any_batch, failing])
@pytest.mark.parametrize("block", range(3))
def test_the_optimum_with_a_required_hfu_is_that_of_brute_force_on_many_more(
    block: int, make: Callable[[Random], Instance]
) -> None:
    seeds = range(10_000 + block * 40, 10_000 + block * 40 + 40)
    wrong = [line for seed in seeds for line in compare(seed, 1000, make)]
    assert not wrong, "\n".join(wrong)
