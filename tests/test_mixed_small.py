"""What is said of small fleets of two and three pools, each sentence held against problems solved anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from planner.cli.app import app
from planner.explained import explained
from planner.explanation import Explanation
from planner.near import value_told
from planner.overrides import apply
from planner.problem import Problem, parse_problem
from planner.report.data import report_data
from planner.solution import Solution
from planner.solve import solve

JOB: dict[str, Any] = {
    "name": "fleet",
    "model": "llama-2-7b",
    "training": {"tokens": "20B", "seq_len": 4096, "global_batch": {"min": "256 sequences", "max": "300 sequences"}},
    "hardware": [
        {"gpu": "H800", "nodes": {"max": 2}, "price": "2.00 USD/gpu-hour"},
        {"gpu": "H20", "nodes": {"max": 3}, "price": "0.80 USD/gpu-hour"},
    ],
    "mixing": {"network": "25 GB/s", "forms": ["replicas"]},
    "limits": {"deadline": "30 days", "budget": "100k USD"},
    "objective": "time",
    "search": {"framework": "any", "tp": [1, 2], "cp": 1, "micro_batch": [1, 2]},
}  # fmt: skip
ALONE: tuple[tuple[str, Any], ...] = (
    ("hardware", [*JOB["hardware"], {"gpu": "A100-80", "nodes": {"max": 2}, "price": "1.00 USD/gpu-hour"}]),
    ("mixing.forms", ["stages", "replicas"]),
    ("objective", "cost"),
    ("limits.deadline", "28 h"),
    ("search", {"framework": "megatron"}),
)
"""With these one pool is the best."""


def job(*changes: tuple[str, Any]) -> Problem:
    return parse_problem(apply(JOB, changes), file="job")


def solved(*changes: tuple[str, Any]) -> Solution:
    return solve(job(*changes))


def told(part: str, *changes: tuple[str, Any]) -> Explanation:
    return explained(job(*changes), parts=(part,))


def test_a_runner_up_is_compared_with_the_plan_that_was_chosen() -> None:
    solution = solved()
    assert solution.plans[0].decisions.mixed == "replicas"
    (other,) = solution.runner_ups
    assert other.plan is not None
    mine, theirs = solution.plans[0].estimate, other.plan.estimate
    assert other.text == (
        f"{theirs.days - mine.days:.1f} days longer and ${theirs.dollars - mine.dollars:,.0f} dearer than the chosen plan."
    )


def test_limits_of_a_plan_on_one_pool_ask_plans_on_two() -> None:
    assert solved(*ALONE).plans[0].decisions.mixed is None
    (move,) = [of for of in told("limits", *ALONE).limits if of.limit == "deadline" and not of.loosened]
    again = solved(*ALONE, ("limits.deadline", "27 h"))
    assert again.status == "optimal"
    assert move.feasible
    assert move.effect["dollars"] == pytest.approx(
        again.plans[0].estimate.dollars - solved(*ALONE).plans[0].estimate.dollars
    )


def test_prices_of_a_plan_on_one_pool_ask_plans_on_two() -> None:
    (h20,) = [of for of in told("prices", *ALONE).break_evens if of.gpu == "H20"]
    assert h20.break_even is not None
    for factor, used in ((0.999, True), (1.001, False)):
        price = ("hardware.1.price", f"{h20.break_even * factor} USD/gpu-hour")
        assert ("H20" in solved(*ALONE, price).plans[0].decisions.gpu) == used


def test_too_little_storage_is_told_with_what_would_do() -> None:
    problem = (("storage", {"capacity": "200 GB"}),)
    conflict = solved(*problem).conflict
    assert conflict is not None
    assert conflict.limits == ("storage",)
    (move,) = [of for of in conflict.relaxations if of.limit == "storage"]
    assert solve(job(("storage", {"capacity": str(move.to)}))).status == "optimal"
    size, unit = str(move.to).split()
    assert solve(job(("storage", {"capacity": f"{float(size) * 0.99} {unit}"}))).status == "infeasible"


SAME = (("hardware.1", {"gpu": "H800", "nodes": {"max": 3}, "price": "1.50 USD/gpu-hour"}),)
"""Two pools of one GPU at prices of their own."""


def test_two_pools_of_one_gpu_have_bars_and_lanes_of_their_own() -> None:
    solution = solved(*SAME)
    data = report_data(solution)
    assert data.ranks is not None
    assert len(set(data.ranks.names)) == len(data.ranks.names)
    assert data.ranks.names[0] == "H800 (1) 0"


def test_two_pools_of_one_gpu_are_that_gpu(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(json.dumps(apply(JOB, SAME)), encoding="utf-8")
    said = CliRunner().invoke(app, ["explain", str(file), "--why", "gpu=H800", "--quiet"])
    assert "has GPU type H800 already" in said.output
    moved = {of.text.split(":")[0] for of in told("limits", *SAME).limits if "fewer" in of.text}
    assert {"8 fewer H800 (pool 1) (1 node)", "8 fewer H800 (pool 2) (2 nodes)"} <= moved


def test_a_price_of_energy_is_in_energy() -> None:
    changes = (("objective", "energy"), ("limits.deadline", "40 h"))
    units = {of.price_unit for of in told("limits", *changes).limits if of.limit == "deadline"}
    assert units == {"kWh an hour"}


def test_a_switch_is_told_in_the_word_that_requirements_take() -> None:
    plan = solved().plans[0]
    assert value_told(plan, "ep_overlap") == "off"


def test_one_pool_only_is_asked_for_in_words(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(json.dumps(apply(JOB, (("limits.deadline", "24 h"),))), encoding="utf-8")
    said = CliRunner().invoke(app, ["explain", str(file), "--why", "mixed=none", "--quiet"])
    assert "one pool only: the fastest takes" in " ".join(said.output.split())
