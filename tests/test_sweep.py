"""`planner sweep`: what is asked, what is written, and that nothing is lost or done twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from planner.cli.app import app
from planner.errors import InvalidInput
from planner.solution import Decisions, Estimate
from planner.sweep import executors
from planner.sweep.plan import shard
from planner.sweep.points import parse_vary, points
from planner.sweep.store import Store, read_lines

ROOT = Path(__file__).parent.parent
SWEEP = "from planner.cli import main; main()"
TEXT = """
model: llama-7b
training: {tokens: 20B, seq_len: 4096, global_batch: 256 sequences}
hardware:
  - {gpu: H800, nodes: {max: 8}, price: 2.00 USD/gpu-hour}
  - {gpu: H20, nodes: {max: 8}, price: 0.80 USD/gpu-hour}
limits: {deadline: 20 days, budget: 50k USD}
search: {tp: [1, 2], cp: 1, pp: [1, 2], vpp: 1, micro_batch: [1, 2]}
scenarios:
  h20_cheap: {hardware.1.price: 0.50 USD/gpu-hour}
  quick: {objective: time, limits.deadline: 10 days}
"""
BUDGETS = "limits.budget=2k USD:20k USD:10"


@pytest.fixture
def problem(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(TEXT, encoding="utf-8")
    return path


def run(*args, jobs=1):
    return CliRunner().invoke(app, ["sweep", *map(str, args), "--jobs", str(jobs)])


def lines(folder):
    found = [line for path in sorted(folder.glob("*.jsonl")) for line in read_lines(path)]
    return sorted(found, key=lambda line: line["index"])


def content(found):
    """Lines without what differs from run to run."""
    return [{key: value for key, value in line.items() if key != "seconds"} for line in found]


# --- what is asked --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("limits.budget=1M USD:3M USD:5", ["1000000 USD", "1500000 USD", "2000000 USD", "2500000 USD", "3000000 USD"]),
        ("limits.budget=500k USD:2M USD:4", ["500000 USD", "1000000 USD", "1500000 USD", "2000000 USD"]),
        ("hardware.0.price=$1/gpu-hour:$2/gpu-hour:3", ["1 USD/gpu-hour", "1.5 USD/gpu-hour", "2 USD/gpu-hour"]),
        ("hardware.0.nodes.max=16:128:8", [16, 32, 48, 64, 80, 96, 112, 128]),
        ("limits.memory_headroom=0:0.1:3", [0, 0.05, 0.1]),
        ("limits.deadline=60 days:30 days:4", ["60 days", "50 days", "40 days", "30 days"]),
        ("training.seq_len=4Ki:8Ki:2", [4096, 8192]),
        ("limits.budget='1,500,000 USD',2M USD", ["1,500,000 USD", "2M USD"]),
        ("limits.deadline=30 days:60 days:2,90 days,null", ["30 days", "60 days", "90 days", None]),
        ("objective=cost,[time, cost],{cost: 1, time: 20k USD/day}", ["cost", ["time", "cost"], {"cost": 1, "time": "20k USD/day"}]),
        ("search.tp=1,1,[2, 4]", [1, [2, 4]]),
        ("limits.budget=2M USD:3M USD:1", ["2000000 USD"]),
    ],
)  # fmt: skip
def test_values_are_read_with_their_units(text, values):
    assert list(parse_vary(text).values) == values


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("limits.budget", "is not a key with values"),
        ("limits.budget=", "is not a key with values"),
        ("=1,2", "is not a key with values"),
        ("limits.budget=1M USD,,2M USD", "an empty value between commas"),
        ("limits.budget=1M USD:3M USD:0", "whole NUM"),
        ("limits.budget=1M USD:3M USD:2.5", "whole NUM"),
        ("limits.budget=1M USD:3 days:5", "different units"),
        ("hardware.0.nodes={max: 3", "not valid YAML"),
    ],
)
def test_what_is_no_list_of_values_is_refused(text, words):
    with pytest.raises(InvalidInput, match=words):
        parse_vary(text)


def test_a_grid_is_every_combination_and_pairs_are_not():
    varied = [parse_vary("limits.budget=1M USD,2M USD"), parse_vary("hardware.0.nodes.max=1,2")]
    assert [dict(point.overrides) for point in points(varied)] == [
        {"limits.budget": budget, "hardware.0.nodes.max": most}
        for budget in ("1M USD", "2M USD")
        for most in (1, 2)
    ]
    assert [dict(point.overrides) for point in points(varied, paired=True)] == [
        {"limits.budget": "1M USD", "hardware.0.nodes.max": 1},
        {"limits.budget": "2M USD", "hardware.0.nodes.max": 2},
    ]
    with_scenarios = points(varied, {"a": {"limits.budget": "9M USD"}, "b": {}})
    assert len(with_scenarios) == 8
    assert [point.index for point in with_scenarios] == list(range(8))
    assert len({point.id for point in with_scenarios}) == 8
    # What is varied wins over the scenario.
    assert dict(with_scenarios[0].overrides)["limits.budget"] == "1M USD"


def test_shards_are_all_what_ifs_once_and_of_like_size():
    classes = [[points([parse_vary(f"a={k}")])[0] for k in range(n)] for n in (7, 1, 1, 12, 3)]
    for number in (1, 2, 3, 5, 24, 30):
        parts = [[point for of in shard(classes, i, number) for point in of] for i in range(1, number + 1)]
        assert [point for part in parts for point in part] == [point for of in classes for point in of]
        sizes = [len(part) for part in parts]
        assert max(sizes) - min(sizes) <= 1


# --- what is wrong --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--vary", "limits.budgt=1M USD,2M USD"], ["limits.budgt", "unknown key", "did you mean 'budget'"]),
        (["--vary", "hardware.2.price=1 USD/gpu-hour"], ["hardware.2", "no such entry", "from 0 to 1"]),
        (["--vary", "hardware.0.nodes={mx: 3},{max: 4}"], ["hardware.0.nodes.mx", "did you mean 'max'"]),
        (["--vary", "limits.deadline.days=3"], ["limits.deadline", "nothing inside"]),
        (["--vary", BUDGETS, "--vary", BUDGETS], ["limits.budget", "varied twice"]),
        (["--vary", BUDGETS, "--vary", "objective=cost,time", "--paired"], ["--paired", "has 10", "has 2"]),
        ([], ["nothing varies", "--vary", "--scenarios"]),
        (["--scenario", "h20_cheep"], ["no such scenario", "did you mean 'h20_cheap'"]),
        (["--vary", BUDGETS, "--shard", "0/4"], ["--shard 0/4", "from 1 to N"]),
        (["--vary", BUDGETS, "--shard", "5/4"], ["--shard 5/4", "from 1 to N"]),
        (["--vary", BUDGETS, "--executor", "slurm"], ["--executor slurm", "dask://HOST:PORT"]),
        (["--vary", "limits.budget=1:2000:2000", "--vary", "training.tokens=1B:2B:2000"], ["what-ifs", "at most"]),
    ],
)  # fmt: skip
def test_typos_are_found_before_anything_runs(problem, tmp_path, args, words):
    result = run(problem, *args, "-o", tmp_path / "out")
    assert result.exit_code == 2, result.output
    assert [word for word in words if word not in result.stderr] == []
    assert "Traceback" not in result.output
    assert lines(tmp_path / "out") == []


def test_a_problem_without_scenarios_says_so(problem, tmp_path):
    problem.write_text(TEXT.split("scenarios:")[0], encoding="utf-8")
    result = run(problem, "--scenarios", "-o", tmp_path / "out")
    assert result.exit_code == 2
    assert "the problem has no scenarios" in result.stderr


def test_one_bad_point_does_not_stop_the_rest(problem, tmp_path):
    result = run(problem, "--vary", "limits.deadline=20 days,-1 days,30 days", "-o", tmp_path / "out")
    assert result.exit_code == 0
    good, bad, other = lines(tmp_path / "out")
    assert (good["status"], bad["status"], other["status"]) == ("optimal", "error", "optimal")
    assert "limits.deadline" in bad["error"]
    assert "'-1 days'" in bad["error"]
    assert "not positive" in bad["error"]
    assert "decisions" not in bad
    assert "1 error, 2 optimal" in result.stdout


def test_a_defect_is_a_line_too_and_tried_again(problem, tmp_path, monkeypatch):
    from planner.sweep import answer

    def broken(*args):
        raise ZeroDivisionError("halves of nothing")

    args = (problem, "--vary", "limits.deadline=20 days,30 days", "-o", tmp_path / "out")
    with monkeypatch.context() as patched:
        patched.setattr(answer, "outcome", broken)
        result = run(*args)
    assert result.exit_code == 1
    assert [line["status"] for line in lines(tmp_path / "out")] == ["failed", "failed"]
    assert "2 x ZeroDivisionError: halves of nothing" in result.stdout
    assert run(*args).exit_code == 0
    known = Store(tmp_path / "out").lines().values()
    assert [line["status"] for line in known] == ["optimal", "optimal"]


# --- what comes out -------------------------------------------------------------------------------------


def test_every_line_says_what_planner_solve_says(problem, tmp_path):
    prices = "hardware.1.price=0.5 USD/gpu-hour,1.5 USD/gpu-hour"
    most = "hardware.0.nodes.max=2,8"
    result = run(problem, "--vary", prices, "--vary", most, "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output
    found = lines(tmp_path / "out")
    assert len(found) == 4
    for line in found:
        changes = [part for key, value in line["overrides"].items() for part in ("-s", f"{key}={value}")]
        alone = json.loads(
            CliRunner().invoke(app, ["solve", str(problem), *changes, "-f", "json", "-q"]).stdout
        )
        plan = alone["plans"][0]
        assert line["status"] == alone["status"] == "optimal"
        assert line["estimate"]["dollars"] == pytest.approx(plan["estimate"]["dollars"], rel=1e-6)
        assert line["estimate"]["days"] == pytest.approx(plan["estimate"]["days"], rel=1e-6)
        same = ("gpu", "num_gpus", "tp", "pp", "dp", "micro_batch", "zero", "recompute")
        assert [line["decisions"][name] for name in same] == [plan["decisions"][name] for name in same]
        assert line["proof"]["valid"] == alone["proof"]["valid"]
        assert line["seconds"] >= 0
        Decisions.model_validate(line["decisions"])
        Estimate.model_validate(line["estimate"])


def test_what_does_not_fit_names_the_conflict(problem, tmp_path):
    result = run(problem, "--vary", "limits.budget=10 USD,50k USD", "-o", tmp_path / "out")
    assert result.exit_code == 0
    none, some = lines(tmp_path / "out")
    assert (none["status"], some["status"]) == ("infeasible", "optimal")
    assert none["conflict"]["limits"] == ["budget"]
    assert none["conflict"]["relaxations"][0]["limit"] == "budget"
    assert none["conflict"]["relaxations"][0]["from"] == "$10.00"
    assert none["values"] == {"limits.budget": 10.0}


def test_scenarios_run_alone_and_with_what_varies(problem, tmp_path):
    assert run(problem, "--scenarios", "-o", tmp_path / "all").exit_code == 0
    assert [line["scenario"] for line in lines(tmp_path / "all")] == ["h20_cheap", "quick"]
    assert lines(tmp_path / "all")[1]["overrides"] == {"objective": "time", "limits.deadline": "10 days"}
    assert run(problem, "--scenario", "quick", "--vary", "hardware.0.nodes.max=4,8", "-o",
               tmp_path / "one").exit_code == 0  # fmt: skip
    found = lines(tmp_path / "one")
    assert [(line["scenario"], line["overrides"]["hardware.0.nodes.max"]) for line in found] == [
        ("quick", 4), ("quick", 8),
    ]  # fmt: skip
    assert found[0]["estimate"]["days"] > found[1]["estimate"]["days"]


def test_a_range_of_whole_things_is_rounded_to_whole_things(problem, tmp_path):
    assert run(problem, "--vary", "hardware.0.nodes.max=1:8:4", "-o", tmp_path / "out").exit_code == 0
    found = lines(tmp_path / "out")
    assert [line["overrides"]["hardware.0.nodes.max"] for line in found] == [1, 3, 6, 8]
    assert {line["status"] for line in found} == {"optimal"}


def test_settings_change_all_what_ifs(problem, tmp_path):
    args = ("--vary", "limits.deadline=20 days,30 days", "-o", tmp_path / "out")
    assert run(problem, *args, "-s", "hardware.1.nodes.max=1", "-s", "search.tp=2").exit_code == 0
    assert {line["decisions"]["tp"] for line in lines(tmp_path / "out")} == {2}


def test_models_and_sequence_lengths_can_vary(problem, tmp_path):
    args = ("--vary", "model=llama-7b,llama-2-13b", "--vary", "training.seq_len=2048,4096")
    assert run(problem, *args, "-o", tmp_path / "out", "--format", "none").exit_code == 0
    found = lines(tmp_path / "out")
    assert [line["status"] for line in found] == ["optimal"] * 4
    cost = [line["estimate"]["dollars"] for line in found]
    assert cost[0] < cost[2]
    assert cost[1] < cost[3]


def test_the_summary_counts_and_shows_the_best(problem, tmp_path):
    args = (problem, "--vary", BUDGETS, "-o", tmp_path / "out")
    table = run(*args)
    assert table.exit_code == 0
    assert "10 of 10 what-ifs: " in table.stdout
    assert "Cheapest" in table.stdout
    assert "Fastest" in table.stdout
    again = run(*args, "--format", "json")
    summary = json.loads(again.stdout)
    assert summary["what_ifs"] == summary["answered"] == sum(summary["by_status"].values()) == 10
    costs = [best["line"]["estimate"]["dollars"] for best in summary["cheapest"]]
    solved = sum(number for status, number in summary["by_status"].items() if status == "optimal")
    assert sum(best["what_ifs"] for best in summary["cheapest"]) == solved > len(costs)
    assert costs == sorted(costs)
    assert costs[0] == min(
        line["estimate"]["dollars"] for line in lines(tmp_path / "out") if "estimate" in line
    )
    assert run(*args, "--format", "none").stdout == ""


# --- again, in parts, in parallel ----------------------------------------------------------------------


def test_a_sweep_that_is_done_is_not_done_again(problem, tmp_path):
    args = (problem, "--vary", BUDGETS, "-o", tmp_path / "out")
    assert run(*args).exit_code == 0
    before = (tmp_path / "out" / "results.jsonl").read_bytes()
    assert run(*args).exit_code == 0
    assert (tmp_path / "out" / "results.jsonl").read_bytes() == before
    wider = (problem, "--vary", "limits.budget=2k USD:20k USD:10,30k USD", "-o", tmp_path / "out")
    assert run(*wider).exit_code == 0
    assert (tmp_path / "out" / "results.jsonl").read_bytes().startswith(before)
    assert len(lines(tmp_path / "out")) == 11


def test_a_folder_of_another_problem_is_left_alone(problem, tmp_path):
    args = ("--vary", BUDGETS, "-o", tmp_path / "out")
    assert run(problem, *args).exit_code == 0
    before = (tmp_path / "out" / "results.jsonl").read_bytes()
    result = run(problem, *args, "-s", "training.tokens=30B")
    assert result.exit_code == 2
    assert "holds the sweep of another problem" in result.stderr
    assert (tmp_path / "out" / "results.jsonl").read_bytes() == before


def test_a_torn_last_line_is_cut_off_and_answered_again(problem, tmp_path):
    args = (problem, "--vary", BUDGETS, "-o", tmp_path / "out")
    assert run(*args).exit_code == 0
    path, whole = tmp_path / "out" / "results.jsonl", lines(tmp_path / "out")
    data = path.read_bytes()
    for cut in (1, 40, len(data.splitlines()[-1]) + 1, len(data) - 10):
        path.write_bytes(data[:-cut])
        assert run(*args).exit_code == 0
        assert path.read_bytes().count(b"\n") == 10
        assert all(json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
        assert content(lines(tmp_path / "out")) == content(whole)


def test_shards_write_their_own_files_and_add_up_to_the_whole(problem, tmp_path):
    args = ("--vary", BUDGETS, "--vary", "search.tp=1,2")
    assert run(problem, *args, "-o", tmp_path / "whole").exit_code == 0
    sizes = []
    for index in (3, 1, 2):
        assert run(problem, *args, "-o", tmp_path / "parts", "--shard", f"{index}/3").exit_code == 0
        path = tmp_path / "parts" / f"results-{index}-of-3.jsonl"
        sizes.append(len(path.read_text(encoding="utf-8").splitlines()))
    assert sum(sizes) == 20
    assert max(sizes) - min(sizes) <= 1
    assert content(lines(tmp_path / "parts")) == content(lines(tmp_path / "whole"))
    # Without --shard the same command has nothing left to do, and sums up all parts.
    result = run(problem, *args, "-o", tmp_path / "parts")
    assert "20 of 20 what-ifs" in result.stdout
    assert (tmp_path / "parts" / "results.jsonl").exists() is False


def command(problem, folder, *args):
    return [sys.executable, "-c", SWEEP, "sweep", str(problem), *args, "-o", str(folder), "--quiet"]


def started(problem, folder, *args):
    """A sweep in a process group of its own that has written some lines."""
    process = subprocess.Popen(
        command(problem, folder, *args),
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    until = time.monotonic() + 60
    while not (folder.exists() and len(lines(folder)) > 2):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.01)
    return process


MANY = (
    "--vary",
    "limits.deadline=5 days:40 days:8",
    "--vary",
    "hardware.0.price=1 USD/gpu-hour:3 USD/gpu-hour:6",
)


def test_a_killed_sweep_goes_on_where_it_stopped(problem, tmp_path):
    process = started(problem, tmp_path / "out", *MANY, "--jobs", "2")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    workers = [int(pid) for pid in children.read_text().split()] if children.exists() else []
    process.send_signal(signal.SIGKILL)
    process.communicate()
    done = lines(tmp_path / "out")
    assert 2 < len(done) < 48
    with (tmp_path / "out" / "results.jsonl").open("ab") as file:
        file.write(b'{"id": "torn')
    assert run(problem, *MANY, "-o", tmp_path / "out").exit_code == 0
    found = lines(tmp_path / "out")
    assert [line["index"] for line in found] == list(range(48))
    kept = {line["id"]: line for line in found}
    assert all(kept[line["id"]] == line for line in done)
    # Two processes that were killed, or one that was not: the same answers.
    assert run(problem, *MANY, "-o", tmp_path / "alone").exit_code == 0
    assert content(found) == content(lines(tmp_path / "alone"))
    until = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in workers):
        assert time.monotonic() < until, "workers outlive the sweep that was killed"
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("send", "number", "code"),
    [(os.killpg, signal.SIGINT, 130), (os.kill, signal.SIGTERM, 143)],
    ids=["ctrl-c", "sigterm"],
)
def test_a_stopped_sweep_ends_quietly_and_leaves_a_folder_to_go_on_from(
    problem, tmp_path, send, number, code
):
    process = started(problem, tmp_path / "out", *MANY, "--jobs", "2")
    send(process.pid, number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == code
    # Neither a traceback nor what multiprocessing says of semaphores that are left behind.
    assert err.decode() == f"planner: stopped; the same command goes on from what is in {tmp_path / 'out'}\n"
    assert out == b""
    assert 2 < len(lines(tmp_path / "out")) < 48
    data = (tmp_path / "out" / "results.jsonl").read_bytes()
    assert data.endswith(b"\n")


def test_a_worker_that_dies_leaves_its_what_ifs_for_later():
    with executors.executor(None, 2) as (pool, workers):
        found = dict(executors.as_completed(os._exit, [1, 2], pool, workers))
    assert all(isinstance(error, Exception) for error in found.values())


def test_progress_is_only_for_terminals(problem, tmp_path):
    result = run(problem, "--vary", BUDGETS, "-o", tmp_path / "out")
    assert result.stderr == ""


# --- extras ---------------------------------------------------------------------------------------------


def test_parquet_has_a_row_a_what_if_with_numbers_as_numbers(problem, tmp_path):
    polars = pytest.importorskip("polars")
    args = ("--vary", BUDGETS, "--vary", "limits.deadline=20 days,-1 days", "--vary", "objective=cost,time")
    result = run(problem, *args, "-o", tmp_path / "out", "--parquet")
    assert result.exit_code == 0, result.output
    frame = polars.read_parquet(tmp_path / "out" / "results.parquet")
    assert frame.height == 40
    assert frame["index"].to_list() == list(range(40))
    kinds = {name: str(kind) for name, kind in frame.schema.items()}
    assert kinds["set.limits.budget"] == "Float64"
    assert kinds["set.objective"] == "String"
    assert kinds["dollars"] == kinds["memory_gib.total"] == "Float64"
    assert kinds["tp"] == kinds["proof.valid"] == "Int64"
    solved = frame.filter(polars.col("dollars").is_not_null())
    assert (solved["dollars"] <= solved["set.limits.budget"]).all()
    assert frame.filter(polars.col("status") == "error")["error"].null_count() == 0
    assert frame.filter(polars.col("status") == "infeasible")["conflict"].null_count() == 0


def test_parquet_without_polars_says_what_to_install(problem, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    result = run(problem, "--vary", BUDGETS, "-o", tmp_path / "out", "--parquet")
    assert result.exit_code == 2
    assert "planner[data]" in result.stderr
    assert not (tmp_path / "out").exists()


def test_dask_without_distributed_says_what_to_install(problem, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    result = run(problem, "--vary", BUDGETS, "-o", tmp_path / "out", "--executor", "dask://127.0.0.1:1")
    assert result.exit_code == 2
    assert "planner[cluster]" in result.stderr


CLUSTER = """
import sys
from distributed import LocalCluster
if __name__ == "__main__":
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1")
    print(cluster.scheduler_address, flush=True)
    sys.stdin.read()
    cluster.close()
"""


@pytest.mark.slow
def test_a_dask_cluster_gives_the_same_lines(problem, tmp_path):
    pytest.importorskip("distributed")
    script = tmp_path / "cluster.py"
    script.write_text(CLUSTER, encoding="utf-8")
    cluster = subprocess.Popen(
        [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    try:
        assert cluster.stdout is not None
        address = cluster.stdout.readline().strip().replace("tcp://", "dask://")
        args = ("--vary", BUDGETS, "--vary", "search.tp=1,2", "--executor", address)
        done = subprocess.run(
            command(problem, tmp_path / "dask", *args), cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "20 of 20 what-ifs" in done.stdout
    finally:
        cluster.communicate("", timeout=60)
    assert run(problem, *args[:4], "-o", tmp_path / "here").exit_code == 0
    assert content(lines(tmp_path / "dask")) == content(lines(tmp_path / "here"))
