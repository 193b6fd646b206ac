"""Plans on two pools: the section that asks for them, what the validator makes of them, how they are shown."""

from __future__ import annotations

import io
import json
import subprocess
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from mixed_handmade import JOB, SHAPES, job, mixed_plan, mixed_solution
from mixed_oracle import scalar_estimate, small_mixed_problem, with_mixed_limits
from mixed_problems import mixed_problem, on_a_site
from rich.console import Console
from tampering import tampered
from typer.testing import CliRunner

from costmodel.architecture import MixtureOfExperts
from planner.cli.app import app
from planner.cli.table import solution_table
from planner.errors import InvalidInput
from planner.export import LAUNCHERS, CannotExport, job_of
from planner.export.pools import refuse_pools
from planner.mixed import MixedPlan
from planner.mixed.answer import reported
from planner.mixing import ALONE
from planner.problem import Problem
from planner.report.data import report_data
from planner.report.page import body
from planner.resolve import instance_of
from planner.solution import Solution
from planner.space.recompute import PLAIN
from planner.stages.problem import StagePlan
from planner.validate import violations

# ---------------------------------------------------------------------------------------------------
# The section


def test_a_link_is_all_that_mixing_needs() -> None:
    of = instance_of(job()).mixing
    assert of is not None
    assert (of.link, of.forms) == (25e9, ("stages", "replicas"))


@pytest.mark.parametrize("written", ["stages", ["stages"]])
def test_forms_are_one_or_a_list(written: Any) -> None:
    of = job(("mixing.forms", written)).mixing
    assert of is not None
    assert of.forms == ("stages",)


def test_forms_come_in_one_order_however_they_are_written() -> None:
    written = job(("mixing.forms", ["replicas", "stages", "replicas"]))
    assert written.problem_hash == job(("mixing.forms", ["stages", "replicas"])).problem_hash


def test_a_link_has_the_unit_of_a_pools_network() -> None:
    in_bits = job(("mixing.network", "200 Gbit/s")).mixing
    assert in_bits is not None
    assert in_bits.network == 25e9


def test_a_problem_with_mixing_survives_a_round_trip() -> None:
    problem = job()
    assert Problem.model_validate(problem.as_written()).problem_hash == problem.problem_hash


def test_a_problem_without_mixing_is_another_one_than_with_it() -> None:
    plain = job(("mixing", None))
    assert instance_of(plain).mixing is None
    assert plain.problem_hash != job().problem_hash
    assert job(("mixing.network", "10 GB/s")).problem_hash != job().problem_hash


@pytest.mark.parametrize(
    ("changes", "path", "said"),
    [
        ({"mixing": {}}, "mixing.network", "missing"),
        ({"mixing.network": "25"}, "mixing.network", "a bandwidth"),
        ({"mixing.links": "25 GB/s"}, "mixing.links", "unknown key"),
        ({"mixing.forms": "stage"}, "mixing.forms", "did you mean 'stages'?"),
        ({"mixing.forms": []}, "mixing.forms", "an empty list"),
        ({"phases": [{"name": "all"}]}, "phases", "so is mixing"),
        ({"limits": {"confidence": 0.9}}, "limits.confidence", "so is mixing"),
        ({"assume_mfu": 0.4}, "assume_mfu", "so is mixing"),
        ({"search.framework": "torchtitan"}, "search.framework", "megatron, any"),
        ({"hardware": {"gpu": "H800", "nodes": 8}}, "mixing", "one pool (H800)"),
        ({"training.precision": "fp8", "hardware.1.gpu": "A100-80GB"}, "mixing", "one pool (H800)"),
    ],
)
def test_what_does_not_go_with_mixing_is_refused_where_it_stands(
    changes: dict[str, Any], path: str, said: str
) -> None:
    with pytest.raises(InvalidInput) as error:
        job(*changes.items())
    text = str(error.value)
    assert f": {path}: " in text
    assert said in text


# ---------------------------------------------------------------------------------------------------
# The validator

SITES: dict[str, tuple[tuple[str, Any], ...]] = {
    "usual": (),
    "spares": (("reliability", {"spares": "auto", "repair": "20 h", "failures": "3000 h"}),),
    "paid otherwise": (
        (
            "pricing",
            {
                "H800": {"kind": "spot", "price": "1 USD/gpu-hour", "lost_a_month": "20%"},
                "H20": {"kind": "reserved", "window": "90 days"},
            },
        ),
        ("storage", {"write": "100 MB/s", "read": "300 MB/s", "node_write": "60 MB/s"}),
        ("reliability", {"checkpoint": {"mode": "sync", "written_by": "replica"}}),
    ),
}


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("form", SHAPES)
def test_a_plan_whose_figures_were_worked_out_otherwise_holds(form: str, site: str) -> None:
    """Days, dollars and energy of the plan are `mixed_lasting`'s, those of the validator the planner's sections'."""
    problem = job(*SITES[site])
    assert violations(problem, mixed_plan(problem, form)) == []


