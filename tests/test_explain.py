"""Explanations: every figure is that of a problem solved or a layout priced, and sentences follow the inputs."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from small_job import JOB, job, small
from typer.testing import CliRunner

from costmodel.estimate import estimate
from costmodel.pipeline import plain_layers
from planner import answer, explain, relaxed, solution
from planner.account import Account
from planner.alone import CHANGED, alone, neighbours
from planner.break_even import break_evens
from planner.cli.app import app
from planner.cli.explanation_table import explanation_table
from planner.conflict import conflicting
from planner.explained import explained
from planner.explanation import Explanation
from planner.instance import Instance, Limits, Term
from planner.listing import best_records
from planner.marginal import best_there, moved, moves
from planner.one_pool import ONE_POOL
from planner.problem import load_problem
from planner.relaxed import every_family
from planner.resolve import instance_of
from planner.search import Mask, Plan, Table, best, goal_of
from planner.search.goal import in_families
from planner.solve import solve
from planner.space.recompute import recompute_families
from planner.switches import SWITCHES
from planner.validate import violations
from planner.variants import (
    best_plan,
    decided,
    fixed,
    objective_value,
    reach_of,
    with_limits,
    with_pool,
)
from planner.what_if import changed, hardware_changes
from planner.why import answered, parse_question

ROOT = Path(__file__).parent.parent
MAIN = ROOT / "problems" / "70b_3T_60days.yaml"
GIB = 2**30


@cache
def explanation() -> Explanation:
    return explained(job())


@cache
def main_reasons() -> tuple[Instance, Plan, tuple[solution.Reason, ...]]:
    instance = instance_of(load_problem(MAIN))
    table = Table.of(instance, goal_of(instance), every_family(instance))
    plan = best(table, in_families(recompute_families(instance)))
    assert plan is not None
    return instance, plan, explain.reasons(table, plan, explain.runner_ups(table, plan))


def independent(instance: Instance, plan: Plan) -> dict[str, float]:
    """Figures of a plan as the validator has them: it shares nothing with the search."""
    reported = answer.reported(instance, plan)
    assert not violations(load_problem(MAIN), reported)
    of = reported.estimate
    return {
        "days": of.days,
        "dollars": of.dollars,
        "mfu": of.mfu,
        "memory_gib": of.memory_gib.total,
        "step_time_s": of.step_time_s,
    }


# ---------------------------------------------------------------------------------------------------
# Reasons


def test_every_reason_of_the_main_job_is_the_difference_to_the_best_plan_that_decides_so() -> None:
    instance, plan, reasons = main_reasons()
    mine, seen = independent(instance, plan), 0
    for reason in reasons:
        if reason.alternative is None or reason.decision in ("num_microbatches", "stages", *SWITCHES):
            continue
        other = best_plan(fixed(instance, {reason.decision: reason.alternative}))
        assert other is not None
        theirs = independent(instance, replace(other, row=other.row))
        for name, value in reason.effect.items():
            assert value == pytest.approx(theirs[name] - mine[name], abs=1e-9 * abs(mine[name]) + 1e-12), (
                reason
            )
        assert f"${abs(theirs['dollars'] - mine['dollars']):,.0f}" in reason.text
        assert f"{abs(theirs['days'] - mine['days']):.2f} days" in reason.text
        seen += 1
    assert seen >= 7


def test_candidates_list_every_alternative_of_the_main_job_with_the_figures_of_its_reason() -> None:
    instance, plan, reasons = main_reasons()
    mine, same = Account.within(instance, plan), 0
    apart = ("stages", *SWITCHES)
    asked = [each for each in reasons if each.alternative is not None and each.decision not in apart]
    assert len(asked) >= 8
    for reason in asked:
        other = alternative_of(instance, plan, reason)
        narrow = fixed(instance, decided(instance, other))
        listed = min(best_records(narrow, 1), key=lambda record: record["dollars"])
        figures = {name: listed[name] - mine_of(mine, name) for name in ("days", "dollars", "step_time_s")}
        plain = tuple(int(n) for n in plain_layers(80, other.of("pp"), other.of("vpp")))
        if other.stages.layers == plain and len(set(other.stages.recomputed)) == 1:
            same += 1
            for name, value in figures.items():
                assert reason.effect[name] == pytest.approx(value, rel=1e-6, abs=1e-6), (reason.text, name)
        # Stages that the search assigns are no worse than the even ones of the list.
        assert figures["dollars"] >= reason.effect["dollars"] - 1e-6, reason.text
    assert same >= 4


def alternative_of(instance: Instance, plan: Plan, reason: solution.Reason) -> Plan:
    if reason.decision == "num_microbatches":
        fewer = np.array([reason.alternative])
        return replace(plan, row=replace(plan.row, m_low=fewer, m_high=fewer))
    found = best_plan(fixed(instance, {reason.decision: reason.alternative}))
    assert found is not None
    return found


def mine_of(mine: Account, name: str) -> float:
    return float(mine.prediction.step_time if name == "step_time_s" else getattr(mine, name))


def test_a_looser_limit_gives_the_plan_of_solving_again_with_it() -> None:
    instance, plan = small()
    for move in moves(instance):
        found, again = best_there(instance, plan, move), best_plan(move.instance)
        assert (found is None) == (again is None), move.what
        if found is not None and again is not None:
            value = objective_value(move.instance, again)
            assert objective_value(move.instance, found) == pytest.approx(value, rel=1e-9), move.what


def test_nothing_worse_than_a_plan_that_is_known_is_looked_at_and_the_answer_is_the_same() -> None:
    instance, plan = small()
    value = objective_value(instance, plan)
    again = best_plan(instance, value)
    assert again is not None
    assert objective_value(instance, again) == pytest.approx(value, rel=1e-9)
    assert best_plan(instance, value * (1 - 1e-6)) is None


def test_a_faster_link_is_solved_from_what_the_plan_takes_on_it() -> None:
    instance, plan = small()
    for change in hardware_changes(instance, {plan.of("pool"): ""}):
        if change.what == "precision":
            continue
        reach, best_of_all = reach_of(change.instance, plan), best_plan(change.instance)
        assert best_of_all is not None
        assert np.isfinite(reach)
        assert objective_value(change.instance, best_of_all) <= reach * (1 + 1e-9)


def test_fewer_micro_batches_of_the_main_job_are_priced_as_the_cost_model_does() -> None:
    instance, plan, reasons = main_reasons()
    (reason,) = [reason for reason in reasons if reason.decision == "num_microbatches"]
    run = replace(answer.run_of_plan(instance, plan), num_microbatches=reason.alternative)
    other = estimate(run, plan.stages.layers, plan.stages.recomputed)
    assert reason.effect["step_time_s"] == pytest.approx(other.step_time - plan.step)
    assert reason.effect["mfu"] == pytest.approx(other.mfu - answer.predicted(instance, plan).mfu)


def test_why_no_other_gpu_gives_the_figures_of_its_fastest_plan() -> None:
    instance, _, reasons = main_reasons()
    (reason,) = [reason for reason in reasons if reason.decision == "gpu"]
    free = with_limits(fixed(instance, {"gpu": "H20"}), deadline=None, budget=None)
    fastest = best_plan(replace(free, objective=(("time", 1.0),)))
    assert fastest is not None
    account = Account.within(free, fastest)
    assert f"{account.days:.1f} days" in reason.text
    assert f"${account.dollars:,.0f}" in reason.text


@pytest.mark.slow
@pytest.mark.parametrize("decision", ["tp", "pp", "micro_batch"])
def test_no_listed_candidate_that_decides_otherwise_beats_the_alternative(decision: str) -> None:
    instance, plan = small()
    (reason,) = [reason for reason in explanation().reasons if reason.decision == decision]
    cost = Account.within(instance, plan).dollars + reason.effect["dollars"]
    few = replace(instance, pools=(replace(instance.pools[0], min_nodes=7, max_nodes=9),))
    for value in {"tp": (2,), "pp": (1, 4), "micro_batch": (2,)}[decision]:
        assert value != reason.chosen
        for record in best_records(fixed(few, {"micro_batch": 2, "zero": 1, decision: value}), 1):
            assert record["dollars"] >= cost * (1 - 1e-9)


# ---------------------------------------------------------------------------------------------------
# The same layout with one decision changed


def test_a_layout_that_does_not_fit_is_said_with_its_memory_and_the_limit() -> None:
    instance, plan = small()
    mine = Account.within(instance, plan)
    tight = [just for just in every_alone(instance, plan) if just.breaks == ("memory",)]
    assert len(tight) >= 2
    for just in tight:
        d = decided(instance, plan) | just.change
        names = ("tp", "cp", "pp", "vpp", "dp", "ep", "etp", "micro_batch", "num_microbatches", "zero")
        run = replace(answer.run_of_plan(instance, plan), **{name: d[name] for name in names})
        layers = [int(n) for n in plain_layers(instance.architecture.layers, d["pp"], d["vpp"])]
        plain = estimate(run, layers)
        assert just.memory_gib == pytest.approx(float(plain.memory.total) / GIB)
        assert just.effect["step_time_s"] == pytest.approx(plain.step_time - mine.prediction.step_time)
        room = instance.pools[0].gpu.memory.driver * (1 - instance.limits.memory_headroom) / GIB
        assert just.memory_limit_gib == pytest.approx(room)
        assert f"needs {just.memory_gib:.1f} GiB of {room:.1f}" in just.text
        if just.memory_recomputed_gib is not None:
            again = estimate(run, layers, layers)
            assert just.memory_recomputed_gib == pytest.approx(float(again.memory.total) / GIB)
            assert just.memory_recomputed_gib > room


def test_a_layout_that_fits_is_never_better_than_the_plan() -> None:
    instance, plan = small()
    fits = [just for just in every_alone(instance, plan) if not just.breaks]
    assert len(fits) >= 3
    assert all(just.effect["dollars"] >= -1e-6 for just in fits)
    assert all(just.memory_gib <= just.memory_limit_gib for just in fits)


def every_alone(instance: Instance, plan: Plan) -> list[Any]:
    mine = Account.within(instance, plan)
    found = []
    for name in CHANGED:
        values = ["full", "selective"] if name == "recompute" else list(neighbours(instance, plan, name))
        found += [just for value in values if (just := alone(instance, mine, {name: value})) is not None]
    return found


def test_more_memory_takes_the_memory_out_of_the_sentence() -> None:
    instance, plan = small()
    (tight,) = [just for just in every_alone(instance, plan) if just.change.get("pp") == 1]
    assert "GiB of" in tight.text
    gpu = instance.pools[0].gpu
    large = gpu.model_copy(update={"memory": gpu.memory.model_copy(update={"driver": 3 * gpu.memory.driver})})
    roomy = with_pool(instance, 0, gpu=large)
    loose = alone(roomy, Account.within(roomy, plan), {"pp": 1})
    assert loose is not None
    assert loose.breaks == ()
    assert "GiB of" not in loose.text


# ---------------------------------------------------------------------------------------------------
# Limits


def test_moved_limits_are_those_of_the_moved_problem_solved_again() -> None:
    tight = (
        ("limits.deadline", "20 days"),
        ("search.tp", 1),
        ("search.micro_batch", 1),
        ("hardware.1.nodes.max", 4),
    )
    problem = job(*tight)
    instance, first = instance_of(problem), solve(problem).plans[0]
    plan = best_plan(instance)
    assert plan is not None
    found = {(of.limit, of.loosened): of for of in (moved(instance, plan, move) for move in moves(instance))}
    for (limit, loosened), key, value in (
        (("deadline", True), "limits.deadline", "21 days"),
        (("deadline", False), "limits.deadline", "19 days"),
        (("budget", False), "limits.budget", "396k USD"),
        (("hardware.0.nodes", True), "hardware.0.nodes", {"max": 13}),
        (("memory_headroom", True), "limits.memory_headroom", 0.04),
        (("memory_headroom", False), "limits.memory_headroom", 0.06),
    ):
        of, again = found[limit, loosened], solve(job(*tight, (key, value)))
        if not again.plans:
            assert not of.feasible
            assert "leaves no plan" in of.text
            continue
        change = again.plans[0].estimate.dollars - first.estimate.dollars
        assert of.effect["dollars"] == pytest.approx(change, abs=1e-6)
        assert of.binds == (abs(change) > 1)
        assert (f"${abs(change):,.0f}" in of.text) == of.binds
        assert of.price is not None


def test_a_deadline_that_binds_has_a_price_a_day_and_a_loose_one_has_none() -> None:
    for days, binds in (("27.5 days", True), ("60 days", False)):
        instance = instance_of(job(("limits.deadline", days), ("hardware.0.nodes", {"max": 9})))
        plan = best_plan(instance)
        assert plan is not None
        looser = [
            moved(instance, plan, move)
            for move in moves(instance)
            if move.limit == "deadline" and move.loosened
        ]
        (one,) = looser
        assert one.binds == binds
        assert (one.price is not None and one.price < 0) == binds
        assert ("saves $" in one.text) == binds
        assert one.price_unit == "USD a day"


# ---------------------------------------------------------------------------------------------------
# Prices


@pytest.mark.parametrize(
    "objective",
    ["cost", ["cost", "time"], {"cost": 1, "time": "5k USD/day"}],
)
def test_a_pool_wins_below_its_break_even_price_and_loses_above(objective: Any) -> None:
    instance = instance_of(job(("objective", objective), ("search.tp", 1)))
    plan = best_plan(instance)
    assert plan is not None
    chosen = plan.of("pool")
    for of in break_evens(instance, plan, ONE_POOL):
        assert of.break_even is not None
        assert f"${of.break_even:.4g}" in of.text
        below, above = (
            best_plan(with_pool(instance, of.pool, price=of.break_even * factor))
            for factor in (0.9999, 1.0001)
        )
        assert below is not None
        assert above is not None
        assert (below.of("pool") == of.pool, above.of("pool") == of.pool) == (True, False)
        assert of.wins == ("above" if of.pool == chosen else "below")


def test_a_dearer_rival_makes_the_chosen_pool_last_longer() -> None:
    prices = []
    for price in ("0.80", "0.90"):
        instance = instance_of(job(("hardware.1.price", f"{price} USD/gpu-hour"), ("search.tp", 1)))
        plan = best_plan(instance)
        assert plan is not None
        (own,) = [of for of in break_evens(instance, plan, ONE_POOL) if of.wins == "above"]
        prices.append(own.break_even)
    assert prices[0] < prices[1]


def test_no_price_helps_a_pool_that_is_too_slow_and_the_sentence_says_how_slow() -> None:
    instance = instance_of(job(("hardware.1.nodes", {"max": 15})))
    plan = best_plan(instance)
    assert plan is not None
    (other,) = [of for of in break_evens(instance, plan, ONE_POOL) if of.gpu == "H20"]
    assert other.wins == "never"
    fastest = relaxed.fastest(
        fixed(instance, {"gpu": "H20"}), replace(instance.limits, deadline=None, budget=None)
    )
    assert fastest is not None
    assert f"{Account.within(fixed(instance, {'gpu': 'H20'}), fastest).days:.1f} days" in other.text


@pytest.mark.parametrize("objective", ["time", "energy", "carbon", ["energy", "cost"]])
def test_where_money_does_not_count_first_a_price_matters_through_the_budget(objective: Any) -> None:
    changes = (
        ("objective", objective),
        ("search.tp", 1),
        ("limits.budget", "200k USD"),
        ("hardware.0.price", "8 USD/gpu-hour"),
    )
    instance = instance_of(job(*changes))
    plan = best_plan(instance)
    assert plan is not None
    (of,) = [each for each in break_evens(instance, plan, ONE_POOL) if each.wins == "below"]
    assert of.gpu == "H800"
    assert of.break_even is not None
    cheap = best_plan(with_pool(instance, of.pool, price=of.break_even * 0.999))
    dear = best_plan(with_pool(instance, of.pool, price=of.break_even * 1.001))
    assert cheap is not None
    assert dear is not None
    assert (cheap.of("pool") == of.pool, dear.of("pool") == of.pool) == (True, False)


@pytest.mark.parametrize(
    ("objective", "more"),
    [
        ("time", ()),
        ("energy", ()),
        ({"cost": 1, "time": "15k USD/day"}, ()),
        ({"cost": 1, "time": "50k USD/day"}, ()),
        ("carbon", (("power.carbon", "0 gCO2/kWh"),)),
        (["carbon", "cost"], (("power.carbon", "0 gCO2/kWh"),)),
    ],
)
def test_a_chosen_pool_loses_where_its_better_plans_are_beyond_the_budget(
    objective: Any, more: tuple[tuple[str, Any], ...]
) -> None:
    instance = instance_of(
        job(("objective", objective), ("search.tp", 1), ("limits.budget", "200k USD"), *more)
    )
    plan = best_plan(instance)
    assert plan is not None
    (own,) = [of for of in break_evens(instance, plan, ONE_POOL) if of.wins == "above"]
    assert (own.gpu, own.text.rpartition("; ")[2]) == ("H800", "above, H20 wins.")
    assert own.break_even is not None
    gpus = []
    for factor in (0.9999, 1.0001):
        there = with_pool(instance, own.pool, price=own.break_even * factor)
        other = best_plan(there)
        assert other is not None
        gpus.append(ONE_POOL.called(there, other))
    assert gpus == ["H800", "H20"]


def test_a_price_far_below_todays_is_found_where_time_has_a_value() -> None:
    changes = (
        ("objective", {"cost": 1, "time": "20k USD/day"}),
        ("search.tp", 1),
        ("hardware.0.nodes", {"max": 10}),
    )
    prices = []
    for today in ("8 USD/gpu-hour", "20 USD/gpu-hour"):
        # From the slow plan that is best at such a price alone, H20 would have to cost less than nothing.
        instance = instance_of(job(*changes, ("hardware.1.price", today)))
        plan = best_plan(instance)
        assert plan is not None
        (other,) = [of for of in break_evens(instance, plan, ONE_POOL) if of.wins == "below"]
        prices.append(other.break_even)
    assert prices[1] == pytest.approx(prices[0], rel=1e-8)


@pytest.mark.parametrize(("objective", "words"), [("time", "takes longer"), ("carbon", "emits more")])
def test_a_pool_that_is_worse_at_any_price_is_said_to_be_so_in_what_counts(
    objective: str, words: str
) -> None:
    instance = instance_of(job(("objective", objective), ("search.tp", 1)))
    plan = best_plan(instance)
    assert plan is not None
    (other,) = [of for of in break_evens(instance, plan, ONE_POOL) if of.gpu == "H20"]
    assert (other.wins, other.text) == ("never", f"H20 wins at no price: its best plan {words}.")


# ---------------------------------------------------------------------------------------------------
# Hardware


@pytest.mark.parametrize(
    ("change", "key", "value"),
    [
        ("network", "hardware.0.network", "800 Gbit/s"),
        ("NVLink", "hardware.0.nvlink", "450 GB/s"),
        ("precision", "training.precision", "fp8"),
    ],
)
def test_what_ifs_are_the_changed_problem_solved_again(change: str, key: str, value: str) -> None:
    instance, plan = small()
    (of,) = [
        changed(instance, plan, each, ONE_POOL)
        for each in hardware_changes(instance, {plan.of("pool"): ""})
        if each.what == change
    ]
    again = solve(job((key, value))).plans[0].estimate
    mine = Account.within(instance, plan)
    assert of.effect["dollars"] == pytest.approx(again.dollars - mine.dollars, rel=1e-6, abs=1e-3)
    assert of.saves == pytest.approx(1 - again.dollars / mine.dollars, abs=1e-9)
    assert f"{of.saves:.1%}" in of.text
    assert of.days_on_same_gpus is not None
    assert of.days_on_same_gpus <= mine.days


def test_more_memory_and_bandwidth_never_cost() -> None:
    for of in explanation().what_ifs:
        if of.change in ("memory", "HBM bandwidth", "network", "NVLink"):
            assert of.saves >= -1e-9, of


def test_a_gpu_without_fp8_is_not_asked_about_it() -> None:
    pool = [{"gpu": "A100-80", "nodes": {"max": 40}, "price": "1 USD/gpu-hour"}]
    instance = instance_of(job(("hardware", pool), ("search.tp", 1)))
    plan = best_plan(instance)
    assert plan is not None
    assert "precision" not in [each.what for each in hardware_changes(instance, {plan.of("pool"): ""})]


# ---------------------------------------------------------------------------------------------------
# Questions


def ask(question: str, *changes: tuple[str, Any]) -> Any:
    instance = instance_of(job(*changes)) if changes else small()[0]
    plan = best_plan(instance)
    assert plan is not None
    return answered(instance, plan, parse_question(question, instance), "small")


@pytest.mark.parametrize(
    "question", ["tp=2", "gpu=H20", "gpus=80", "recompute=full", "tp=2,pp=2", "zero=0", "dp=16"]
)
def test_a_question_is_answered_by_the_best_plan_that_decides_so(question: str) -> None:
    instance, plan = small()
    found = ask(question)
    assert found.plan is not None
    asked = parse_question(question, instance)
    for name, value in asked.items():
        assert getattr(found.plan.decisions, name) == value
    narrow = fixed(instance, asked)
    other = best_plan(narrow)
    assert other is not None
    difference = objective_value(narrow, other) - objective_value(instance, plan)
    assert found.effect["dollars"] == pytest.approx(difference)
    assert f"${abs(difference):,.0f}" in found.text


def test_what_the_plan_has_already_is_said() -> None:
    plan = small()[1]
    assert "already" in ask(f"tp={plan.of('tp')}").text
    assert ask(f"nodes={plan.of('num_gpus') // 8}").because == "chosen"


def test_a_question_without_a_plan_names_the_limit_with_numbers() -> None:
    late = ask("gpus=32")
    assert late.plan is None
    assert late.because == "deadline"
    assert "days of 30.0" in late.text
    full = ask("tp=1,pp=1,zero=0")
    assert full.because == "memory"
    assert re.search(r"needs \d+\.\d GiB of \d+\.\d", full.text)
    dear = ask("gpu=H20", ("limits.budget", "100k USD"))
    assert "budget" in dear.because
    assert "$" in dear.text


def test_a_value_that_the_search_leaves_out_is_let_in_and_noted() -> None:
    found = ask("tp=8")
    assert found.plan is not None
    assert found.plan.decisions.tp == 8
    assert "not among what the problem's search allows (1, 2, 4)" in found.notes[0]


# ---------------------------------------------------------------------------------------------------
# The command


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(json.dumps(JOB))
    return path


def run(*args: object, columns: int = 100) -> Any:
    return CliRunner().invoke(app, [str(arg) for arg in args], env={"COLUMNS": str(columns)})


NARROW = (
    "-s",
    "search.tp=1",
    "-s",
    "search.micro_batch=1",
    "-s",
    "search.zero=1",
    "-s",
    "hardware.1.nodes.max=2",
)


def test_the_command_explains_a_problem_and_its_solution_alike(file: Path) -> None:
    made = run("solve", file, "-q", *NARROW, "-o", file.parent)
    assert made.exit_code == 0, made.output
    data = json.loads(run("explain", file.parent / "solution.json", "-q", "-f", "json").stdout)
    assert data["plan"] == json.loads((file.parent / "solution.json").read_text())["plans"][0]
    assert {"reasons", "limits", "break_evens", "what_ifs", "sureness"} <= data.keys()
    asked = [
        json.loads(run("explain", *of, "-q", "-w", "pp=4", "-f", "json").stdout)
        for of in ((file, *NARROW), (file.parent / "solution.yaml",))
    ]
    assert asked[0] == asked[1]


def test_a_solution_that_is_not_todays_is_noted(file: Path) -> None:
    run("solve", file, "-q", "-s", "search.tp=2", "-o", file.parent)
    path = file.parent / "solution.json"
    data = json.loads(path.read_text())
    data["problem"]["search"]["tp"] = [1, 2, 4]
    path.write_text(json.dumps(data))
    done = run("explain", path, "-q", "--why", "tp=2")
    assert done.exit_code == 0, done.output
    assert "not the one that is found today" in " ".join(done.stdout.split())


@pytest.mark.parametrize("columns", [80, 120])
def test_the_table_fits_and_has_every_section(columns: int) -> None:
    console = Console(width=columns, file=io.StringIO())
    console.print(explanation_table(explanation()))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, text.splitlines())) <= columns
    for title in ("Why", "Limits moved a little", "Prices that decide", "Other hardware", "How sure"):
        assert title in text
    joined = " ".join(text.split())
    for of in (*explanation().break_evens, *explanation().what_ifs):
        assert " ".join(of.text.split()) in joined


BAD = {
    "tp=3": ["tp", "'3'", "1, 2, 4, 8"],
    "tpp=2": ["tpp", "no such decision", "did you mean 'tp'"],
    "gpu=H2O": ["gpu", "H800, H20", "did you mean 'H20'"],
    "gpus=100": ["num_gpus", "8 to 352 in steps of 8"],
    "recompute=some": ["recompute", "none, selective, full"],
    "ep=2": ["ep", "accepted: 1"],
    "tp": ["'tp'", "NAME=VALUE"],
    "tp=2,tp=4": ["tp", "twice"],
    "nodes=2,gpus=16": ["nodes", "both"],
    "pp=41": ["pp", "1 to 40"],
}  # fmt: skip


@pytest.mark.parametrize("question", BAD)
def test_what_cannot_be_asked_exits_2_with_what_is_accepted(file: Path, question: str) -> None:
    done = run("explain", file, "-q", "--why", question)
    assert done.exit_code == 2
    assert not done.stdout
    for word in BAD[question]:
        assert word in done.stderr
    assert "Traceback" not in done.stderr


def test_the_command_answers_and_shows_why_not(file: Path) -> None:
    done = run("explain", file, "-q", "--why", "tp=2,pp=2")
    assert done.exit_code == 0, done.output
    assert "why not tp=2, pp=2?" in done.stdout
    data = json.loads(run("explain", file, "-q", "--why", "gpus=32", "-f", "json").stdout)
    assert data["plan"] is None
    assert data["because"] == "deadline"


def test_one_part_can_be_asked_for(file: Path) -> None:
    done = run("explain", file, "-q", *NARROW, "--part", "prices")
    assert done.exit_code == 0, done.output
    assert "Prices that decide" in done.stdout
    assert "Other hardware" not in done.stdout
    assert run("explain", file, "-q", "--part", "reasons").exit_code == 2


def test_the_commands_of_the_page_have_options_that_there_are() -> None:
    page = (ROOT / "docs" / "explain.md").read_text(encoding="utf-8")
    lines = re.findall(r"^    planner (explain|compare) (.*)$", page, flags=re.MULTILINE)
    assert len(lines) >= 6
    for verb, rest in lines:
        shown = run(verb, "--help").stdout
        assert all(option in shown for option in re.findall(r"--\w+", rest)), rest


def test_nothing_to_explain_exits_3_with_the_limits(file: Path) -> None:
    done = run("explain", file, "-q", "-s", "limits.deadline=2 days")
    assert done.exit_code == 3
    assert "deadline" in done.stderr


def test_a_broken_solution_file_exits_2(file: Path) -> None:
    run("solve", file, "-q", "-o", file.parent)
    path = file.parent / "solution.json"
    data = json.loads(path.read_text())
    del data["plans"][0]["decisions"]["tp"]
    path.write_text(json.dumps(data))
    done = run("explain", path, "-q")
    assert done.exit_code == 2
    assert "plans.0.decisions.tp" in done.stderr


def test_what_conflicts_is_asked_of_no_set_of_limits_twice() -> None:
    # Llama 13B with all its states on each GPU, and all the time in the world.
    changes = (
        ("search", {"tp": 1, "pp": 1, "cp": 1, "zero": 0, "framework": "any"}),
        ("limits", {"deadline": "9000 days"}),
    )
    instance = instance_of(job(*changes))
    for given in (False, True):
        asked: list[Instance] = []

        def find(
            of: Instance, limits: Limits, objective: Term, mask: Mask | None, asked=asked
        ) -> Plan | None:
            asked.append(of)
            return relaxed.optimum(of, limits, objective, mask)

        assert conflicting(instance, find, given=given) == ("memory",)
        assert len(asked) > 1
        assert all(asked.count(each) == 1 for each in asked)
