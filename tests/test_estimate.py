"""Estimates of runs: the parts sum to the whole, and the command prints what it promises."""

from __future__ import annotations

import json
from dataclasses import replace
from math import fsum
from pathlib import Path
from typing import Any

import pytest
from test_runs import MOE, PLAIN
from time_runs import some_run
from typer.testing import CliRunner

from costmodel.estimate import ASSUMED, estimate
from costmodel.memory.overhead import memory_limit
from costmodel.pipeline import stage_split
from costmodel.rates import stage_rates
from costmodel.step import step_time
from planner.cli.app import app
from planner.confidence import band_of
from planner.estimates import CATEGORIES, reported
from planner.runs import describe

LAYOUTS: list[dict[str, Any]] = [
    {},
    {"recompute": "full"},
    {"recompute": "selective", "recompute_detail": "modules: core_attn, mlp"},
    {"pp": 8, "vpp": 2, "embedding_slots": True},
    {"cp": 2},
    {
        "framework": "torchtitan (FSDP2)",
        "tp": 1,
        "pp": 1,
        "zero_stage": 3,
        "num_gpus": 64,
        "recompute": "full",
    },
    {"precision": "fp8"},
]


def predicted(**changes: Any) -> dict[str, Any]:
    (result,) = reported([describe(PLAIN | changes)])
    return result


@pytest.mark.parametrize("changes", LAYOUTS)
def test_the_breakdown_sums_to_the_step(changes: dict[str, Any]) -> None:
    result = predicted(**changes)
    assert fsum(result["breakdown_s"].values()) == result["step_time_s"]
    assert min(result["breakdown_s"].values()) >= -1e-12


@pytest.mark.parametrize("changes", LAYOUTS)
def test_the_estimate_is_the_step_time_of_the_cost_model(changes: dict[str, Any]) -> None:
    described = describe(PLAIN | changes)
    run = described.run  # type: ignore[union-attr]
    split = stage_split(
        run.architecture, run.pp, run.vpp, run.num_microbatches, described.layers, described.recomputed
    )  # type: ignore[union-attr]
    step = step_time(stage_rates(run), split, run.num_microbatches, run.pp, run.vpp)
    assert predicted(**changes)["step_time_s"] == pytest.approx(float(step.total))


@pytest.mark.parametrize("changes", LAYOUTS)
def test_memory_by_category_sums_to_the_total(changes: dict[str, Any]) -> None:
    memory = predicted(**changes)["memory_gib"]
    assert tuple(memory) == CATEGORIES
    assert fsum(memory[name] for name in CATEGORIES[:-1]) == pytest.approx(memory["total"])


def test_a_run_fits_when_its_fullest_rank_stays_within_the_limit() -> None:
    small, large = predicted(), predicted(num_gpus=8, pp=1, tp=8)
    assert small["fits"]
    assert not large["fits"]
    run = describe(PLAIN).run  # type: ignore[union-attr]
    assert small["memory_gib"]["total"] * 2**30 <= memory_limit(run.gpu, run.stack.memory)


def test_recompute_raises_hfu_over_mfu_and_nothing_else_does() -> None:
    kept, again = predicted(), predicted(recompute="full")
    assert kept["hfu"] == kept["mfu"]
    assert again["hfu"] == pytest.approx(again["mfu"] * 4 / 3, rel=0.05)
    assert again["step_time_s"] > kept["step_time_s"]


def test_mfu_counts_model_flops_against_the_dense_bf16_peak() -> None:
    fp8 = predicted(precision="fp8")
    assert fp8["mfu"] == pytest.approx(fp8["model_tflops_per_gpu"] / 989)
    tokens = 512 * 4096 / 128 / fp8["step_time_s"]
    assert fp8["tokens_per_s_per_gpu"] == pytest.approx(tokens)


def test_an_agreed_mfu_takes_the_place_of_the_model() -> None:
    run = some_run()
    told = estimate(run, [40, 40], assume_mfu=0.4, nominal_parameters=70e9)
    tokens = float(run.tokens_per_step)
    assert told.step_time == pytest.approx(6 * 70e9 * tokens / (float(run.num_gpus) * 989e12 * 0.4))
    assert list(told.breakdown) == [ASSUMED]
    assert predicted(assume_mfu=0.4)["breakdown_s"].keys() == {ASSUMED}


def test_the_band_holds_the_estimate_and_widens_with_distance() -> None:
    near = some_run(dp=8)
    far = replace(near, seq_len=2**22, tp=64, dp=4096)
    assert band_of(near).low < 1 < band_of(near).high
    assert band_of(far).evidence == "weak"
    assert band_of(far).high - band_of(far).low > band_of(near).high - band_of(near).low


def test_a_refused_row_has_an_id_and_an_error_only() -> None:
    good, bad = reported([describe(PLAIN), describe(PLAIN | {"id": "no", "gpu": "TPU"})])
    assert good["id"] == "mine"
    assert bad.keys() == {"id", "error"}


def test_what_the_gpu_cannot_do_is_a_refused_row() -> None:
    assert "no such tensor cores" in predicted(gpu="A100", precision="fp8")["error"]


def test_a_mixture_of_experts_shows_its_dispatch() -> None:
    (result,) = reported([describe(MOE)])
    assert result["breakdown_s"]["ep"] > 0
    assert fsum(result["breakdown_s"].values()) == result["step_time_s"]


FROZEN = [
    "id", "step_time_s", "tokens_per_s_per_gpu", "model_tflops_per_gpu", "mfu", "hfu", "interval_80", "evidence",
    "fits", "memory_gib", "breakdown_s", "warnings",
]  # fmt: skip


def test_the_command_prints_one_object_a_run(tmp_path: Path) -> None:
    file = tmp_path / "runs.yaml"
    file.write_text(json.dumps({"runs": [PLAIN, PLAIN | {"id": "no", "gpu": "TPU"}, MOE]}))
    done = CliRunner().invoke(app, ["estimate", str(file), "--format", "json"])
    assert done.exit_code == 0, done.output
    results = json.loads(done.stdout)
    assert [result["id"] for result in results] == ["mine", "no", "mine"]
    assert list(results[0]) == FROZEN
    assert list(results[1]) == ["id", "error"]
    low, high = results[0]["interval_80"]
    assert low < results[0]["step_time_s"] < high


def test_the_table_says_what_was_assumed_on_stderr(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(json.dumps(PLAIN | {"micro_batch": None}))
    done = CliRunner().invoke(app, ["estimate", str(file)])
    assert done.exit_code == 0
    assert "mine" in done.stdout
    assert "mine: micro_batch: not given; 1" in done.stderr


def test_a_file_without_runs_is_invalid_input(tmp_path: Path) -> None:
    file = tmp_path / "runs.yaml"
    file.write_text("runs: 5\n")
    done = CliRunner().invoke(app, ["estimate", str(file)])
    assert done.exit_code == 2
    assert "runs: found 5" in done.stderr