LIES: list[tuple[str, dict[str, Any], str]] = [
    ("stages", {"decisions.parts.0.last_rank": 2}, "the first part holds the first ranks"),
    ("stages", {"decisions.parts.1.last_rank": 2}, "the second one the others"),
    ("stages", {"decisions.parts.1.dp": 4}, "the same replicas"),
    ("stages", {"decisions.parts.1.num_microbatches": 20}, "the same micro-batches"),
    ("stages", {"decisions.parts.0.nodes": 9, "decisions.nodes": 17}, "fill 9 nodes of 8"),
    ("stages", {"decisions.parts.0.num_gpus": 72, "decisions.num_gpus": 136}, "tp*cp*dp*ranks"),
    ("stages", {"decisions.num_gpus": 120}, "GPUs of the parts"),
    ("stages", {"decisions.nodes": 15}, "nodes of the parts"),
    ("stages", {"decisions.gpu": "H800"}, "named after both"),
    ("stages", {"decisions.zero": 2}, "ZeRO 2"),
    ("stages", {"decisions.vpp": 2}, "interleaved"),
    ("stages", {"decisions.tp": 3}, "tp 3"),
    ("stages", {"decisions.ep": 2}, "ep 2"),
    ("stages", {"decisions.global_batch": 321}, "batch"),
    ("stages", {"decisions.stages.0.layers": 15}, "layers"),
    ("stages", {"decisions.stages.0.recomputed_layers": 1}, "step time"),
    ("stages", {"decisions.recompute": "none"}, "recompute none"),
    ("stages", {"decisions.parts.0.gpu": "H100"}, "no two of the pools"),
    ("stages", {"decisions.parts.0.memory_gib": 12.0}, "memory of part 1, H800"),
    ("stages", {"decisions.stages.3.memory_gib": 1.0}, "memory of rank 3"),
    ("stages", {"decisions.stages.2.micro_batch_time_s": 1e-3}, "micro-batch of rank 2"),
    ("stages", {"estimate.step_time_s": lambda s: s * 0.99}, "step time"),
    ("stages", {"estimate.days": lambda d: d * 0.999}, "days"),
    ("stages", {"estimate.dollars": lambda d: d * 0.999}, "dollars"),
    ("stages", {"estimate.mfu": lambda m: m * 1.01}, "mfu"),
    ("stages", {"estimate.energy.mwh": lambda e: e * 0.99}, "energy"),
    ("stages", {"estimate.memory_gib.total": lambda m: m * 0.5}, "memory"),
    ("stages", {"estimate.breakdown_s.gemm": lambda s: s * 0.9}, "breakdown"),
    ("replicas", {"decisions.parts.0.first_rank": 1}, "every rank"),
    ("replicas", {"decisions.dp": 15}, "15 replicas"),
    ("replicas", {"decisions.num_microbatches": 8}, "those of the first part"),
    ("replicas", {"decisions.parts.0.num_microbatches": 41}, "batch of 320"),
    ("replicas", {"estimate.dollars": lambda d: d * 1.001}, "dollars"),
]


@pytest.mark.parametrize(("form", "changes", "named"), LIES, ids=lambda value: str(value).split(":")[0][:48])
def test_a_mixed_plan_that_was_tampered_with_is_refused(
    form: str, changes: dict[str, Any], named: str
) -> None:
    problem = job()
    wrong = violations(problem, tampered(mixed_plan(problem, form), changes))
    assert any(named in line for line in wrong), wrong


LIMITS: list[tuple[str, dict[str, Any], str]] = [
    ("stages", {"limits.deadline": "50 days"}, "deadline"),
    ("stages", {"limits.budget": "200k USD"}, "budget"),
    ("stages", {"limits.energy": "1 MWh"}, "energy"),
    ("stages", {"limits.memory_headroom": 0.8}, "memory of part 1, H800"),
    ("stages", {"limits.require": ["memory_gib <= 19"]}, "memory_gib <= 19"),
    ("stages", {"limits.require": ["gpus <= 100"]}, "gpus <= 100"),
    ("stages", {"limits.require": ["gpu == H800"]}, "gpu is H20"),
    ("stages", {"limits.require": ["mfu >= 0.3"]}, "mfu >= 0.3"),
    ("stages", {"search.zero": 0}, "zero 1"),
    ("replicas", {"search.num_microbatches": [40]}, "num_microbatches 8"),
    ("replicas", {"search.framework": "megatron"}, "one number of micro-batches"),
    ("replicas", {"mixing.forms": "stages"}, "no plan with replicas"),
    ("stages", {"mixing": None}, "no plan with stages"),
    ("stages", {"hardware.0.nodes": {"max": 7}}, "8 nodes of H800 are within the pool"),
    ("stages", {"hardware.1.nodes": 10}, "8 nodes of H20 are within the pool"),
    ("stages", {"search.per_stage_recompute": False}, "recompute the same number"),
    ("replicas", {"training.global_batch": "1Mi tokens"}, "320 is allowed"),
]


