"""A small job with two pools, a deadline and a budget that matter, solved in a blink: what explanations are tested on."""

from __future__ import annotations

from functools import cache
from typing import Any

from planner.instance import Instance
from planner.overrides import apply
from planner.problem import Problem, parse_problem
from planner.resolve import instance_of
from planner.search import Plan
from planner.variants import best_plan

JOB: dict[str, Any] = {
    "name": "small",
    "model": "llama-2-13b",
    "training": {"tokens": "1T", "seq_len": 4096, "global_batch": {"min": "1Mi tokens", "max": "4Mi tokens"}},
    "hardware": [
        {"gpu": "H800", "nodes": {"max": 12}, "price": "2.00 USD/gpu-hour"},
        {"gpu": "H20", "nodes": {"max": 44}, "price": "0.80 USD/gpu-hour"},
    ],
    "limits": {"deadline": "30 days", "budget": "400k USD"},
    "objective": "cost",
    "search": {"cp": 1, "tp": [1, 2, 4], "micro_batch": [1, 2], "zero": [0, 1]},
}  # fmt: skip


def job(*changes: tuple[str, Any]) -> Problem:
    """The job with some values changed by dotted path."""
    return parse_problem(apply(JOB, changes), file="job")


@cache
def small() -> tuple[Instance, Plan]:
    """The job's instance and its best plan."""
    instance = instance_of(job())
    plan = best_plan(instance)
    assert plan is not None
    return instance, plan
