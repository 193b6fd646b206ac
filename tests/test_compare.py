"""Two plans side by side: solutions, runs and launch files."""

from __future__ import annotations

import json
from functools import cache
from math import fsum
from pathlib import Path
from typing import Any

import pytest
from small_job import job
from typer.testing import CliRunner

from planner.cli.app import app
from planner.compare import compared
from planner.comparison import Comparison, Side
from planner.importers import Given
from planner.reason_words import part_name
from planner.sides import read_side
from planner.solution import Solution
from planner.solve import solve

DAY = 86400
GIVEN = Given(None, None, None, None, (), {})
RUN: dict[str, Any] = {
    "id": "ours", "model": "llama-2-13b", "seq_len": 4096, "global_batch": 1024, "micro_batch": 1, "gpu": "H800",
    "num_gpus": 64, "tp": 2, "pp": 2, "vpp": 2, "zero_stage": 1, "sequence_parallel": True, "precision": "bf16",
    "recompute": "none", "flash_attention": True, "framework": "Megatron-LM",
}  # fmt: skip
SCRIPT = """torchrun --nproc_per_node 8 --nnodes 8 pretrain_gpt.py --num-layers 40 --hidden-size 5120 \\
  --ffn-hidden-size 13824 --num-attention-heads 40 --swiglu --untie-embeddings-and-output-weights \\
  --seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 1024 \\
  --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 10 \\
  --sequence-parallel --use-distributed-optimizer --bf16 --use-flash-attn --normalization RMSNorm \\
  --vocab-size 32000 --position-embedding-type rope --disable-bias-linear
"""