@pytest.mark.parametrize(("form", "changes", "named"), LIMITS, ids=lambda value: str(value)[:48])
def test_a_mixed_plan_is_held_against_every_limit(form: str, changes: dict[str, Any], named: str) -> None:
    plan = mixed_plan(job(), form)
    wrong = violations(job(*changes.items()), plan)
    assert any(named in line for line in wrong), wrong


def test_spare_nodes_count_against_their_own_pool() -> None:
    changes = (("reliability", {"spares": 2, "repair": "20 h"}), ("hardware.0.nodes", {"max": 9}))
    problem = job(*changes)
    wrong = violations(problem, mixed_plan(problem, "stages"))
    assert any("H800, with their spares" in line for line in wrong), wrong
    assert not any("H20, with their spares" in line for line in wrong)


def test_two_pools_of_one_gpu_can_be_mixed_at_their_own_prices() -> None:
    problem = job(("hardware.1.gpu", "H800"), ("hardware.1.price", "1.00 USD/gpu-hour"))
    plan = mixed_plan(problem, "replicas")
    assert plan.decisions.gpu == "H800 + H800"
    assert violations(problem, plan) == []
    for part in (0, 1):
        (wrong,) = violations(problem, tampered(plan, {f"decisions.parts.{part}.memory_gib": 12.0}))
        assert f"memory of part {part + 1}, H800" in wrong


def test_two_pools_of_one_gpu_have_slack_of_their_own() -> None:
    shape = SHAPES["replicas"]
    plan = MixedPlan(
        form="replicas", pools=(0, 1), cp=1, ep=1, etp=1, vpp=1, split=0, variant=PLAIN,
        stages=StagePlan(shape["layers"], shape["recomputed"]), step=1.0, seconds=1.0, dollars=1.0,
        **{name: shape[name] for name in ("tp", "pp", "micro_batch", "zero", "dp", "num_microbatches")},
    )  # fmt: skip
    slack = reported(instance_of(job(("hardware.1.gpu", "H800"))), plan).slack
    nodes = [slack[f"nodes of {name}"] for name in ("H800", "the other H800")]
    assert [(of.used, of.limit) for of in nodes] == [(6, 12), (10, 16)]


# ---------------------------------------------------------------------------------------------------
# Brute force


@pytest.mark.parametrize("seed", range(12))
def test_columns_of_plans_cost_what_each_does_alone(seed: int) -> None:
    random = Random(seed)
    oracle = small_mixed_problem(random, make=on_a_site if seed % 3 == 0 else mixed_problem)
    instance = with_mixed_limits(random, oracle)
    answers = oracle.answers(instance)
    for answer in random.sample(answers, min(4, len(answers))):
        alone = scalar_estimate(instance, answer)
        assert alone.step_time == pytest.approx(answer.step, rel=1e-9)
        assert tuple(float(of.total) for of in alone.memory) == pytest.approx(answer.memory, rel=1e-9)


# ---------------------------------------------------------------------------------------------------
# The solution


@pytest.mark.parametrize("form", SHAPES)
def test_a_mixed_solution_survives_json_and_yaml(form: str) -> None:
    solution = mixed_solution(form)
    assert Solution.from_text(solution.to_json()) == solution
    assert Solution.from_text(solution.to_yaml()) == solution


# ---------------------------------------------------------------------------------------------------
# Views


