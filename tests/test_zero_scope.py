"""ZeRO within a node as a decision of the search: where it is valid, where it wins, and what is said of it."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from planner.cli.words import decisions_line
from planner.errors import InvalidInput
from planner.export import LAUNCHERS, CannotExport, job_of
from planner.listing import listed, records
from planner.problem import Problem, parse_problem
from planner.resolve import instance_of
from planner.solution import Decisions, Solution
from planner.solve import solve
from planner.space.layouts import fills_nodes
from planner.space.values import lattice_size
from planner.validate import layout_faults, violations
from planner.validate_launch import launch_faults
from planner.why import answered, parse_question

SLOW_NETWORK: dict[str, Any] = {
    "name": "slow_network",
    "model": "llama-2-13b",
    "training": {"tokens": "1T", "seq_len": 4096, "global_batch": "512 sequences"},
    "hardware": [{"gpu": "H100", "nodes": {"min": 8, "max": 8}, "network": "100 Gbit/s"}],
    "objective": "time",
    "search": {"framework": "torchtitan", "tp": [1, 2], "micro_batch": [1, 2], "vpp": [1, 2]},
}


def problem(**search: Any) -> Problem:
    return parse_problem(SLOW_NETWORK | {"search": SLOW_NETWORK["search"] | search})


@cache
def solution(scope: str = "") -> tuple[Problem, Solution]:
    asked = problem(**({"zero_scope": scope} if scope else {}))
    return asked, solve(asked)


def test_on_a_slow_network_states_stay_within_nodes_where_that_is_quickest() -> None:
    asked, best = solution()
    days = {scope: solution(scope)[1].plans[0].estimate.days for scope in ("full", "node")}
    assert best.plans[0].decisions.zero_scope == "node"
    assert days["node"] == pytest.approx(best.plans[0].estimate.days)
    assert days["node"] < days["full"] * (1 - 1e-4)
    assert violations(asked, best.plans[0]) == []
    assert ", ZeRO 1 within a node," in decisions_line(best.plans[0].decisions)
    # What is allowed is all that is planned.
    for scope in ("full", "node"):
        asked, found = solution(scope)
        assert found.plans[0].decisions.zero_scope == scope
        assert violations(asked, found.plans[0]) == []


def test_the_reason_for_it_is_its_traffic() -> None:
    (reason,) = (of for of in solution()[1].plans[0].reasons if of.decision == "zero_scope")
    assert (reason.chosen, reason.alternative) == ("node", "full")
    assert reason.because == "data-parallel traffic"
    assert reason.text.startswith("ZeRO scope node -> full")
    assert reason.effect["days"] > 0 > reason.effect["memory_gib"]


def test_nothing_is_said_of_the_scope_of_a_plan_that_shares_with_all() -> None:
    plan = solution("full")[1].plans[0]
    assert all(of.decision != "zero_scope" for of in plan.reasons)
    assert "within a node" not in decisions_line(plan.decisions)


def test_why_not_is_answered() -> None:
    from planner.explained import solved

    instance = instance_of(problem())
    plan = solved(instance, lambda text: None).only
    question = parse_question("zero_scope=full", instance)
    said = answered(instance, plan, question, "zero_scope=full")
    assert said.plan is not None
    assert said.plan.decisions.zero_scope == "full"
    assert said.text.startswith("Best plan with ZeRO scope full")
    with pytest.raises(InvalidInput, match="full, node"):
        parse_question("zero_scope=rack", instance)


def test_a_requirement_may_ask_for_it() -> None:
    full = parse_problem(problem().as_written() | {"limits": {"require": ["zero_scope == full"]}})
    days = solution("full")[1].plans[0].estimate.days
    assert solve(full).plans[0].estimate.days == pytest.approx(days)


@pytest.mark.parametrize("framework", ["any", "megatron", "torchtitan", "deepspeed", "nanotron"])
def test_the_lattice_has_it_where_the_framework_does(framework: str) -> None:
    """At most twice as many points; and what is listed is launched by those and by nobody else."""
    asked = problem(framework=framework, pp=[1, 2], cp=[1, 2], micro_batch=1)
    instance = instance_of(asked)
    alone = instance_of(problem(framework=framework, pp=[1, 2], cp=[1, 2], micro_batch=1, zero_scope="full"))
    near = [
        Decisions.model_validate(record["decisions"])
        for block in listed(instance)
        for record in records(instance, block)
        if record["decisions"]["zero_scope"] == "node"
    ]
    able = framework in ("any", "megatron", "torchtitan")
    assert bool(near) == able
    assert lattice_size(instance) == lattice_size(alone) * (2 if able else 1)
    for d in near:
        assert d.zero > 0
        assert layout_faults(asked, asked.hardware[0], d) == []
        for name in ("megatron", "torchtitan", "deepspeed", "nanotron"):
            launched = launch_faults(problem(framework=name), d) == []
            assert not (launched and name in ("deepspeed", "nanotron"))


def test_the_returned_plan_is_exported_by_its_framework_alone() -> None:
    job = job_of(solution()[1])
    assert "data_parallel_replicate_degree = 2" in LAUNCHERS["torchtitan"](job)["torchtitan_0.2.toml"]
    assert job.instances * 8 == job.decisions.tp * job.decisions.cp * job.decisions.dp
    for target in ("deepspeed", "nanotron", "accelerate"):
        with pytest.raises(CannotExport):
            LAUNCHERS[target](job)


@pytest.mark.parametrize(
    ("tp", "cp", "experts", "dp", "fills"),
    [
        (1, 1, 1, 16, True),
        (1, 1, 1, 8, False),  # all ranks are in one node
        (1, 1, 1, 12, False),  # a node and a half
        (2, 2, 1, 4, True),
        (2, 4, 1, 2, True),
        (2, 8, 1, 4, False),  # a sequence over two nodes
        (8, 1, 1, 4, False),  # nobody else in the node has the same weights
        (4, 1, 8, 16, True),
        (4, 1, 16, 16, False),  # a group of experts over two nodes
    ],
)
def test_replicas_fill_nodes(tp: int, cp: int, experts: int, dp: int, fills: bool) -> None:
    assert fills_nodes(8, tp, cp, experts, np.array([dp])).tolist() == [fills]


def test_a_plan_that_claims_it_without_cause_is_found_out() -> None:
    asked, found = solution("full")
    d = found.plans[0].decisions
    for changes in ({"zero": 0}, {"tp": 8, "num_gpus": d.num_gpus * 8 // d.tp}, {"dp": 4}):
        wrong = d.model_copy(update=changes | {"zero_scope": "node"})
        assert any(
            "shared within a node" in fault for fault in layout_faults(asked, asked.hardware[0], wrong)
        )
