"""Overlap switches: read, refused, priced, decided and explained; off is never quicker, whatever the layout."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import random_problems
import yaml
from tampering import tampered
from typer.testing import CliRunner

from costmodel.estimate import estimate
from costmodel.stack import load_stack, stack_names
from planner.cli.app import app
from planner.cli.words import decisions_line
from planner.errors import InvalidInput
from planner.evaluate import evaluate
from planner.explained import answer_to, explained
from planner.frameworks.table import FRAMEWORKS, table
from planner.instance import Instance
from planner.keybook import KeyBook
from planner.listing import best_records, listed, promising_groups
from planner.problem import Problem, parse_problem
from planner.resolve import instance_of
from planner.runs import DescribedRun, describe
from planner.solution import Decisions, Solution
from planner.solve import solve
from planner.space.layouts import expand
from planner.space.recompute import recompute_families
from planner.switches import SWITCHES, hides, overlaps_of, software
from planner.validate import described_run, stage_lists, violations
from planner.variants import with_switches

DENSE: dict[str, Any] = {
    "name": "dense",
    "model": "llama-2-13b",
    "training": {"tokens": "100B", "seq_len": 4096, "global_batch": "256 sequences"},
    "hardware": [{"gpu": "H800", "nodes": {"min": 4, "max": 4}, "price": "2.00 USD/gpu-hour"}],
    "search": {"tp": 4, "pp": 4, "vpp": 2, "micro_batch": 1, "recompute": "none"},
}
MOE = DENSE | {
    "name": "moe",
    "model": "qwen-3-30b-a3b",
    "search": {"tp": [1, 2], "pp": [1, 2], "micro_batch": 1, "ep": [1, 8]},
}


def problem(data: dict[str, Any] = DENSE, **search: Any) -> Problem:
    return parse_problem(data | {"search": data["search"] | search})


@cache
def solved(name: str, **search: Any) -> tuple[Problem, Solution]:
    asked = problem({"dense": DENSE, "moe": MOE}[name], **search)
    return asked, solve(asked)


# ---------------------------------------------------------------------------------------------------
# Off is never quicker


def rows_of(instance: Instance) -> list[Any]:
    """Candidates of an instance, whatever fits."""
    return [expand(instance, KeyBook.of(instance, recompute_families(instance)).specific(some)) for some in promising_groups(instance)]  # fmt: skip


@pytest.mark.parametrize("name", [*SWITCHES, "all"])
def test_no_candidate_of_random_problems_is_quicker_or_smaller_with_a_switch_off(name: str) -> None:
    dearer = 0
    for seed in range(4):
        instance = random_problems.problem(Random(31_000 + seed))
        off = with_switches(instance, dict.fromkeys(SWITCHES if name == "all" else (name,), False))
        families = recompute_families(instance)
        books = [KeyBook.of(each, families) for each in (instance, off)]
        for rows in rows_of(instance):
            on_figures, off_figures = (evaluate(book, rows) for book in books)
            for column in ("plain", "recomputed", "plain_memory", "recomputed_memory"):
                on, shown = getattr(on_figures, column), getattr(off_figures, column)
                assert np.all(shown >= on * (1 - 1e-12)), (seed, column)
                dearer += int(np.sum(np.isfinite(on) & (shown > on * (1 + 1e-6))))
    assert dearer > 100


# ---------------------------------------------------------------------------------------------------
# Reading


@pytest.mark.parametrize(
    ("written", "read"), [(True, True), (False, False), ("on", True), ("OFF", False), (None, None)]
)
def test_a_switch_is_on_or_off(written: Any, read: bool | None) -> None:
    for name in (*SWITCHES, "ep_overlap"):
        data = MOE if name == "ep_overlap" else DENSE
        asked = problem(data, **{name: written})
        assert getattr(asked.search, name) is read
        assert parse_problem(asked.as_written()).problem_hash == asked.problem_hash


REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (DENSE, {"tp_overlap": "maybe"}, "search.tp_overlap: found 'maybe'"),
    (DENSE, {"dp_overlap": [True, False]}, "search.dp_overlap: found a list"),
    (DENSE, {"tp_overlap": True, "stack": "megatron-lm"}, "search.tp_overlap: found true, and the profile megatron-lm"),
    (DENSE, {"dp_overlap": True, "stack": "zero-bubble"}, "search.dp_overlap: found true, and the profile zero-bubble"),
    (DENSE, {"tp_overlap": True, "framework": "deepspeed"}, "search.tp_overlap: found true, and deepspeed"),
    (DENSE, {"pp_overlap": True, "framework": "torchtitan"}, "search.pp_overlap: found true, and torchtitan"),
    (DENSE, {"dp_overlap": False, "framework": "torchtitan"}, "search.dp_overlap: found false, and torchtitan"),
    (DENSE, {"dp_overlap": False, "zero": [2, 3]}, "search.dp_overlap: found false with `zero: [2, 3]`"),
    (DENSE, {"ep_overlap": True}, "search.ep_overlap: found true, and llama-2-13b has no experts"),
    (MOE, {"ep_overlap": True, "framework": "torchtitan"}, "search.ep_overlap: found true, and torchtitan"),
    (MOE, {"ep_overlap": True, "recompute": "full"}, "search.ep_overlap: found true with `recompute: full`"),
    (MOE, {"ep_overlap": True, "ep": 1}, "search.ep_overlap: found true with `ep: 1`"),
    (MOE | {"model": "deepseek-v2"}, {"tp_overlap": True}, "search.tp_overlap: found true, and Megatron's user buffers"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "search", "said"), REFUSED)
def test_what_software_or_model_do_not_have_is_refused(
    data: dict[str, Any], search: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        problem(data, **search)
    assert said in str(caught.value)
    assert "accepted:" in str(caught.value)


def test_what_a_framework_does_without_a_switch_may_be_asked_for() -> None:
    for framework in FRAMEWORKS:
        for name in table()[framework].always:
            search: dict[str, Any] = {"framework": framework, name: True}
            assert problem(DENSE, **search).search.chosen == {name: True}


def test_the_schema_takes_what_is_read() -> None:
    schema = Problem.model_json_schema()["$defs"]["Search"]["properties"]["ep_overlap"]
    assert {"type": "boolean"} in schema["anyOf"]
    assert {"enum": ["on", "off"]} in schema["anyOf"]


@pytest.mark.parametrize(
    ("text", "read"), [("ep_overlap == on", True), ("ep_overlap == false", False), ("ep_overlap != on", True)]
)
def test_requirements_say_on_or_off(text: str, read: bool) -> None:
    asked = parse_problem(MOE | {"limits": {"require": [text]}})
    (of,) = asked.limits.require
    assert of.values == (read,)
    assert of.text == text.replace("false", "off")
    for wrong in ("ep_overlap == 2", "ep_overlap >= on", "tp_overlap == on"):
        with pytest.raises(InvalidInput, match="require"):
            parse_problem(MOE | {"limits": {"require": [wrong]}})


# ---------------------------------------------------------------------------------------------------
# What plans decide


@pytest.mark.parametrize(
    ("stack", "framework", "sizes", "on"),
    [
        ("megatron-core", "megatron", {"tp": 8, "pp": 4, "vpp": 2, "dp": 4}, "tp dp pp"),
        ("megatron-core", "megatron", {"tp": 1, "pp": 4, "vpp": 1, "dp": 4}, "dp"),
        ("megatron-core", "megatron", {"tp": 8}, "tp"),
        ("megatron-core", "megatron", {"cp": 2}, "dp"),
        ("megatron-lm", "megatron", {"tp": 8, "dp": 2}, "dp"),
        ("megatron-lm-2021", "megatron", {"tp": 8, "dp": 2}, ""),
        ("megatron-lm-2021", "megatron", {"tp": 8, "dp": 2, "zero": 3}, "dp"),
        ("torchtitan-2025", "torchtitan", {"tp": 8, "dp": 2, "zero": 3, "pp": 2, "vpp": 2}, "tp dp"),
        ("megatron-core", "torchtitan", {"pp": 2, "vpp": 2}, ""),
        ("deepspeed-hf", "deepspeed", {"dp": 8, "zero": 2}, "dp"),
        ("deepspeed-hf", "deepspeed", {"dp": 8, "zero": 0}, ""),
        ("deepspeed-hf", "deepspeed", {"dp": 8, "zero": 1, "pp": 2}, ""),
        ("nanotron", "nanotron", {"dp": 8, "tp": 2, "pp": 2}, "dp"),
        ("nanotron", "any", {"dp": 8, "tp": 2, "pp": 2}, "dp"),
    ],
)
def test_switches_are_on_where_there_is_traffic_that_the_software_hides(
    stack: str, framework: str, sizes: dict[str, int], on: str
) -> None:
    model = problem().model.architecture
    every = dict.fromkeys(("tp", "cp", "pp", "vpp", "dp", "ep", "etp", "zero"), 1) | {"zero": 0} | sizes
    found = overlaps_of(model, load_stack(stack), framework, every)
    assert {name.removesuffix("_overlap") for name, is_on in found.items() if is_on} == set(on.split())


def test_latent_attention_has_no_user_buffers_and_experts_alone_share_gradients() -> None:
    sizes = dict.fromkeys(("tp", "cp", "pp", "vpp", "dp", "ep", "etp", "zero"), 1) | {"tp": 8, "zero": 0}
    latent = parse_problem(MOE | {"model": "deepseek-v2"}).model.architecture
    assert not overlaps_of(latent, load_stack("megatron-core"), "megatron", sizes)["tp_overlap"]
    assert overlaps_of(latent, load_stack("torchtitan-2025"), "any", sizes)["tp_overlap"]
    assert overlaps_of(latent, load_stack("megatron-core"), "megatron", sizes)["dp_overlap"]
    assert not overlaps_of(latent, load_stack("megatron-core"), "megatron", sizes | {"ep": 8})["dp_overlap"]


def test_every_profile_is_without_what_is_switched_off() -> None:
    for stack in stack_names():
        off = software(stack, dict.fromkeys(SWITCHES, False))
        assert not any(hides(off, name, zero) for name in SWITCHES for zero in range(4))
        assert software(stack, dict.fromkeys(SWITCHES, True)) == load_stack(stack)


@pytest.mark.parametrize("name", SWITCHES)
def test_a_plan_with_a_switch_off_is_priced_launched_and_shown_without(name: str) -> None:
    (on, with_it), (asked, without) = solved("dense"), solved("dense", **{name: False})
    first, second = with_it.plans[0], without.plans[0]
    assert violations(on, first) == violations(asked, second) == []
    assert getattr(first.decisions, name)
    assert not getattr(second.decisions, name)
    assert second.estimate.step_time_s > first.estimate.step_time_s
    assert f"no {name[:2].upper()} overlap" in decisions_line(second.decisions)
    assert "overlap" not in decisions_line(first.decisions)


def test_a_pipeline_of_two_ranks_is_not_interleaved_where_megatron_waits_for_transfers() -> None:
    def chunks(**search: Any) -> set[tuple[int, int]]:
        instance = instance_of(problem(pp=[2, 4], vpp=[1, 2, 5], **search))
        rows = [block.rows for block in listed(instance)]
        return {pair for of in rows for pair in zip(of.pp.tolist(), of.vpp.tolist(), strict=True)}

    assert {(2, 2), (4, 5)} <= chunks()
    waiting = chunks(pp_overlap=False)
    assert (4, 5) in waiting
    assert {vpp for pp, vpp in waiting if pp == 2} == {1}
    assert (2, 2) in chunks(pp_overlap=False, framework="any")


def test_sharded_gradients_are_not_planned_where_megatron_could_not_expose_them() -> None:
    def stages(**search: Any) -> set[int]:
        instance = instance_of(problem(tp=1, pp=1, vpp=1, recompute=None, **search))
        return {zero for block in listed(instance) for zero in block.rows.zero.tolist()}

    assert stages() >= {2, 3}
    assert stages(dp_overlap=False) <= {0, 1}


@pytest.mark.parametrize("on", [True, False])
def test_overlap_of_the_experts_is_as_asked(on: bool) -> None:
    asked, found = solved("moe", ep_overlap=on)
    assert found.plans[0].decisions.ep_overlap is on
    assert violations(asked, found.plans[0]) == []
    wanted = parse_problem(MOE | {"limits": {"require": [f"ep_overlap == {'on' if on else 'off'}"]}})
    again = solve(wanted).plans[0]
    assert violations(wanted, again) == []
    assert again.decisions == found.plans[0].decisions
    assert ("EP overlap" in decisions_line(again.decisions)) is on


LIES: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("dense", {}, {"decisions.tp_overlap": False}, "tp_overlap off"),
    ("dense", {}, {"decisions.dp_overlap": False}, "dp_overlap off"),
    ("dense", {}, {"decisions.pp_overlap": False}, "pp_overlap off"),
    ("dense", {}, {"decisions.ep_overlap": True}, "experts on several ranks"),
    ("dense", {"tp_overlap": False}, {"decisions.tp_overlap": True}, "tp_overlap on is what search says"),
    ("moe", {"ep_overlap": True}, {"decisions.ep_overlap": False}, "ep_overlap off is not among on"),
    ("moe", {"ep_overlap": True}, {"decisions.recompute_modules": ["moe"]}, "recompute of `moe`"),
    ("moe", {"ep_overlap": True}, {"decisions.ep": 1}, "experts on several ranks"),
    ("moe", {"ep_overlap": True}, {"decisions.pp": 2}, "virtual stages"),
    ("moe", {"ep_overlap": True}, {"decisions.stages.0.recomputed_layers": 1}, "full recompute"),
]


@pytest.mark.parametrize(("name", "search", "changes", "said"), LIES)
def test_the_validator_names_a_switch_that_was_tampered_with(
    name: str, search: dict[str, Any], changes: dict[str, Any], said: str
) -> None:
    asked, found = solved(name, **search)
    wrong = violations(asked, tampered(found.plans[0], changes))
    assert any(said in line for line in wrong), wrong


def test_the_validator_prices_overlap_and_knows_who_has_it() -> None:
    asked, found = solved("moe", ep_overlap=True)
    plan = tampered(found.plans[0], {"decisions.ep_overlap": False})
    assert any("step time" in line for line in violations(problem(MOE), plan))
    elsewhere = asked.model_copy(
        update={"search": problem(MOE).search.model_copy(update={"framework": "torchtitan"})}
    )
    assert any("overlap of the experts' traffic" in line for line in violations(elsewhere, found.plans[0]))
    two = problem(MOE | {"model": {"base": "qwen-3-30b-a3b", "mtp_layers": 2}})
    assert any("multi-token prediction" in line for line in violations(two, found.plans[0]))


# ---------------------------------------------------------------------------------------------------
# Runs


@pytest.mark.parametrize("name", SWITCHES)
def test_a_run_with_a_switch_off_is_the_plan_with_it_off(name: str) -> None:
    asked, found = solved("dense", **{name: False})
    d = found.plans[0].decisions
    run = describe(run_facts(asked, d) | {name: False})
    assert isinstance(run, DescribedRun), run
    assert run.run.stack == asked.search.software
    mine = estimate(described_run(asked, asked.hardware[0], d), *stage_lists(d))
    assert estimate(run.run, run.layers, run.recomputed).step_time == pytest.approx(mine.step_time)


def run_facts(asked: Problem, d: Decisions) -> dict[str, Any]:
    names = ("tp", "cp", "pp", "vpp", "micro_batch", "global_batch", "num_gpus", "gpu", "precision")
    return {name: getattr(d, name) for name in names} | {
        "model": asked.model.architecture.name,
        "seq_len": asked.training.seq_len,
        "framework": "Megatron-Core",
        "zero_stage": d.zero,
        "sequence_parallel": d.sequence_parallel,
        "recompute": "none",
    }


# ---------------------------------------------------------------------------------------------------
# Why


def test_reasons_price_the_same_plan_with_each_switch_off() -> None:
    plan = solved("dense")[1].plans[0]
    reasons = {reason.decision: reason for reason in plan.reasons}
    assert set(SWITCHES) <= set(reasons)
    for name in SWITCHES:
        reason, off = reasons[name], problem(DENSE, **{name: False})
        mine = estimate(described_run(off, off.hardware[0], plan.decisions), *stage_lists(plan.decisions))
        assert reason.effect["step_time_s"] == pytest.approx(mine.step_time - plan.estimate.step_time_s)
        assert reason.effect["step_time_s"] > 0
        assert reason.effect["memory_gib"] == pytest.approx(0, abs=1e-9)
        assert reason.text.startswith(f"{name[:2].upper()} overlap on -> off, same layout: ")
        assert f"{reason.effect['days']:.2f} days longer" in reason.text
    fixed = {reason.decision for reason in solved("dense", tp_overlap=False)[1].plans[0].reasons}
    assert fixed & set(SWITCHES) == {"dp_overlap", "pp_overlap"}
    assert not {each.decision for each in solve(problem(tp_overlap=True)).plans[0].reasons} & {"tp_overlap"}


def test_questions_about_switches_are_answered_with_a_plan() -> None:
    asked, found = solved("dense")
    answer = answer_to(asked, "tp_overlap=off")
    off = solved("dense", tp_overlap=False)[1].plans[0]
    assert answer.plan is not None
    assert answer.plan.decisions == off.decisions
    assert answer.effect["days"] == pytest.approx(off.estimate.days - found.plans[0].estimate.days)
    assert answer.chosen == {"tp_overlap": "on"}
    assert answer_to(asked, "tp_overlap=true").because == "chosen"
    again = answer_to(solved("dense", tp_overlap=False)[0], "tp_overlap=on")
    assert again.plan is not None
    assert again.plan.decisions == found.plans[0].decisions
    assert any("search allows (off)" in note for note in again.notes)
    assert "llama-2-13b has no experts" in answer_to(asked, "ep_overlap=on").text
    assert "hides no tensor-parallel" in answer_to(problem(stack="megatron-lm"), "tp_overlap=on").text
    with pytest.raises(InvalidInput, match="off, on"):
        answer_to(asked, "tp_overlap=2")


def test_overlap_of_gradients_needs_ranks_that_share_them() -> None:
    """Whose best plan may have them by data or by context parallelism."""
    lonely = problem(tp=[4, 8], pp=4, cp=[1, 2], vpp=1, dp=[1, 2], zero=0)
    single = parse_problem(
        lonely.as_written() | {"hardware": [{"gpu": "H800", "nodes": {"min": 4, "max": 4}}]}
    )
    plan = solve(single).plans[0].decisions
    answer = answer_to(single, "dp_overlap=off" if plan.dp_overlap else "dp_overlap=on")
    assert answer.plan is not None
    assert answer.plan.decisions.dp_overlap is not plan.dp_overlap


def test_overlap_of_the_experts_is_a_question_and_a_reason() -> None:
    asked, found = solved("moe")
    on = found.plans[0].decisions.ep_overlap
    other = solved("moe", ep_overlap=not on)[1].plans[0]
    answer = answer_to(asked, f"ep_overlap={'off' if on else 'on'}")
    assert answer.plan is not None
    assert answer.plan.decisions == other.decisions
    told = explained(asked, parts=("why",))
    assert {"ep", "dp_overlap"} <= {reason.decision for reason in told.reasons}


# ---------------------------------------------------------------------------------------------------
# Commands


def test_sweeps_and_comparisons_show_switches(tmp_path: Path) -> None:
    file = tmp_path / "dense.yaml"
    file.write_text(yaml.safe_dump(DENSE))
    vary = ["--vary", "search.tp_overlap=true,false", "-o", str(tmp_path / "out")]
    run = CliRunner().invoke(app, ["sweep", str(file), *vary])
    assert run.exit_code == 0, run.output
    text = (tmp_path / "out" / "results.jsonl").read_text()
    lines = sorted(map(json.loads, text.splitlines()), key=lambda line: line["index"])
    assert [line["decisions"]["tp_overlap"] for line in lines] == [True, False]
    assert lines[0]["estimate"]["days"] < lines[1]["estimate"]["days"]
    paths = []
    for name, search in (("a", {}), ("b", {"tp_overlap": False})):
        paths.append(tmp_path / f"{name}.json")
        paths[-1].write_text(solved("dense", **search)[1].to_json())
    compared = CliRunner().invoke(app, ["compare", *map(str, paths)], env={"COLUMNS": "100"})
    assert compared.exit_code == 0, compared.output
    assert ["TP", "overlap", "on", "off"] in [line.split() for line in compared.stdout.splitlines()]


def test_candidates_say_their_switches() -> None:
    (record,) = best_records(instance_of(problem()), 1)
    assert {record["decisions"][name] for name in SWITCHES} == {True}