def printed(solution: Solution, width: int) -> list[str]:
    screen = Console(file=io.StringIO(), width=width, highlight=False, emoji=False, markup=False)
    screen.print(solution_table(solution))
    assert isinstance(screen.file, io.StringIO)
    return [line.rstrip() for line in screen.file.getvalue().splitlines()]


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("form", SHAPES)
def test_a_table_says_what_each_pool_does(form: str, width: int) -> None:
    solution = mixed_solution(form)
    lines = printed(solution, width)
    rows = {line.split()[0]: line.split()[1:] for line in lines[lines.index("Pools") + 1 :][:3]}
    for part in solution.plans[0].decisions.parts:
        batches = [str(part.num_microbatches), "x", str(part.dp), "replicas"]
        ranks = [f"{part.first_rank}-{part.last_rank}", "of", str(solution.plans[0].decisions.pp)]
        memory = [f"{part.memory_gib:.1f}", f"{part.memory_limit_gib:.1f}"]
        assert rows[part.gpu] == [str(part.num_gpus), str(part.nodes), *ranks, *batches, *memory]
    assert solution.mixing is not None
    assert solution.mixing.text in " ".join(" ".join(lines).split())


def test_a_verdict_shows_the_best_mixed_plan_where_it_is_not_chosen() -> None:
    solution = mixed_solution("replicas")
    data = solution.model_dump(mode="json")
    data["mixing"] |= {"better": False, "plan": data["plans"][0]}
    text = " ".join(" ".join(printed(Solution.model_validate(data), 100)).split())
    assert "best together 48 x H800 + 80 x H20, TP4 PP2 DP16" in text
    assert "1,200" in text
    assert "340" in text


def test_megatron_starts_the_nodes_of_the_first_stages_first(tmp_path: Path) -> None:
    text = exported(tmp_path, "stages", "megatron")["launch.sh"]
    assert "--pipeline-model-parallel-layout 'Et*14|t*14|t*6|t*6L'" in text
    assert "0 to 15: nodes 0 to 7 have H800, nodes 8 to 15 have H20" in text
    assert "--nnodes 16" in text
    assert "use-tp-pp-dp-mapping" not in text


def test_megatron_puts_replicas_on_consecutive_ranks_where_pools_differ(tmp_path: Path) -> None:
    text = exported(tmp_path, "replicas", "megatron")["launch.sh"]
    assert "--use-tp-pp-dp-mapping" in text
    assert "nodes 0 to 5 have H800, nodes 6 to 15 have H20" in text


def test_slurm_asks_for_both_pools_in_the_order_of_the_ranks(tmp_path: Path) -> None:
    text = exported(tmp_path, "replicas", "slurm")["job.slurm"]
    head = [line for line in text.splitlines() if line.startswith("#SBATCH")]
    assert head.index("#SBATCH --nodes=6") < head.index("#SBATCH hetjob") < head.index("#SBATCH --nodes=10")
    assert "srun --het-group=0,1 " in text


def exported(folder: Path, form: str, target: str) -> dict[str, str]:
    """What `planner export` writes; Bash reads it without complaint."""
    (folder / "solution.json").write_text(mixed_solution(form, launched=True).to_json(), encoding="utf-8")
    result = run("export", str(folder / "solution.json"), "--to", target, "--output", str(folder / "out"))
    assert result.exit_code == 0, result.output
    files = {path.name: path.read_text(encoding="utf-8") for path in (folder / "out").iterdir()}
    for name in files:
        subprocess.run(["bash", "-n", str(folder / "out" / name)], check=True)
    return files


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


@pytest.mark.parametrize(
    ("form", "launched", "target", "said"),
    [
        ("stages", False, "megatron", "one number for every virtual stage"),
        ("replicas", False, "megatron", "one number for all replicas"),
        ("replicas", False, "slurm", "one number for all replicas"),
        *[
            (form, True, target, "two GPU types")
            for form in SHAPES
            for target in LAUNCHERS
            if target != "megatron"
        ],
    ],
)
def test_what_a_target_cannot_say_of_two_pools_it_refuses(
    tmp_path: Path, form: str, launched: bool, target: str, said: str
) -> None:
    path = tmp_path / "solution.json"
    path.write_text(mixed_solution(form, launched=launched).to_json(), encoding="utf-8")
    result = run("export", str(path), "--to", target, "--output", str(tmp_path / "out"))
    assert result.exit_code == 2
    assert said in result.output
    assert (f"targets that can: {'megatron' if launched else 'none'}") in result.output


def test_experts_that_replicate_otherwise_are_not_launched_as_replicas(tmp_path: Path) -> None:
    """Megatron then needs all stages of the experts' groups on consecutive ranks."""
    job = job_of(mixed_solution("replicas", launched=True))
    moe = MixtureOfExperts(experts=8, top_k=2, moe_ffn=512)
    dense = job.architecture.model_copy(update={"moe": moe})
    with pytest.raises(CannotExport, match=r"ep\*etp"):
        refuse_pools(replace(job, architecture=dense), "megatron")


