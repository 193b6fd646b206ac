"""Sweeps of problems whose plans may use two pools: each line is the better one of both searches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from planner.cli.app import app
from planner.mixed import best_of_pairs
from planner.mixed.reasons import told
from planner.overrides import apply
from planner.problem import parse_problem
from planner.resolve import instance_of
from planner.sweep.parquet import row
from planner.variants import best_plan

JOB: dict[str, Any] = {
    "name": "fleet",
    "model": "llama-2-7b",
    "training": {"tokens": "300B", "seq_len": 4096, "global_batch": "512 sequences"},
    "hardware": [
        {"gpu": "H800", "nodes": 4, "price": "2 USD/gpu-hour"},
        {"gpu": "H20", "nodes": 4, "price": "0.8 USD/gpu-hour"},
    ],
    "objective": "time",
    "search": {"tp": [1, 2], "cp": 1, "micro_batch": [1, 2], "pp": [1, 2, 4], "framework": "any"},
    "mixing": {"network": "25 GB/s"},
}


def lines_of(folder: Path, *varied: str, jobs: int = 1) -> list[dict[str, Any]]:
    file = folder / "fleet.yaml"
    file.write_text(yaml.safe_dump(JOB), encoding="utf-8")
    options = [word for each in varied for word in ("--vary", each)]
    out = folder / f"out{jobs}"
    done = CliRunner().invoke(
        app, ["sweep", str(file), *options, "--jobs", str(jobs), "--quiet", "--output", str(out)]
    )
    assert done.exit_code == 0, done.output
    assert "one pool each" not in done.output + done.stderr
    text = (out / "results.jsonl").read_text(encoding="utf-8")
    return sorted(map(json.loads, text.splitlines()), key=lambda line: line["index"])


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    varied = ("objective=time,cost", "hardware.1.nodes=2,4", "limits.budget=null,60k USD,20k USD")
    return lines_of(tmp_path_factory.mktemp("sweep"), *varied)


def test_every_what_if_is_the_better_one_of_both_searches(lines: list[dict[str, Any]]) -> None:
    assert len(lines) == 12
    for line in lines:
        instance = instance_of(parse_problem(apply(JOB, line["overrides"].items())))
        plans = [plan for plan in (best_plan(instance), best_of_pairs(instance).best) if plan is not None]
        assert (line["status"] == "optimal") == bool(plans)
        if not plans:
            continue
        name = "dollars" if line["overrides"]["objective"] == "cost" else "days"
        plan = min((told(instance, plan) for plan in plans), key=lambda of: getattr(of.estimate, name))
        assert line["decisions"]["mixed"] == plan.decisions.mixed
        assert line["decisions"]["num_gpus"] == plan.decisions.num_gpus
        for name in ("days", "dollars"):
            assert line["estimate"][name] == pytest.approx(getattr(plan.estimate, name), rel=1e-9)


def test_what_ifs_are_mixed_where_two_pools_are_quicker_and_single_where_one_is_cheaper(
    lines: list[dict[str, Any]],
) -> None:
    mixed = [line["decisions"]["mixed"] for line in lines if line["status"] == "optimal"]
    assert None in mixed
    assert any(mixed)
    assert {row(line)["mixed"] for line in lines} >= {None}
    assert all(line["proof"]["mixing"]["gap"] == 0 for line in lines)