@cache
def solutions() -> tuple[Solution, Solution]:
    """The small job, and the same with TP 2."""
    return solve(job()), solve(job(("search.tp", 2)))


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    texts = {
        "a.json": solutions()[0].to_json(),
        "b.yaml": solutions()[1].to_yaml(),
        "run.yaml": json.dumps({"runs": [RUN]}),
        "runs.yaml": json.dumps({"runs": [RUN, RUN | {"id": "again", "recompute": "full"}]}),
        "train.sh": SCRIPT,
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    return {name: tmp_path / name for name in texts}


def side(path: object) -> Side:
    return read_side(str(path), GIVEN)


def figure(found: Comparison, name: str) -> tuple[float, float, float]:
    (of,) = [of for of in found.figures if of.name == name]
    return of.a, of.b, of.difference


def test_two_solutions_differ_by_what_they_say_themselves(files: dict[str, Path]) -> None:
    found = compared(side(files["a.json"]), side(files["b.yaml"]))
    a, b = (of.plans[0] for of in solutions())
    assert figure(found, "days") == pytest.approx(
        (a.estimate.days, b.estimate.days, b.estimate.days - a.estimate.days)
    )
    assert figure(found, "dollars")[2] == pytest.approx(b.estimate.dollars - a.estimate.dollars)
    assert figure(found, "memory")[0] == pytest.approx(a.estimate.memory_gib.total)
    told = {of.decision: (of.a, of.b) for of in found.decisions}
    for name in ("tp", "pp", "vpp", "dp", "micro_batch", "num_microbatches", "zero", "recompute"):
        mine, theirs = getattr(a.decisions, name), getattr(b.decisions, name)
        assert told.get(name) == ((mine, theirs) if mine != theirs else None)


def test_parts_add_up_to_the_difference_of_the_runs(files: dict[str, Path]) -> None:
    for one, other in (("a.json", "b.yaml"), ("run.yaml", "a.json"), ("runs.yaml@ours", "runs.yaml@again")):
        folder = files["a.json"].parent
        a, b = side(folder / one), side(folder / other)
        found = compared(a, b, 1e12)
        steps = [1e12 / of.tokens_per_step for of in (a, b)]
        seconds = [n * of.step_time_s for n, of in zip(steps, (a, b), strict=True)]
        per = [1 / DAY] * 2 if found.unit == "days" else [of.num_gpus / 3600 for of in (a, b)]
        assert fsum(part.difference for part in found.parts) == pytest.approx(
            seconds[1] * per[1] - seconds[0] * per[0]
        )
        assert fsum(part.a_s for part in found.parts) == pytest.approx(a.step_time_s)


def test_the_sentence_names_the_part_that_differs_most(files: dict[str, Path]) -> None:
    found = compared(side(f"{files['runs.yaml']}@ours"), side(f"{files['runs.yaml']}@again"))
    most = max(found.parts, key=lambda part: abs(part.difference))
    assert most.part == "recompute"
    assert found.driver == part_name("recompute")
    assert f"recompute: {abs(most.difference):.2f} days more" in found.text
    back = compared(found.b, found.a)
    assert "recompute" in back.text
    assert "less" in back.text
    assert "shorter" in back.text


def test_a_plan_compared_with_itself_differs_in_nothing(files: dict[str, Path]) -> None:
    found = compared(side(files["a.json"]), side(files["a.json"]))
    assert found.decisions == ()
    assert all(of.difference == 0 for of in (*found.figures, *found.parts))
    assert "as long as" in found.text


def test_a_run_is_priced_as_the_solution_s_pool_and_without_failures(files: dict[str, Path]) -> None:
    found = compared(side(files["run.yaml"]), side(files["a.json"]))
    run, plan = found.a, solutions()[0].plans[0]
    days = 1e12 / run.tokens_per_step * run.step_time_s / DAY
    assert figure(found, "days")[:2] == pytest.approx((days, plan.estimate.ideal_days))
    assert figure(found, "dollars")[0] == pytest.approx(64 * 24 * days * 2.0)
    assert any("failures" in note for note in found.notes)


def test_a_launch_script_is_the_run_it_starts(files: dict[str, Path]) -> None:
    launch = read_side(str(files["train.sh"]), Given("H800", None, None, None, (), {}))
    found = compared(side(files["run.yaml"]), launch)
    assert {of.decision for of in found.decisions} <= {"software", "sequence_parallel", "dp_overlap"}
    assert not any("models differ" in note for note in found.notes)
    assert launch.num_gpus == 64


def test_runs_alone_are_compared_over_a_trillion_tokens_or_as_many_as_asked(files: dict[str, Path]) -> None:
    a, b = side(f"{files['runs.yaml']}@ours"), side(f"{files['runs.yaml']}@again")
    usual, asked = compared(a, b), compared(a, b, 2e12)
    assert figure(asked, "days")[0] == pytest.approx(2 * figure(usual, "days")[0])
    assert any("1T tokens" in note for note in usual.notes)
    assert not any("1T tokens" in note for note in asked.notes)


def test_unlike_models_are_noted(files: dict[str, Path]) -> None:
    other = files["run.yaml"].with_name("seven.yaml")
    other.write_text(json.dumps({"runs": [RUN | {"model": "llama-7b", "seq_len": 2048}]}))
    notes = " ".join(compared(side(files["run.yaml"]), side(other)).notes)
    assert "models differ" in notes
    assert "4096 and 2048 tokens" in notes


# ---------------------------------------------------------------------------------------------------
# The command


def run(*args: object, columns: int = 100) -> Any:
    return CliRunner().invoke(app, ["compare", *map(str, args)], env={"COLUMNS": str(columns)})


@pytest.mark.parametrize("columns", [80, 120])
def test_the_table_fits(files: dict[str, Path], columns: int) -> None:
    done = run(files["a.json"], files["b.yaml"], columns=columns)
    assert done.exit_code == 0, done.output
    lines = [line for line in done.stdout.splitlines() if not line.startswith(("A ", "B "))]
    assert max(map(len, lines)) <= columns
    for title in ("Decisions that differ", "What each takes", "Where the time goes"):
        assert title in done.stdout


def test_the_json_is_the_comparison(files: dict[str, Path]) -> None:
    done = run(files["a.json"], files["run.yaml"], "-f", "json")
    assert done.exit_code == 0, done.output
    found = Comparison.model_validate_json(done.stdout)
    assert found == compared(side(files["a.json"]), side(files["run.yaml"]))


def test_a_runner_up_is_found_by_its_gpu(files: dict[str, Path]) -> None:
    done = run(files["a.json"], f"{files['a.json']}@H20", "-f", "json")
    assert done.exit_code == 0, done.output
    data = json.loads(done.stdout)
    assert {of["decision"]: (of["a"], of["b"]) for of in data["decisions"]}["gpu"] == ("H800", "H20")
    assert data["unit"] == "GPU-hours"


def test_what_cannot_be_compared_exits_2_with_what_is_accepted(files: dict[str, Path]) -> None:
    folder = files["a.json"].parent
    (folder / "bad.yaml").write_text(json.dumps({"runs": [RUN | {"gpu": "TPU"}]}))
    for args, words in (
        ((files["a.json"], folder / "none.yaml"), ["none.yaml", "no such file"]),
        ((files["a.json"], files["runs.yaml"]), ["2 runs", "runs.yaml@ours", "runs.yaml@again"]),
        ((files["a.json"], f"{files['runs.yaml']}@agin"), ["'agin'", "did you mean 'again'"]),
        ((files["a.json"], f"{files['a.json']}@B200"), ["'B200'", "@H800", "@H20"]),
        ((files["a.json"], folder / "bad.yaml"), ["bad.yaml", "TPU"]),
        ((files["run.yaml"], files["run.yaml"], "--tokens", "3 GB"), ["--tokens", "3 GB"]),
    ):
        done = run(*args)
        assert done.exit_code == 2, args
        assert not done.stdout
        assert "Traceback" not in done.stderr
        for word in words:
            assert word in done.stderr, (args, done.stderr)
