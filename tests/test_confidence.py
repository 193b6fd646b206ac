"""How sure: quantiles of step time and length, probabilities of limits, chance constraints, the risk of memory."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import Answer, Oracle, objective, small_problem, within
from oracle import with_limits as limited
from small_job import JOB, job, small
from test_runs import MOE
from time_runs import some_run
from typer.testing import CliRunner

from costmodel.estimate import estimate
from costmodel.run import Run
from costmodel.units import DAY
from planner import chance
from planner.cli.app import app
from planner.cli.words import memory_risk_words
from planner.confidence import TAIL, Band, band_of, least_margins
from planner.economics import Economy
from planner.errors import InvalidInput
from planner.instance import Instance
from planner.listing import best_records
from planner.memory_risk import grade_of, risk_of, share_above, uneven_run
from planner.memory_risk import settings as risk_settings
from planner.problem import parse_problem
from planner.runs import DescribedRun, describe
from planner.search.front import frontier
from planner.solution import MemoryRisk
from planner.solve import solve
from planner.space.recompute import BARE, run_of
from planner.sureness import probabilities
from planner.validate import violations
from planner.variants import best_plan, fixed, with_limits

ROOT = Path(__file__).parent.parent
shares = st.floats(0.02, 0.98)
bands = st.builds(Band, st.floats(0.7, 0.999), st.floats(1.001, 1.4), st.just("fair"))


@given(bands)
def test_the_distribution_meets_the_band_at_both_edges_and_the_prediction_in_the_middle(band: Band) -> None:
    assert band.quantile(TAIL) == pytest.approx(band.low)
    assert band.quantile(0.5) == pytest.approx(1.0)
    assert band.quantile(1 - TAIL) == pytest.approx(band.high)


@given(bands, shares)
def test_the_share_below_a_quantile_is_its_share(band: Band, share: float) -> None:
    assert band.share_below(band.quantile(share)) == pytest.approx(share, abs=1e-9)


@given(bands, shares, st.floats(0.0, 0.1))
def test_failures_widen_a_length_and_keep_its_inverse(band: Band, share: float, spread: float) -> None:
    length = chance.length_quantile(share, band, spread)
    if abs(share - 0.5) > 0.05:  # where the two halves meet, the mean of failures moves the middle a little
        assert chance.share_within(length, band, spread) == pytest.approx(share, abs=2e-3)
    if share >= 0.6:
        assert length >= chance.length_quantile(share, band, 0.0) - 1e-12


def test_runs_that_the_fit_left_out_lie_below_each_quantile_about_as_often_as_said() -> None:
    """Errors with source, model or GPU left out, by a band that is matched to their own 10 and 90 % quantiles."""
    lines = [json.loads(text) for text in (ROOT / "validation" / "left_out.jsonl").read_text().splitlines()]
    errors = -np.array([line[name] for line in lines for name in ("source", "model", "gpu")])
    low, high = np.exp(np.quantile(errors, [TAIL, 1 - TAIL]))
    band = Band(float(low), float(high), "fair")
    for share in (0.25, 0.5, 0.75, 0.85, 0.95):
        assert np.mean(errors <= math.log(band.quantile(share))) == pytest.approx(share, abs=0.06)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 64), st.integers(0, 64), st.sampled_from([1, 2, 4, 8]), st.floats(0.6, 0.99))
def test_the_least_margin_of_several_numbers_of_micro_batches_is_that_of_the_nearest(
    fewest: int, more: int, tp: int, share: float
) -> None:
    numbers = np.arange(fewest, fewest + more + 1)
    run = some_run(tp=tp, num_microbatches=fewest + more)
    least = float(least_margins(run, fewest, share))
    each = [band_of(replace(run, num_microbatches=int(m))).quantile(share) for m in numbers]
    assert least == pytest.approx(min(each), rel=1e-12)


def test_probabilities_follow_the_limits() -> None:
    instance, plan = small()
    days = float(Economy.of(instance, plan.row).seconds(np.array([plan.step]))[0]) / DAY
    at = {}
    for limit in (days * 0.9, days, days * 1.1, days * 1.3):
        at[limit] = probabilities(with_limits(instance, deadline=limit * DAY), plan)["deadline"]
    assert list(at.values()) == sorted(at.values())
    assert at[days] == pytest.approx(0.5, abs=0.01)
    assert at[days * 1.3] > 0.999
    assert probabilities(with_limits(instance, deadline=None, budget=None), plan) == {}


def test_budget_and_deadline_of_the_same_length_hold_equally_often() -> None:
    instance, plan = small()
    economy = Economy.of(instance, plan.row)
    seconds = float(economy.seconds(np.array([plan.step]))[0]) * 1.03
    budget = float(economy.total("cost", np.array([seconds]))[0])
    found = probabilities(with_limits(instance, deadline=seconds, budget=budget), plan)
    assert found["deadline"] == pytest.approx(found["budget"], abs=1e-9)


@pytest.mark.parametrize("share", [0.75, 0.9, 0.97])
def test_a_plan_meets_its_deadline_at_the_confidence_that_is_asked_for(share: float) -> None:
    surer = with_limits(small()[0], confidence=share)
    plan = best_plan(surer)
    assert plan is not None
    assert min(probabilities(surer, plan).values()) >= share - 1e-9


SHARES = [(0.8, 29.0), (0.9, 28.5), (0.95, 30.0)]


@pytest.mark.parametrize(("share", "deadline"), SHARES)
def test_no_candidate_that_is_as_sure_costs_less(share: float, deadline: float) -> None:
    """Brute force: candidates in the order of their cost, each with its own band and failures, as sure or not."""
    few = fixed(small()[0], {"gpu": "H800", "tp": 1, "zero": 1, "micro_batch": 1})
    surer = with_limits(few, confidence=share, deadline=deadline * DAY)
    plan = best_plan(surer)
    assert plan is not None
    cost = float(Economy.of(surer, plan.row).dollars(np.array([plan.step]))[0])
    free = with_limits(surer, confidence=None, deadline=None, budget=None)
    cheaper = [record for record in best_records(free, 300) if record["dollars"] < cost * (1 - 1e-9)]
    assert cheaper, "the confidence costs nothing: this test says nothing"
    for record in cheaper[:15]:
        names = (
            "gpu",
            "num_gpus",
            "tp",
            "pp",
            "vpp",
            "dp",
            "micro_batch",
            "num_microbatches",
            "zero",
            "recompute",
        )
        rival = best_plan(fixed(free, {name: record["decisions"][name] for name in names}))
        assert rival is not None
        assert min(probabilities(surer, rival).values()) < share, record["decisions"]


@pytest.mark.parametrize(("share", "deadline"), SHARES)
def test_listed_candidates_are_as_sure_as_asked_and_none_beats_the_plan(
    share: float, deadline: float
) -> None:
    few = fixed(small()[0], {"gpu": "H800", "tp": 1, "pp": 2, "micro_batch": 1, "recompute": "none"})
    surer = with_limits(few, confidence=share, deadline=deadline * DAY)
    plan = best_plan(surer)
    assert plan is not None
    cost = float(Economy.of(surer, plan.row).dollars(np.array([plan.step]))[0])
    first = best_records(surer, 1)
    assert first
    assert first[0]["dollars"] >= cost * (1 - 1e-9)


def test_every_plan_of_a_frontier_is_as_sure_as_asked_and_the_cheapest_of_them_is_the_best() -> None:
    few = fixed(small()[0], {"gpu": "H800", "tp": 1, "pp": 2, "micro_batch": 1, "zero": 1})
    surer = with_limits(few, confidence=0.9, deadline=29 * DAY)
    plans, _ = frontier(surer)
    best = best_plan(surer)
    assert best is not None
    assert len(plans) >= 3
    assert all(min(probabilities(surer, plan).values()) >= 0.9 - 1e-9 for plan in plans)
    costs = [float(Economy.of(surer, plan.row).dollars(np.array([plan.step]))[0]) for plan in plans]
    assert min(costs) == pytest.approx(float(Economy.of(surer, best.row).dollars(np.array([best.step]))[0]))
    loose, _ = frontier(with_limits(few, confidence=None, deadline=29 * DAY))
    assert len(loose) > len(plans)


def test_being_surer_never_costs_less() -> None:
    costs = []
    for share in (None, 0.6, 0.8, 0.9, 0.95, 0.99):
        surer = with_limits(small()[0], confidence=share, deadline=28.5 * DAY)
        plan = best_plan(surer)
        assert plan is not None
        costs.append(float(Economy.of(surer, plan.row).dollars(np.array([plan.step]))[0]))
    assert costs == sorted(costs)
    assert costs[0] < costs[-1]


def test_the_solution_says_what_sureness_costs_and_the_validator_checks_it() -> None:
    tight = ("limits.deadline", "29 days")
    problem = job(tight, ("limits.confidence", 0.9))
    solution, loose = solve(problem), solve(job(tight))
    plan, without = solution.plans[0], loose.plans[0]
    assert solution.sure is not None
    assert loose.sure is None
    assert solution.sure.effect["dollars"] == pytest.approx(plan.estimate.dollars - without.estimate.dollars)
    assert solution.sure.without == pytest.approx(without.estimate.probability)
    assert f"${abs(solution.sure.effect['dollars']):,.0f}" in solution.sure.text
    assert plan.estimate.probability["deadline"] >= 0.9 > without.estimate.probability["deadline"]
    assert not violations(problem, plan)
    assert any("deadline" in each for each in violations(problem, without))


def test_what_cannot_be_had_at_a_confidence_names_the_highest_that_can() -> None:
    pool = {"gpu": "H800", "gpus": 64, "price": "2 USD/gpu-hour"}
    narrow = (
        ("hardware", [pool]),
        ("search.tp", 1),
        ("search.micro_batch", 1),
        ("limits.deadline", "28.5 days"),
    )
    conflict = solve(job(*narrow, ("limits.confidence", 0.95))).conflict
    assert conflict is not None
    moves = {move.limit: move for move in conflict.relaxations}
    highest = float(str(moves["confidence"].to).rstrip("%")) / 100
    assert 0.5 <= highest < 0.95
    for share, status in ((highest - 0.002, "optimal"), (highest + 0.002, "infeasible")):
        assert solve(job(*narrow, ("limits.confidence", share))).status == status
    days = float(str(moves["deadline"].to).removesuffix(" days"))
    narrow = (*narrow[:-1], ("limits.deadline", f"{days} days"))
    assert solve(job(*narrow, ("limits.confidence", 0.95))).status == "optimal"


@pytest.mark.parametrize("value", [0.5, 1, "101%", "often", 0.999])
def test_a_confidence_that_means_nothing_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match=r"limits\.confidence"):
        job(("limits.confidence", value))


def test_an_agreed_mfu_has_no_band_to_be_sure_by() -> None:
    with pytest.raises(InvalidInput, match=r"limits\.confidence.*assume_mfu"):
        job(("limits.confidence", 0.9), ("assume_mfu", 0.4))


def test_a_confidence_survives_a_file() -> None:
    problem = job(("limits.confidence", "90%"))
    assert parse_problem(problem.as_written()).limits.confidence == problem.limits.confidence == 0.9


# ---------------------------------------------------------------------------------------------------
# Memory


def test_the_risk_of_memory_is_the_table_of_published_errors() -> None:
    for share, log_ratio in risk_settings()["quantiles"].items():
        assert share_above(math.exp(log_ratio)) == pytest.approx(1 - share)


@given(st.floats(0.3, 3.0), st.floats(1.0, 1.5))
def test_more_room_is_never_riskier(ratio: float, more: float) -> None:
    assert 0 <= share_above(ratio * more) <= share_above(ratio) <= 1


def test_classes_are_by_probability() -> None:
    limits = risk_settings()["classes"]
    assert [grade_of(p) for p in (0.0, limits["low"], limits["moderate"], 0.9)] == [
        "low",
        "low",
        "moderate",
        "high",
    ]


def test_a_full_gpu_is_a_high_risk_and_an_emptier_one_a_low_one() -> None:
    run = some_run()
    driver = run.gpu.memory.driver
    assert risk_of(run, (40, 40), (0, 0), driver).grade == "high"
    assert risk_of(run, (40, 40), (0, 0), driver / 2).grade == "low"


def test_a_high_risk_comes_with_the_headroom_that_makes_it_moderate_and_no_other_does() -> None:
    run = some_run()
    driver = run.gpu.memory.driver
    full = risk_of(run, (40, 40), (0, 0), 0.99 * driver)
    assert full.grade == "high"
    assert full.headroom is not None
    assert risk_of(run, (40, 40), (0, 0), (1 - full.headroom) * driver).grade == "moderate"
    # It is a whole per cent: one less is not enough.
    assert risk_of(run, (40, 40), (0, 0), (1.01 - full.headroom) * driver).grade == "high"
    assert risk_of(run, (40, 40), (0, 0), (1 - full.headroom) * driver).headroom is None
    told = MemoryRisk(
        risk=full.grade, probability=full.probability, balanced=full.balanced, headroom=full.headroom
    )
    assert f"limits.memory_headroom: {full.headroom:.0%}" in memory_risk_words(told)
    assert "headroom" not in memory_risk_words(told.model_copy(update={"headroom": None}))


def test_uneven_experts_are_a_risk_that_balanced_ones_are_not() -> None:
    run = described_moe()
    layers, recomputed = (run.architecture.layers,), (0,)
    memory = float(estimate(run, layers, recomputed).memory.total)
    full = replace(
        run,
        gpu=run.gpu.model_copy(update={"memory": run.gpu.memory.model_copy(update={"driver": 1.1 * memory})}),
    )
    uneven = uneven_run(full, layers)
    assert uneven is not None
    assert uneven.stack.memory.expert_imbalance == pytest.approx(
        1 + (run.stack.expert_parallel.natural_imbalance - 1) / math.sqrt(run.architecture.layers)
    )
    risk = risk_of(full, layers, recomputed, memory)
    assert risk.probability > risk.balanced
    assert uneven_run(some_run(), (80,)) is None


def described_moe() -> Run:
    """A mixture of experts on one stage."""
    described = describe(MOE | {"pp": 1, "vpp": 1})
    assert isinstance(described, DescribedRun)
    return described.run


def test_the_command_shows_how_likely_limits_hold(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(json.dumps(JOB))
    done = CliRunner().invoke(app, ["solve", str(file), "-q", "-s", "limits.confidence=0.9"])
    assert done.exit_code == 0, done.output
    assert "limits hold" in done.stdout
    assert "memory risk" in done.stdout
    assert "How sure" in done.stdout


# ---------------------------------------------------------------------------------------------------
# Brute force over candidates and stage assignments


def sure_answers(instance: Instance, share: float, answers: list[Answer]) -> list[Answer]:
    """Answers whose length and cost at the confidence are within the limits, each by its own band."""
    limits, kept = instance.limits, []
    for answer in answers:
        names = ("tp", "cp", "pp", "vpp", "dp", "ep", "etp", "micro_batch", "num_microbatches", "zero")
        columns = {name: getattr(answer.layout, name) for name in names}
        factor = band_of(run_of(instance, instance.pools[answer.layout.pool], BARE, **columns)).quantile(
            share
        )
        pool = instance.pools[answer.layout.pool]
        rent = answer.dollars / max(answer.seconds, pool.committed)
        cost = rent * max(answer.seconds * factor, pool.committed)
        late = limits.deadline is not None and answer.seconds * factor > limits.deadline
        if not late and (limits.budget is None or cost <= limits.budget):
            kept.append(answer)
    return kept


def tightened(random: Random, instance: Instance, oracle: Oracle) -> Instance | None:
    """Deadline and budget a little above what the best answer takes."""
    free = replace(instance, limits=replace(instance.limits, deadline=None, budget=None))
    answers = oracle.answers(free)
    if instance.assume_mfu is not None or not answers:
        return None
    best, limits = min(answers, key=lambda of: objective(instance, of.seconds, of.dollars)), free.limits
    room = random.choice((1.001, 1.01, 1.05, 1.2))
    if random.random() < 0.7:
        limits = replace(limits, deadline=best.seconds * room)
    if random.random() < 0.5:
        limits = replace(limits, budget=best.dollars * random.choice((room, 1.3)))
    return replace(free, limits=limits)


@pytest.mark.slow
def test_the_optimum_at_a_confidence_is_that_of_brute_force() -> None:
    compared = bound = 0
    for seed in range(1100, 1300):
        random = Random(seed)
        oracle = small_problem(random, 250)
        instance = tightened(random, limited(random, oracle), oracle)
        if instance is None:
            continue
        share = random.choice((0.6, 0.8, 0.95))
        answers = oracle.answers(instance)
        sure = sure_answers(instance, share, answers)
        plan = best_plan(replace(instance, limits=replace(instance.limits, confidence=share)))
        assert (plan is None) == (not sure), seed
        if plan is None:
            continue
        seconds = float(Economy.of(instance, plan.row).seconds(np.array([plan.step]))[0])
        cost = float(Economy.of(instance, plan.row).dollars(np.array([plan.step]))[0])
        value = [
            min(objective(instance, of.seconds, of.dollars)[0] for of in some)
            for some in (sure, within(instance, answers))
        ]
        assert objective(instance, seconds, cost)[0] == pytest.approx(value[0], rel=1e-6), seed
        compared, bound = compared + 1, bound + (value[0] > value[1] * (1 + 1e-6))
    assert compared >= 12
    assert bound >= 2
