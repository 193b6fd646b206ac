"""When nothing fits: how far each requirement would have to move by itself, or that it has to go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import floor, log10
from typing import Any, TypeVar

from costmodel.flops import model_flops_per_token
from costmodel.units import GIB
from planner.instance import Instance, Limits
from planner.required import requirements_of, with_requirements, without_requirements
from planner.requirements import QUANTITIES, Requirement
from planner.search import Plan
from planner.solution import Relaxation
from planner.variants import decided

P = TypeVar("P")

HALVINGS = 8
"""Of the way from what is required of a prediction to what the fastest plan without it has."""
Find = Callable[[Instance, Limits], "P | None"]
"""How a plan within limits is found: `relaxed.fastest`."""


def value_of_single(instance: Instance, plan: Plan, name: str) -> Any:
    """`value_of` of a plan on one pool."""
    of = decided(instance, plan)
    pool, gpus = instance.pools[plan.of("pool")], int(of["num_gpus"])
    rate = of["global_batch"] * instance.seq_len / plan.step / gpus
    flops = float(model_flops_per_token(instance.architecture, instance.seq_len))
    return {
        **of,
        "gpus": gpus,
        "nodes": gpus // pool.fabric.gpus_per_node,
        "step_time_s": plan.step,
        "memory_gib": plan.memory / GIB,
        "tokens_per_s_per_gpu": rate,
        "mfu": rate * flops / pool.gpu.peak_flops["bf16"],
    }[name]


def looser(
    instance: Instance, find: Find[P], value_of: Callable[[Instance, P, str], Any]
) -> list[Relaxation]:
    """For each requirement that alone is in the way: what would do instead.

    `value_of` reads a decision or a prediction of a plan that is found, by the word of requirements.
    """
    moves = []
    for of in requirements_of(instance):
        free = without_requirements(instance, [of.text])
        plan = find(free, free.limits)
        if plan is not None:
            moves.append(moved(instance, of, value_of(free, plan, of.name), find))
    return moves


def moved(instance: Instance, of: Requirement, found: Any, find: Find[P]) -> Relaxation:
    """The nearest value with which there is a plan, where values have an order; `found` is one that does."""
    if of.operator in ("==", "!=", "in"):
        text = f"without {of.text} a plan is possible: the fastest has {of.name} {found}"
        return Relaxation(limit=of.text, **{"from": of.text}, to=f"{of.name} {found}", text=text)
    near = replace(of, operator=of.operator[0] + "=", values=(nearest_value(instance, of, found, find),))
    text = f"{near.text} instead of {of.text} makes a plan possible"
    return Relaxation(limit=of.text, **{"from": of.text}, to=near.text, text=text)


def nearest_value(instance: Instance, of: Requirement, found: Any, find: Find[P]) -> Any:
    """By bisection: what is looser than a value with which there is a plan has one too."""
    whole, up = of.name not in QUANTITIES, of.operator[0] == "<"
    low, high = of.value, found if whole else loosened(found, up)

    def possible(value: Any) -> bool:
        other = replace(of, operator=of.operator[0] + "=", values=(value,))
        rest = [other if each == of else each for each in requirements_of(instance)]
        changed = with_requirements(instance, rest)
        return find(changed, changed.limits) is not None

    for _ in range(64 if whole else HALVINGS):
        middle = (low + high) // 2 if whole else loosened((low + high) / 2, up)
        if middle in (low, high):
            break
        low, high = (low, middle) if possible(middle) else (middle, high)
    return high


def loosened(value: float, up: bool) -> float:
    """Four digits, rounded to where it is no tighter."""
    scale = 10.0 ** (3 - floor(log10(value)))
    return (floor(value * scale * (1 - 1e-12)) + up) / scale
