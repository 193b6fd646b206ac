"""Precision as a decision: FP8 where the problem lists it and the GPU has it, chosen as brute force does."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
from mixed_oracle import small_mixed_problem, with_mixed_limits
from mixed_problems import mixed_problem
from oracle import small_problem, with_limits
from random_problems import precise
from test_mixed import holds
from test_oracle import compare
from test_reuse import differences, families, fresh, what_if

from planner import answer, explain
from planner.break_even import break_evens
from planner.errors import InvalidInput
from planner.instance import Instance
from planner.keybook import KeyBook
from planner.listing import best_records
from planner.marginal import moves
from planner.one_pool import ONE_POOL
from planner.problem import Problem, parse_problem
from planner.relaxed import every_family
from planner.resolve import instance_of
from planner.search import Plan, Table, best, goal_of
from planner.search.front import frontier
from planner.search.goal import in_families
from planner.search.physics import counts_of, physics_of, widest, with_counts
from planner.search.reuse import Evaluation
from planner.solve import solve
from planner.space.recompute import recompute_families
from planner.validate import violations
from planner.variants import best_plan, fixed, objective_value
from planner.what_if import hardware_changes

JOB: dict[str, Any] = {
    "model": "llama-2-7b",
    "training": {
        "tokens": "20B",
        "seq_len": 4096,
        "global_batch": "128 sequences",
        "precision": ["bf16", "fp8"],
    },
    "hardware": [
        {"gpu": "A100-80GB", "nodes": {"max": 2}, "price": "1.10 USD/gpu-hour"},
        {"gpu": "H100", "nodes": {"max": 2}, "price": "2.20 USD/gpu-hour"},
    ],
}


def job(precision: Any = ("bf16", "fp8"), **more: Any) -> Problem:
    training = JOB["training"] | {"precision": list(precision) if isinstance(precision, tuple) else precision}
    return parse_problem(JOB | {"training": training} | more)


@cache
def searched() -> tuple[Problem, Instance, Table, Plan]:
    problem = job()
    instance = instance_of(problem)
    table = Table.of(instance, goal_of(instance), every_family(instance))
    plan = best(table, in_families(recompute_families(instance)))
    assert plan is not None
    return problem, instance, table, plan


# ---------------------------------------------------------------------------------------------------
# The problem file


def test_one_precision_or_a_list_of_one_is_the_same_problem() -> None:
    plain = JOB["training"].copy()
    plain.pop("precision")
    default = parse_problem(JOB | {"training": plain})
    assert default.problem_hash == job("bf16").problem_hash == job(("bf16",)).problem_hash
    assert job(("fp8", "bf16")).problem_hash == job().problem_hash != job("fp8").problem_hash
    assert job("fp8").as_written()["training"]["precision"] == "fp8"
    assert job().as_written()["training"]["precision"] == ["bf16", "fp8"]
    assert parse_problem(job().as_written()).problem_hash == job().problem_hash


def test_a_single_precision_is_hashed_as_it_was_before_there_were_lists() -> None:
    dumped = job("bf16").model_dump(mode="json")
    assert json.dumps(dumped["training"]["precision"]) == '"bf16"'


@pytest.mark.parametrize("wrong", [[], None, "fp16", ["bf16", "fp4"]])
def test_other_precisions_are_refused(wrong: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        job(wrong)
    assert "training.precision" in str(refused.value)


def test_only_gpus_that_have_a_precision_get_it() -> None:
    assert [(p.gpu.name, p.precision, p.entry) for p in instance_of(job()).pools] == [
        ("A100-80", "bf16", 0),
        ("H100", "bf16", 1),
        ("H100", "fp8", 1),
    ]
    # A GPU without the only precision is left out, where it used to be priced and to fail.
    instance = instance_of(job("fp8"))
    assert [(p.gpu.name, p.precision, p.entry) for p in instance.pools] == [("H100", "fp8", 1)]
    plan = best_plan(instance)
    assert plan is not None
    assert answer.decisions(instance, plan).gpu == "H100"
    assert "A100-80 has no FP8: no plan is on it." in job("fp8").assumptions
    assert "A100-80 has no FP8: plans on it train in BF16." in job().assumptions
    assert not [each for each in job("bf16").assumptions if "has no" in each]
    with pytest.raises(InvalidInput):
        job("fp8", hardware=JOB["hardware"][:1])
    assert instance_of(job(hardware=JOB["hardware"][:1])).precisions == ("bf16",)


def test_fp8_is_never_chosen_where_it_is_not_listed() -> None:
    instance = instance_of(job("bf16"))
    assert instance.precisions == ("bf16",)
    plan = best_plan(instance)
    assert plan is not None
    assert answer.decisions(instance, plan).precision == "bf16"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("precision == fp16", "bf16, fp8"),
        ("precision < fp8", "has no order"),
        (["precision != fp8", "precision != bf16"], "leaves no precision"),
    ],
)
def test_requirements_that_no_precision_meets_are_refused(wrong: Any, said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        job(limits={"require": wrong})
    assert said in str(refused.value)
    with pytest.raises(InvalidInput, match="fp8"):
        job("bf16", limits={"require": "precision == fp8"})


def test_a_requirement_decides_the_precision() -> None:
    for precision in ("bf16", "fp8"):
        required, alone = job(limits={"require": f"precision == {precision}"}), job(precision)
        ours, theirs = (best_plan(instance_of(each)) for each in (required, alone))
        assert ours is not None
        assert theirs is not None
        assert ours.step == theirs.step
        reported = answer.reported(instance_of(required), ours)
        assert reported.decisions.precision == precision
        assert not violations(required, reported)


# ---------------------------------------------------------------------------------------------------
# The search


@pytest.mark.parametrize("block", range(3))
def test_the_optimum_over_both_precisions_is_that_of_brute_force(block: int) -> None:
    seeds = range(70_000 + block * 12, 70_000 + (block + 1) * 12)
    wrong = [line for seed in seeds for line in compare(seed, most=1000, make=precise)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_the_optimum_over_both_precisions_is_that_of_brute_force_on_many_more(block: int) -> None:
    seeds = range(71_000 + block * 20, 71_000 + (block + 1) * 20)
    wrong = [line for seed in seeds for line in compare(seed, most=2500, make=precise)]
    assert not wrong, "\n".join(wrong)


def test_both_precisions_win_somewhere_among_the_random_problems() -> None:
    chosen: set[str] = set()
    for seed in range(70_000, 70_036):
        random = Random(seed)
        instance = with_limits(random, small_problem(random, 1000, precise))
        plan = best_plan(instance) if len(instance.precisions) > 1 else None
        if plan is not None:
            chosen.add(instance.pools[plan.of("pool")].precision)
        if len(chosen) > 1:
            return
    raise AssertionError(chosen)


def test_the_best_of_both_is_the_better_of_each_alone() -> None:
    _, instance, _, plan = searched()
    values = []
    for precision in ("bf16", "fp8"):
        alone = instance_of(job(precision))
        other = best_plan(alone)
        assert other is not None
        values.append(objective_value(alone, other))
    assert objective_value(instance, plan) == min(values)


def test_the_first_of_the_listed_candidates_is_no_better_and_says_its_precision() -> None:
    _, instance, _, plan = searched()
    records = best_records(instance, 200)
    assert {record["decisions"]["precision"] for record in records} <= {"bf16", "fp8"}
    assert records[0]["dollars"] >= answer.days_and_dollars(instance, plan)[1] * (1 - 1e-9)
    assert all(r["decisions"]["gpu"] == "H100" for r in records if r["decisions"]["precision"] == "fp8")


def test_the_frontier_takes_each_plan_in_its_best_precision() -> None:
    both, plain = (instance_of(job(of)) for of in (("bf16", "fp8"), "bf16"))
    plans, single = frontier(both)[0], frontier(plain)[0]
    assert {both.pools[plan.of("pool")].precision for plan in plans} >= {"fp8"}
    for other in single:
        days, dollars = answer.days_and_dollars(plain, other)
        assert any(
            d <= days * (1 + 1e-9) and c <= dollars * (1 + 1e-9)
            for d, c in (answer.days_and_dollars(both, plan) for plan in plans)
        )


@pytest.mark.parametrize(("framework", "has"), [("megatron", True), ("torchtitan", False), ("any", True)])
def test_a_framework_without_fp8_leaves_bf16(framework: str, has: bool) -> None:
    instance = instance_of(job(search={"framework": framework}))
    keys = KeyBook.of(instance, recompute_families(instance)).keys
    assert {instance.pools[pool].precision for pool in set(keys.pool.tolist())} == (
        {"bf16", "fp8"} if has else {"bf16"}
    )


def test_weights_kept_in_fp8_leave_no_unsharded_plan_in_fp8_alone() -> None:
    instance = instance_of(job(search={"stack": "megatron-bridge", "zero": [0]}))
    plan = best_plan(instance)
    assert plan is not None
    assert instance.pools[plan.of("pool")].precision == "bf16"


@pytest.mark.parametrize("seed", range(73_000, 73_012))
def test_what_ifs_share_one_evaluation_of_both_precisions(seed: int) -> None:
    random = Random(seed)
    instance = precise(random)
    plan, _ = fresh(instance)
    asked = [instance, *(what_if(random, instance, plan) for _ in range(3))]
    wide = with_counts(instance, widest([counts_of(each) for each in asked]))
    evaluation = Evaluation.of(wide, families(instance))
    assert not [wrong for each in asked for wrong in differences(evaluation, each)]


def test_another_precision_is_another_evaluation() -> None:
    both, alone = instance_of(job()), instance_of(job(("fp8",)))
    other = replace(alone, pools=tuple(replace(pool, precision="bf16") for pool in alone.pools))
    assert len({len(physics_of(each).pools) for each in (both, alone)}) == 2
    assert physics_of(alone) != physics_of(other)


def mixed(random: Random) -> Instance:
    """Two or three pools that may be mixed, in either precision where a GPU has both."""
    instance = mixed_problem(random)
    pools = tuple(
        replace(pool, precision=precision)
        for pool in instance.pools
        for precision in ("bf16", "fp8")
        if precision in pool.gpu.peak_flops
    )
    return replace(instance, pools=pools) if len(instance.pools) < 3 else mixed(random)


@pytest.mark.parametrize("seed", range(72_000, 72_006))
def test_plans_on_two_pools_are_of_one_precision_and_as_good_as_those_of_brute_force(seed: int) -> None:
    random = Random(seed)
    oracle = small_mixed_problem(random, make=mixed)
    holds(oracle, with_mixed_limits(random, oracle), seed)


def test_a_plan_on_two_pools_says_its_precision() -> None:
    hardware = [
        {"gpu": "H100", "nodes": 1, "price": "2.20 USD/gpu-hour"},
        {"gpu": "H800", "nodes": 1, "price": "2.10 USD/gpu-hour"},
    ]
    more: dict[str, Any] = {"objective": "time", "mixing": {"network": "50 GB/s"}}
    for wanted, precision in ((("bf16", "fp8"), "fp8"), ("bf16", "bf16")):
        problem = job(wanted, hardware=hardware, **more)
        plan = solve(problem).plans[0]
        assert plan.decisions.mixed is not None
        assert plan.decisions.precision == precision
        assert not violations(problem, plan)


def test_pools_that_have_no_precision_in_common_are_not_mixed() -> None:
    with pytest.raises(InvalidInput, match="one pool"):
        job("fp8", mixing={"network": "50 GB/s"})
    assert job(mixing={"network": "50 GB/s"}).mixing is not None


# ---------------------------------------------------------------------------------------------------
# The answer


def test_the_solution_says_which_precision_and_why() -> None:
    problem, instance, table, plan = searched()
    reported = answer.reported(instance, plan)
    assert not violations(problem, reported)
    chosen = reported.decisions.precision
    reasons = explain.reasons(table, plan, explain.runner_ups(table, plan))
    (reason,) = (each for each in reasons if each.decision == "precision")
    assert (reason.chosen, reason.alternative) == (chosen, "bf16" if chosen == "fp8" else "fp8")
    other = best_plan(fixed(instance, {"precision": reason.alternative}))
    assert other is not None
    mine, theirs = (answer.days_and_dollars(instance, each) for each in (plan, other))
    assert reason.effect["dollars"] == pytest.approx(theirs[1] - mine[1], rel=1e-9)
    assert reason.text.startswith(f"precision {chosen} -> {reason.alternative}")
    assert [up.gpu for up in explain.runner_ups(table, plan)] == ["A100-80"]


def test_a_single_precision_is_no_question() -> None:
    instance = instance_of(job("bf16"))
    plan = best_plan(instance)
    assert plan is not None
    assert "precision" not in [each.decision for each in explain.questions(instance, plan)]
    assert "precision" in [each.what for each in hardware_changes(instance, {plan.of("pool"): ""})]
    both, mine = searched()[1], searched()[3]
    assert "precision" not in [each.what for each in hardware_changes(both, {mine.of("pool"): ""})]


def test_the_validator_refuses_a_precision_that_is_not_to_be_had() -> None:
    problem, instance, _, plan = searched()
    reported = answer.reported(instance, plan)
    assert any("precision of the problem" in text for text in violations(job("bf16"), reported))
    on_a100 = reported.decisions.model_copy(update={"gpu": "A100-80", "precision": "fp8"})
    wrong = violations(problem, reported.model_copy(update={"decisions": on_a100}))
    assert any("A100-80 has fp8" in text for text in wrong)


def test_pools_in_two_precisions_are_one_pool_of_prices_and_nodes() -> None:
    _, instance, _, plan = searched()
    assert sorted(each.pool for each in break_evens(instance, plan, ONE_POOL)) == [0, 1]
    for move in moves(instance):
        if move.limit == "hardware.1.nodes":
            nodes = [pool.max_nodes for pool in move.instance.pools]
            assert nodes == [2, move.new, move.new]
    prices = {each.pool: each.break_even for each in break_evens(instance, plan, ONE_POOL)}
    own = instance.pools[plan.of("pool")].entry
    price = prices[own]
    assert price is not None
    for factor, wins in ((0.999, True), (1.001, False)):
        changed = [replace(p, price=price * factor) if p.entry == own else p for p in instance.pools]
        there = best_plan(replace(instance, pools=tuple(changed)))
        assert there is not None
        assert (instance.pools[there.of("pool")].entry == own) is wins


def test_a_run_in_phases_has_one_precision() -> None:
    phases = [
        {"name": "main", "tokens": "18B"},
        {"name": "long", "seq_len": 8192, "global_batch": "64 sequences"},
    ]
    solution = solve(job(phases=phases))
    assert solution.run is not None
    assert len({phase.plan.decisions.precision for phase in solution.run.phases}) == 1
    alone = [solve(job(precision, phases=phases)).run for precision in ("bf16", "fp8")]
    assert solution.run.dollars == min(run.dollars for run in alone if run is not None)


def test_a_whole_solve_writes_the_precision_and_is_valid(tmp_path: Path) -> None:
    # Unless it is named, what is worth recomputing in FP8 is looked at in BF16 as well.
    named = {"search": {"recompute_modules": ["mlp", "core_attn+mlp"]}}
    solution = solve(job(**named))
    assert solution.status == "optimal"
    assert solution.plans[0].decisions.precision == "fp8"
    assert solution.problem["training"]["precision"] == ["bf16", "fp8"]
    counted = [solve(job(each, **named)).proof for each in ("bf16", "fp8")]
    assert solution.proof.valid == sum(proof.valid for proof in counted)
    assert solution.proof.lattice == sum(proof.lattice for proof in counted)
