"""Replicas on two pools with interleaved pipelines: what they take, and the best of them, against brute force."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from mixed_oracle import small_mixed_problem, with_mixed_limits
from mixed_problems import mixed_problem, on_a_site
from test_mixed import LAYERS, NO_LIMIT, checked_with_hfu, holds, job, run

from costmodel.estimate import estimate
from costmodel.mixed import Mixed, Part
from costmodel.mixed_estimate import estimate_mixed
from costmodel.pipeline import micro_batches_in_flight
from planner.export import export, job_of
from planner.instance import Instance
from planner.mixed.best import best_of_pairs
from planner.problem import Problem, parse_problem
from planner.report.stages import Ranks
from planner.report.timeline import ends
from planner.requirements import requirement
from planner.solution import Solution
from planner.solve import solve
from planner.validate import violations
from planner.validate_mixed import mixed_of_decisions, pairs_of


def on_both(dp: tuple[int, int], m: tuple[int, int], vpp: int, second: str = "H800") -> Mixed:
    first, other = (
        Part(run(gpu, dp=each, num_microbatches=number, vpp=vpp), range(8))
        for gpu, each, number in zip(("H800", second), dp, m, strict=True)
    )
    return Mixed((first, other), NO_LIMIT)


def test_interleaved_replicas_on_two_pools_of_one_gpu_are_a_plan_on_one_pool() -> None:
    layers = [n // 2 for n in LAYERS] * 2
    alone = estimate(run(vpp=2), layers)
    mixed = estimate_mixed(on_both((3, 5), (32, 32), 2), layers)
    assert mixed.step_time == pytest.approx(alone.step_time, rel=1e-12)
    assert mixed.breakdown == pytest.approx(alone.breakdown, rel=1e-9, abs=1e-12)
    assert [float(of.total) for of in mixed.memory] == pytest.approx(
        [float(alone.memory.total)] * 2, rel=1e-12
    )


def test_the_bubble_of_both_pools_is_halved_by_two_chunks() -> None:
    layers = [n // 2 for n in LAYERS] * 2
    plain = estimate_mixed(on_both((4, 4), (32, 8), 1, "H20"), LAYERS).breakdown
    chunked = estimate_mixed(on_both((4, 4), (32, 8), 2, "H20"), layers).breakdown
    assert chunked["bubble"] == pytest.approx(plain["bubble"] / 2, rel=1e-9)


@pytest.mark.parametrize(("pp", "vpp"), [(2, 2), (4, 2), (5, 3), (8, 4)])
def test_chunks_that_are_alike_in_long_runs_are_alike_in_a_single_round(pp: int, vpp: int) -> None:
    """So that one set of slots does for pools of which one runs pp micro-batches and the other more."""
    long, single = (micro_batches_in_flight(pp, vpp, m) for m in (2 * pp, pp))
    for rank in range(pp):
        pairs = set(zip(long[rank].tolist(), single[rank].tolist(), strict=True))
        assert len(pairs) == len(set(long[rank].tolist()))


# ---------------------------------------------------------------------------------------------------
# Against brute force


def interleaved(random: Random) -> Instance:
    """A random problem of replicas on two pools that have to be interleaved."""
    instance = (mixed_problem if random.random() < 0.7 else on_a_site)(random)
    assert instance.mixing is not None
    required = (*instance.narrowing.required, requirement("vpp >= 2"))
    return replace(
        instance,
        mixing=replace(instance.mixing, forms=("replicas",)),
        narrowing=replace(instance.narrowing, required=required),
    )


def checked(seeds: range) -> list[Instance]:
    found = []
    for seed in seeds:
        random = Random(seed)
        oracle = small_mixed_problem(random, make=interleaved)
        assert all(layout.vpp > 1 for layout in oracle.layouts)
        instance = with_mixed_limits(random, oracle)
        holds(oracle, instance, seed)
        found.append(instance)
    return found


def test_best_interleaved_replicas_and_their_frontier_equal_brute_force() -> None:
    """Dense and MoE, with one number of micro-batches for both pools and with a number each."""
    instances = checked(range(12))
    kinds = {(of.architecture.moe is None, of.framework == "megatron") for of in instances}
    assert {moe for moe, _ in kinds} == {True, False}
    assert {megatron for _, megatron in kinds} == {True, False}


def test_best_interleaved_replicas_with_a_required_hfu_equal_brute_force() -> None:
    assert sum(checked_with_hfu(seed, interleaved) for seed in (6000, 6002, 6008, 6010, 6025)) > 1


@pytest.mark.slow
@pytest.mark.parametrize("block", range(6))
def test_best_interleaved_replicas_equal_brute_force_on_many_more(block: int) -> None:
    checked(range(1000 + 20 * block, 1020 + 20 * block))


# ---------------------------------------------------------------------------------------------------
# What is said of it


def asked(**search: Any) -> Problem:
    data = job(forms="replicas").as_written()
    both = {"pp": 4, "vpp": [2, 4], "tp": 2}
    return parse_problem(data | {"search": data["search"] | both | search})


@pytest.fixture(scope="module")
def answer() -> tuple[Problem, Solution]:
    problem = asked()
    return problem, solve(problem)


def test_interleaved_replicas_pass_the_validator_and_level_chunks_are_asked_for(
    answer: tuple[Problem, Solution],
) -> None:
    problem, solution = answer
    plan = solution.plans[0]
    d = plan.decisions
    assert (d.mixed, d.pp) == ("replicas", 4)
    assert d.vpp > 1
    assert not violations(problem, plan)
    first, *others = d.stages
    moved = (first.chunks[0] + 1, *first.chunks[1:-1], first.chunks[-1] - 1)
    uneven = first.model_copy(update={"chunks": moved})
    worse = plan.model_copy(update={"decisions": d.model_copy(update={"stages": (uneven, *others)})})
    assert any("equally long" in said for said in violations(problem, worse))
    odd = tuple(part.model_copy(update={"num_microbatches": part.num_microbatches + 1}) for part in d.parts)
    worse = plan.model_copy(update={"decisions": d.model_copy(update={"parts": odd})})
    assert any("multiples of pp" in said for said in violations(problem, worse))


def test_chunks_of_replicas_have_a_reason(answer: tuple[Problem, Solution]) -> None:
    _, solution = answer
    plan = solution.plans[0]
    (reason,) = (reason for reason in plan.reasons if reason.decision == "vpp")
    assert reason.chosen == plan.decisions.vpp
    assert reason.alternative != reason.chosen


def test_megatron_is_told_of_the_chunks_where_both_pools_run_as_many_micro_batches() -> None:
    problem = asked(framework="megatron")
    solution = solve(problem)
    assert solution.mixing is not None
    plan = solution.mixing.plan
    assert plan is not None
    assert plan.decisions.vpp > 1
    assert not violations(problem, plan)
    (script,) = export(job_of(solution.model_copy(update={"plans": (plan,)})), "megatron").values()
    assert f"--num-virtual-stages-per-pipeline-rank {plan.decisions.vpp}" in script


def test_passes_of_interleaved_replicas_take_what_the_model_says(answer: tuple[Problem, Solution]) -> None:
    problem, solution = answer
    d = solution.plans[0].decisions
    (pools,) = pairs_of(problem, d)
    ranks = Ranks.of_mixed(mixed_of_decisions(problem, pools, d), d)
    assert ranks.forward.shape == (2 * d.pp, d.vpp)
    assert ends(ranks.timeline()) == pytest.approx(ranks.pipeline_seconds(), rel=0.02)


def test_more_chunks_are_only_chosen_where_they_are_quicker() -> None:
    from planner.resolve import instance_of

    free, plain = (best_of_pairs(instance_of(asked(vpp=vpp))).best for vpp in ([1, 2, 4], 1))
    assert free is not None
    assert plain is not None
    assert plain.vpp == 1
    assert free.seconds < plain.seconds
