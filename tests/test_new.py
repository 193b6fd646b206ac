"""`planner new`: a commented problem file from flags, or from questions in a terminal."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml
from typer.testing import CliRunner

from planner.cli import new as verb
from planner.cli.app import app
from planner.draft import pool_answer, scalar
from planner.errors import Refused
from planner.problem import load_problem

FLAGS = ("--model", "llama-2-70b", "--tokens", "3T", "--seq-len", "4096", "--gpu", "H800:128nodes@2.00")
LIMITS = ("--deadline", "60 days", "--budget", "2M USD")
CONFIG = Path(__file__).parent / "data" / "huggingface" / "qwen3-8b.json"


def run(*args: object, answers: str | None = None):
    return CliRunner().invoke(app, ["new", *map(str, args)], input=answers)


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setattr(verb, "interactive", lambda: True)


def test_flags_become_a_file_that_the_planner_reads(tmp_path):
    path = tmp_path / "job.yaml"
    result = run(*FLAGS, "--gpu", "H20:2048gpus", *LIMITS, "--output", path)
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    assert f"planner solve {path}" in result.stderr
    problem = load_problem(path)
    assert problem.model.base == "llama-2-70b"
    assert (problem.training.tokens, problem.training.seq_len) == (3 * 10**12, 4096)
    assert [(pool.accelerator.name, pool.max_nodes, pool.price) for pool in problem.hardware] == [
        ("H800", 128, 2.0),
        ("H20", 256, 0.8),
    ]
    assert (problem.limits.deadline, problem.limits.budget) == (60 * 86400, 2e6)
    assert problem.objective.goals == ("cost",)
    assert problem.name == "llama-2-70b_3T"


def test_the_file_explains_itself(tmp_path):
    run(*FLAGS, "--budget", "2M USD", "-o", tmp_path / "p.yaml")
    text = (tmp_path / "p.yaml").read_text(encoding="utf-8")
    for says in ("planner solve p.yaml", "68.98B parameters, 80 layers", "# deadline: 60 days", "# search:"):
        assert says in text
    assert max(map(len, text.splitlines())) <= 120


def test_every_commented_line_is_a_line_that_could_be_used(tmp_path):
    run(*FLAGS, "--deadline", "60 days", "-o", tmp_path / "p.yaml")
    text = (tmp_path / "p.yaml").read_text(encoding="utf-8")
    for key in ("budget", "search", "scenarios"):
        text = text.replace(f"# {key}:", f"{key}:")
    (tmp_path / "p.yaml").write_text(text, encoding="utf-8")
    problem = load_problem(tmp_path / "p.yaml")
    assert problem.limits.budget == 2e6
    assert problem.search.tp == (1, 2, 4, 8)
    assert problem.scenarios == {"dearer": {"hardware.0.price": "2.50 USD/gpu-hour"}}


@pytest.mark.parametrize(("flags", "goal"), [((), "time"), (LIMITS[:2], "cost"), (LIMITS[2:], "time")])
def test_without_a_deadline_the_fastest_plan_is_asked_for(flags, goal, tmp_path):
    run(*FLAGS, *flags, "-o", tmp_path / "p.yaml")
    assert load_problem(tmp_path / "p.yaml").objective.goals == (goal,)
    run(*FLAGS, *flags, "--objective", "cost", "--force", "-o", tmp_path / "p.yaml")
    assert load_problem(tmp_path / "p.yaml").objective.goals == ("cost",)


@pytest.mark.parametrize(
    ("written", "sequences"),
    [("4Mi tokens", (1024, 1024)), ("640 sequences", (640, 640)), ("2M..6M tokens", (489, 1464))],
)
def test_a_batch_is_one_value_or_a_range(written, sequences, tmp_path):
    run(*FLAGS, "--global-batch", written, "-o", tmp_path / "p.yaml")
    batch = load_problem(tmp_path / "p.yaml").training.global_batch
    assert (batch.min, batch.max) == sequences


def test_a_config_is_named_relative_to_the_file_that_is_written(tmp_path, monkeypatch):
    (tmp_path / "models").mkdir()
    (tmp_path / "jobs").mkdir()
    (tmp_path / "models" / "mine.json").write_text(CONFIG.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    flags = ("--model", "models/mine.json", *FLAGS[2:])
    assert run(*flags, "-o", "jobs/p.yaml").exit_code == 0
    assert "model: ../models/mine.json" in (tmp_path / "jobs" / "p.yaml").read_text(encoding="utf-8")
    assert load_problem(tmp_path / "jobs" / "p.yaml").model.architecture.layers == 36


def test_a_dash_writes_the_file_to_stdout_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*FLAGS, "-o", "-")
    assert yaml.safe_load(result.stdout)["model"] == "llama-2-70b"
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_not_overwritten_without_force(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text("mine", encoding="utf-8")
    result = run(*FLAGS, "-o", path)
    assert result.exit_code == 2
    assert "is there already" in result.stderr
    assert "--force" in result.stderr
    assert path.read_text(encoding="utf-8") == "mine"
    assert run(*FLAGS, "-o", path, "--force").exit_code == 0
    assert load_problem(path).name == "llama-2-70b_3T"
    assert [each.name for each in tmp_path.iterdir()] == ["p.yaml"]


def test_a_folder_or_one_that_is_not_there_is_no_place_for_the_file(tmp_path):
    for flags in ((), ("--force",)):
        folder = run(*FLAGS, "-o", tmp_path, *flags)
        assert (folder.exit_code, "is a folder" in folder.stderr) == (2, True)
    nowhere = run(*FLAGS, "-o", tmp_path / "no" / "p.yaml")
    assert (nowhere.exit_code, "cannot be written" in nowhere.stderr) == (2, True)


def test_without_a_terminal_what_is_missing_is_named(tmp_path):
    result = run("--tokens", "3T", "-o", tmp_path / "p.yaml")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "missing --model, --seq-len, --gpu\n" in result.stderr
    assert list(tmp_path.iterdir()) == []


BAD = [
    (("--model", "lama-2-70b"), ["--model", "'lama-2-70b'", "did you mean 'llama-2-70b'"]),
    (("--model", "./no.json"), ["--model", "no.json: no such file"]),
    (("--tokens", "many"), ["--tokens", "'many'", "3T"]),
    (("--seq-len", "4K"), ["--seq-len", "'4K'", "4Ki"]),
    (("--gpu", "H8O0:4nodes"), ["--gpu", "'H8O0'", "did you mean 'H800'"]),
    (("--gpu", "H800"), ["--gpu", "'H800'", "H800:128nodes@2.00"]),
    (("--gpu", "H800:128"), ["--gpu", "GPU:COUNTnodes"]),
    (("--gpu", "H800:0nodes"), ["--gpu", "1 or more"]),
    (("--gpu", "H800:4gpus"), ["--gpu", "less than a node of 8"]),
    (("--gpu", "H800:4nodes@cheap"), ["--gpu", "'cheap'", "USD/gpu-hour"]),
    (("--deadline", "60"), ["--deadline", "without a unit"]),
    (("--budget", "2M"), ["--budget", "2M USD"]),
    (("--objective", "prize"), ["--objective", "cost, time"]),
    (("--global-batch", "1024"), ["--global-batch", "say tokens or sequences"]),
    (("--tokens", "1M"), ["new", "training.tokens", "less than one batch"]),
]  # fmt: skip


@pytest.mark.parametrize(("flags", "says"), BAD, ids=[" ".join(flags) for flags, _ in BAD])
def test_a_bad_flag_exits_2_and_writes_nothing(flags, says, tmp_path):
    kept = [each for each in zip(FLAGS[::2], FLAGS[1::2], strict=True) if each[0] != flags[0]]
    result = run(*(word for pair in kept for word in pair), *flags, "-o", tmp_path / "p.yaml")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.count("planner: ") == 1
    for each in says:
        assert each in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_in_a_terminal_it_asks_for_what_is_missing_and_again_where_an_answer_is_no_use(terminal, tmp_path):
    answers = ["lama", "llama-2-7b", "", "8192", "", "H800", "H800:16nodes@2", "H20:8nodes", "", "", "1M USD"]
    result = run("-o", tmp_path / "p.yaml", answers="\n".join(answers) + "\n")
    assert result.exit_code == 0, result.output
    assert "did you mean" in result.stderr
    assert "Training tokens" in result.stderr
    assert "Training tokens" not in result.stdout
    problem = load_problem(tmp_path / "p.yaml")
    assert (problem.model.base, problem.training.tokens, problem.training.seq_len) == (
        "llama-2-7b",
        3e12,
        8192,
    )
    assert [pool.max_nodes for pool in problem.hardware] == [16, 8]
    assert (problem.limits.deadline, problem.limits.budget) == (None, 1e6)


def test_in_a_terminal_flags_are_not_asked_for_and_nothing_is_asked_when_all_are_there(terminal, tmp_path):
    result = run(*FLAGS, "-o", tmp_path / "p.yaml", answers="")
    assert result.exit_code == 0
    partly = run(*FLAGS[:6], *LIMITS, "-o", tmp_path / "q.yaml", answers="\nH800:4nodes\n\n")
    assert partly.exit_code == 0, partly.output
    assert "Model" not in partly.stderr
    assert load_problem(tmp_path / "q.yaml").hardware[0].max_nodes == 4


@pytest.mark.parametrize(
    ("written", "unit", "count", "price"),
    [
        ("H800:128nodes@2.00", "nodes", 128, 2.0),
        ("h20: 1,024 gpus @ $0.80", "gpus", 1024, 0.8),
        ("A100:1node", "nodes", 1, None),
        ("H100:8nodes@1.9 USD/gpu-hour", "nodes", 8, 1.9),
    ],
)
def test_a_pool_is_written_in_one_word(written, unit, count, price):
    pool = pool_answer(written)
    assert (pool.unit, pool.count, pool.price) == (unit, count, price)


@pytest.mark.parametrize(
    "written", ["", ":", "H800:", "H800:@2", "H800:1.5nodes", "H800:nodes", "H800:1racks"]
)
def test_anything_else_is_no_pool(written):
    with pytest.raises(Refused):
        pool_answer(written)


@pytest.mark.parametrize(
    "text", ["llama", "a b", "a: b", "#x", "3T", "'", "ü", "- x", "../m/c.json", " a", "a #b"]
)
def test_any_text_comes_out_of_yaml_as_it_went_in(text):
    assert yaml.safe_load(f"key: {scalar(text)}   # remark") == {"key": text}


def test_the_written_problem_fits_the_schema(tmp_path):
    run(*FLAGS, *LIMITS, "-o", tmp_path / "p.yaml")
    schema = json.loads(CliRunner().invoke(app, ["schema"]).stdout)
    jsonschema.validate(yaml.safe_load((tmp_path / "p.yaml").read_text(encoding="utf-8")), schema)
