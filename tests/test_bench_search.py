"""What `scripts/bench_search.py` measures is the search, on the problems that docs/search.md speaks of."""

from __future__ import annotations

import pytest

from planner.problem import load_problem
from scripts.bench_search import ROOT, Case, cases, search
from scripts.bench_tables import BEGIN, END, PAGE, tables

GPT3 = Case("GPT-3", "scripts/bench/gpt3_1024_a100.yaml")


def test_every_measured_problem_is_on_the_page():
    measured = PAGE.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0]
    assert [case.name for case, _ in cases() if f"| {case.name} |" not in measured] == []


@pytest.mark.parametrize("case", [case for case, _ in cases()], ids=lambda case: case.name)
def test_growing_problems_keep_their_proportions(case):
    problem, whole = case.problem(), load_problem(ROOT / case.path)
    if case.nodes is not None:
        assert problem.hardware[0].max_nodes == case.nodes
    share = problem.hardware[0].max_nodes / whole.hardware[0].max_nodes
    for batch in ("min", "max"):
        found, full = (getattr(of.training.global_batch, batch) for of in (problem, whole))
        assert found == full * share
    assert problem.training.tokens == whole.training.tokens * share


def test_a_search_is_measured_to_its_proof_in_its_own_memory():
    found = search(GPT3)
    assert found["gap"] == 0
    assert found["valid"] > 50_000
    assert found["stage_assignments"] <= found["written"]["candidates"] < found["valid"]
    assert 0 < found["cpu_seconds"] < 60
    assert found["pass_seconds"] < found["all_seconds"]
    assert found["peak_mb"] >= found["peak_mb_before"] > 20


def test_tables_tell_a_lattice_apart_from_what_is_valid_in_it():
    figures = search(GPT3)
    (row,) = [
        line
        for line in tables({"GPT-3": {"search": figures, "solve": figures}}).splitlines()
        if "GPT-3" in line
    ]
    assert f"| {figures['lattice']:.2g} | {figures['valid']:,} |" in row
