"""The example problems, solved again: the kept solutions are what the planner says today."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.problem import load_problem
from planner.solution import read_solution
from planner.solve import solve
from planner.validate import violations

ROOT = Path(__file__).parent.parent
NAMES = sorted(path.stem for path in (ROOT / "problems").glob("*.yaml"))
SLOW = {"deepseek_v2_8T_1024h800", "moe_1.8T_15T"}
"""Mixtures of experts: their spaces are the largest."""
CASES = [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in NAMES]


def kept(name):
    return read_solution(ROOT / "solutions" / f"{name}.yaml")


def problem(name):
    return load_problem(ROOT / "problems" / f"{name}.yaml")


def test_each_problem_has_its_solution_and_no_solution_is_left_over():
    assert sorted(path.stem for path in (ROOT / "solutions").glob("*.yaml")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_kept_plan_passes_the_validator(name):
    solution = kept(name)
    assert solution.plans
    plans = [*solution.plans, *(other.plan for other in solution.runner_ups if other.plan)]
    assert [wrong for plan in plans for wrong in violations(problem(name), plan)] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_kept_solution_answers_the_problem_as_it_is_now(name):
    assert kept(name).provenance.problem_hash == problem(name).problem_hash


@pytest.mark.parametrize("name", CASES)
def test_solving_again_gives_the_kept_objective_and_bounds(name):
    before, now = kept(name), solve(problem(name))
    assert (now.status, now.proof.gap) == (before.status, pytest.approx(before.proof.gap, abs=1e-9))
    assert now.status == "optimal"
    assert now.proof.valid == before.proof.valid
    # What is compared is how good the plan is: equally good ones may differ.
    old, new = before.plans[0].estimate, now.plans[0].estimate
    assert (new.days, new.dollars) == (
        pytest.approx(old.days, rel=1e-6),
        pytest.approx(old.dollars, rel=1e-6),
    )
    assert violations(problem(name), now.plans[0]) == []