def test_an_edited_plan_is_refused_by_what_contradicts_itself(tmp_path: Path) -> None:
    data = json.loads(mixed_solution("stages").to_json())
    data["plans"][0]["decisions"]["parts"][0]["last_rank"] = 2
    (tmp_path / "solution.json").write_text(json.dumps(data), encoding="utf-8")
    result = run(
        "export", str(tmp_path / "solution.json"), "--to", "megatron", "--output", str(tmp_path / "out")
    )
    assert result.exit_code == 2
    assert "the first part holds the first ranks" in result.output


@pytest.mark.parametrize("form", SHAPES)
def test_a_report_shows_a_mixed_plan_rank_by_rank(form: str) -> None:
    solution = mixed_solution(form)
    data, plan = report_data(solution), solution.plans[0]
    text, d = body(data, {"stage-time", "step-time", "stage-memory", "timeline"}), plan.decisions
    assert data.stale.startswith("The plan uses two pools.")
    for part in d.parts:
        assert f"{part.num_microbatches} x {part.dp} replicas" in text
    assert "Two pools together" in text
    assert "lines mark what a plan may use on each" in text
    of = data.ranks
    assert of is not None
    assert of.names == tuple(
        f"{part.gpu} {rank}" for part in d.parts for rank in range(part.first_rank, part.last_rank + 1)
    )
    whole = np.full(len(of.names), plan.estimate.step_time_s)
    assert sum(of.seconds.values()) == pytest.approx(whole)
    assert all((part >= -1e-9).all() for part in of.seconds.values())
    totals = of.memory["total"]
    assert sum(part for name, part in of.memory.items() if name != "total") == pytest.approx(totals)
    start = 0
    for part, room in zip(d.parts, of.room[:: len(of.names) - 1], strict=True):
        held = part.last_rank - part.first_rank + 1
        assert totals[start : start + held].max() == pytest.approx(part.memory_gib)
        assert room == part.memory_limit_gib
        start += held


@pytest.mark.parametrize("form", SHAPES)
def test_the_timeline_of_a_mixed_plan_takes_what_the_model_says(form: str) -> None:
    """Each pipeline runs its own micro-batches, in the time that the formula of mixed pipelines gives it."""
    solution = mixed_solution(form)
    of, d = report_data(solution).ranks, solution.plans[0].decisions
    assert of is not None
    passes = of.timeline()
    counts = [d.num_microbatches] if form == "stages" else [part.num_microbatches for part in d.parts]
    assert [each.num_microbatches for each in of.pipelines] == counts
    for each in of.pipelines:
        mine = [one for one in passes if one.rank in each.rows]
        assert len(mine) == 2 * each.num_microbatches * len(each.rows)
        assert max(one.end for one in mine) == pytest.approx(each.seconds, rel=0.02)
    rest = sum(of.tail.values())
    assert of.pipeline_seconds() + rest == pytest.approx(solution.plans[0].estimate.step_time_s, rel=1e-6)


@pytest.mark.parametrize("form", SHAPES)
def test_a_mixed_plan_has_a_trace(form: str, tmp_path: Path) -> None:
    (tmp_path / "solution.json").write_text(mixed_solution(form).to_json(), encoding="utf-8")
    trace = tmp_path / "step.json"
    found = run("report", str(tmp_path / "solution.json"), "--trace", str(trace))
    assert found.exit_code == 0, found.output
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    named = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert any(name.startswith("stage H20") for name in named)


def test_what_looks_at_single_pools_only_says_so(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    small = {"search": {"tp": 4, "cp": 1, "micro_batch": 1, "zero": 1, "pp": 1}, "objective": "time"}
    path.write_text(json.dumps(JOB | small), encoding="utf-8")
    for arguments in (
        ("frontier", str(path), "--axis", "gpus"),
        ("candidates", str(path), "--limit", "1"),
    ):
        result = run(*arguments)
        assert result.exit_code == 0, result.output
        assert ALONE in result.stderr


def test_where_neither_one_pool_nor_two_have_a_plan_explain_says_so() -> None:
    result = run("explain", "problems/70b_two_pools.yaml", "-s", "limits.deadline=20 days")
    assert result.exit_code == 3
    assert "no plan is within the limits, on one pool or on two; in conflict: deadline" in result.stderr


def test_two_mixed_plans_are_compared(tmp_path: Path) -> None:
    for form in SHAPES:
        (tmp_path / f"{form}.json").write_text(mixed_solution(form).to_json(), encoding="utf-8")
    result = run("compare", str(tmp_path / "stages.json"), str(tmp_path / "replicas.json"))
    assert result.exit_code == 0, result.output
    assert "H800 + H20" in result.output
