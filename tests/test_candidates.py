"""`planner candidates`: everything within the limits, each row as it could be launched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import islice, product
from math import inf

import numpy as np
import pytest
from oracle import stack_of
from typer.testing import CliRunner

from costmodel.estimate import estimate
from costmodel.pipeline import plain_layers
from costmodel.run import Run
from planner.cli.app import app
from planner.listing import best_records, listed, records
from planner.problem import parse_problem
from planner.resolve import instance_of
from planner.solution import Decisions, Estimate, MemoryParts, Plan
from planner.solve import solve
from planner.validate import stage_lists, violations

GIB, DAY = 2**30, 86400.0

DENSE = {
    "name": "small",
    "model": "llama-2-7b",
    "training": {
        "tokens": "20B",
        "seq_len": 4096,
        "global_batch": {"min": "60 sequences", "max": "64 sequences"},
    },
    "hardware": [
        {"gpu": "L40S", "nodes": {"max": 2}, "price": "0.9 USD/gpu-hour"},
        {"gpu": "A100-80", "nodes": 1, "price": "1.5 USD/gpu-hour", "committed": "6 days"},
    ],
    "limits": {"deadline": "11.9 days", "budget": "2890 USD"},
    "search": {"tp": [1, 2, 4], "cp": 1, "micro_batch": [1, 2]},
}
EXPERTS = {
    "name": "small_moe",
    "model": "deepseek-v2-lite",
    "training": {"tokens": "50B", "seq_len": 4096, "global_batch": "128 sequences"},
    "hardware": {"gpu": "H800", "nodes": {"max": 2}, "price": "2 USD/gpu-hour"},
    "objective": "time",
    "search": {"tp": [1, 2], "cp": 1, "pp": [1, 2, 4], "vpp": [1, 2], "micro_batch": [1, 4]},
}


def every_record(problem):
    instance = instance_of(problem)
    return [record for block in listed(instance) for record in records(instance, block)]


@pytest.fixture(scope="module", params=[DENSE, EXPERTS], ids=["dense", "experts"])
def case(request):
    problem = parse_problem(request.param)
    return problem, every_record(problem)


def decisions_of(record):
    return Decisions.model_validate(record["decisions"])


def run_of(problem, decisions):
    instance = instance_of(problem)
    (pool,) = (pool for pool in instance.pools if pool.gpu.name == decisions.gpu)
    names = ("tp", "cp", "pp", "vpp", "dp", "ep", "etp", "micro_batch", "num_microbatches", "zero")
    return Run(
        instance.architecture, pool.gpu, pool.fabric, stack_of(instance, decisions.ep_overlap), instance.seq_len, decisions.precision,
        frozenset(decisions.recompute_modules), **{name: getattr(decisions, name) for name in names},
        shard_ranks=pool.fabric.domain // decisions.tp if decisions.zero_scope == "node" else np.inf,
    )  # fmt: skip


def plan_of(problem, record):
    """The row as a solution's plan: its own figures, and the cost model's for those it does not carry."""
    decisions = decisions_of(record)
    predicted = estimate(run_of(problem, decisions), *stage_lists(decisions))
    figures = Estimate(
        step_time_s=record["step_time_s"],
        days=record["days"],
        dollars=record["dollars"],
        mfu=predicted.mfu,
        hfu=predicted.hfu,
        tokens_per_s_per_gpu=predicted.tokens_per_second_per_gpu,
        memory_gib=MemoryParts(total=record["memory_gib"]),
        breakdown_s=predicted.breakdown,
    )
    return Plan(decisions=decisions, estimate=figures)


def test_no_row_beats_the_plan_that_solve_calls_optimal(case):
    problem, rows = case
    solution = solve(problem)
    assert solution.status == "optimal"
    best = solution.plans[0].estimate
    key = "dollars" if problem.objective.goals == ("cost",) else "days"
    assert min(row[key] for row in rows) >= getattr(best, key) * (1 - 1e-9)


def test_rows_pass_the_validator_as_plans(case):
    problem, rows = case
    assert len(rows) > 300
    step = -(-len(rows) // 300)
    by_mode = {row["decisions"]["recompute"]: row for row in rows}
    assert set(by_mode) == {"none", "selective", "full"}
    for row in [*rows[::step], *by_mode.values()]:
        assert violations(problem, plan_of(problem, row)) == []


def test_no_row_comes_twice(case):
    _, rows = case
    assert len({json.dumps(row["decisions"]) for row in rows}) == len(rows)


def test_the_rows_are_all_there_are():
    """Against plain loops over the decisions, priced one by one, without a bound or a column."""
    narrow = DENSE | {"search": {"tp": [2, 4], "cp": 1, "micro_batch": 1, "vpp": [1, 3], "pp": [1, 2, 3, 4]}}
    problem = parse_problem(narrow)
    assert counted(map(decisions_of, every_record(problem))) == counted(by_loops(problem))


def counted(decisions):
    return sorted(each.model_dump_json() for each in decisions)


def by_loops(problem):
    batch, architecture = problem.training.global_batch, problem.model.architecture
    sizes = product(
        problem.hardware,
        (1, 2),
        (2, 4),
        (1, 2, 3, 4),
        (1, 3),
        range(1, 9),
        range(1, 65),
        (0, 1, 2, 3),
        ("full", "node"),
    )
    for pool, nodes, tp, pp, vpp, dp, m, zero, scope in sizes:
        fits = nodes <= pool.max_nodes and tp * pp * dp == nodes * 8 and batch.min <= m * dp <= batch.max
        schedule = vpp == 1 or (pp > 1 and m % pp == 0)
        sharding = zero == 0 or (dp > 1 and (zero == 1 or pp == 1))
        scoped = scope == "full" or (zero > 0 and tp * dp > 8 and tp * dp % 8 == 0)
        if not (fits and schedule and sharding and scoped):
            continue
        for recompute in ("none", "selective", "full"):
            split = plain_layers(architecture.layers, pp, vpp).tolist()
            again = split if recompute == "full" else [0] * len(split)
            # What else there is of a dense model is fused into its linears, or frees less than 1 %.
            modules = ["mlp"] if recompute == "selective" else []
            interleaved = vpp > 1
            stages = [
                {
                    "layers": sum(split[r::pp]),
                    "recomputed_layers": sum(again[r::pp]),
                    "chunks": split[r::pp] if interleaved else [],
                    "recomputed_chunks": again[r::pp] if interleaved else [],
                }
                for r in range(pp)
            ]
            decisions = Decisions(
                gpu=pool.accelerator.name, num_gpus=nodes * 8, nodes=nodes, tp=tp, cp=1, pp=pp, vpp=vpp, dp=dp, ep=1,
                etp=1, micro_batch=1, num_microbatches=m, global_batch=m * dp, zero=zero, zero_scope=scope, recompute=recompute,
                recompute_modules=tuple(modules), precision="bf16", sequence_parallel=True, tp_overlap=True, dp_overlap=dp > 1, pp_overlap=vpp > 1,
                stages=stages,
            )  # fmt: skip
            if within_limits(problem, pool, decisions, split, again):
                yield decisions


def within_limits(problem, pool, decisions, split, again):
    """Without the minutes that a run takes to start: no row is so near to a limit that they decide."""
    predicted = estimate(run_of(problem, decisions), split, again)
    steps = problem.training.tokens / (decisions.global_batch * problem.training.seq_len)
    seconds = steps * predicted.step_time
    dollars = decisions.num_gpus * max(seconds, pool.committed) / 3600 * pool.price
    room = pool.accelerator.memory.driver * (1 - problem.limits.memory_headroom)
    return (
        float(predicted.memory.total) <= room
        and seconds <= (problem.limits.deadline or inf)
        and dollars <= (problem.limits.budget or inf)
    )


def test_the_table_has_the_best_by_the_objective(case):
    problem, rows = case
    best = best_records(instance_of(problem), 7)
    key = "dollars" if problem.objective.goals == ("cost",) else "days"
    assert [row[key] for row in best] == sorted(row[key] for row in rows)[:7]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "small.yaml"
    path.write_text(json.dumps(DENSE), encoding="utf-8")
    return path


def test_each_line_is_a_candidate_and_limit_stops(file):
    result = CliRunner().invoke(app, ["candidates", str(file), "--limit", "5"])
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == 0
    assert rows == list(islice(every_record(parse_problem(DENSE)), 5))
    assert set(rows[0]) == {"decisions", "step_time_s", "days", "dollars", "gpus", "memory_gib"}


def test_the_table_is_a_line_a_candidate(file):
    result = CliRunner().invoke(
        app, ["candidates", str(file), "--format", "table", "--limit", "3"], env={"COLUMNS": "120"}
    )
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 4
    (first,) = best_records(instance_of(parse_problem(DENSE)), 1)
    assert f"${first['dollars']:,.0f}" in result.stdout.splitlines()[1]


def test_limits_that_nothing_meets_leave_no_line(file):
    result = CliRunner().invoke(app, ["candidates", str(file), "-s", "limits.deadline=1 h"])
    assert (result.exit_code, result.stdout) == (0, "")


def test_a_typo_in_the_problem_is_one_message(file):
    result = CliRunner().invoke(app, ["candidates", str(file), "-s", "limits.dedline=1 h"])
    assert result.exit_code == 2
    assert "deadline" in result.stderr


def test_a_closed_pipe_ends_it_quietly(file):
    command = [sys.executable, "-c", "from planner.cli import main; main()", "candidates", str(file)]
    reader, writer = os.pipe()
    with subprocess.Popen(command, stdout=writer, stderr=subprocess.PIPE) as process:
        os.close(writer)
        os.read(reader, 100)
        os.close(reader)
        _, complaints = process.communicate(timeout=120)
    assert (process.returncode, complaints) == (0, b"")
