"""When nothing fits: how far each requirement would have to move by itself, or that it has to go."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import ceil, floor, log10
from typing import Any, TypeVar

from costmodel.flops import model_flops_per_token
from costmodel.units import GIB
from planner.instance import Instance, Limits
from planner.required import requirements_of, with_requirements, without_requirements
from planner.requirements import MODULES, NO_MODULES, QUANTITIES, Requirement
from planner.running import losses_of
from planner.search import Plan
from planner.search.goal import OutOfTime
from planner.search.rows import plan_hfu
from planner.solution import Relaxation
from planner.variants import decided

P = TypeVar("P")

PROBES = 24
"""Searches for the nearest value at most; a bracket from 1 to 10^12 takes 17 without luck."""
DECADE = 9000
"""Numbers of four digits from one power of ten up to the next."""
SLACK = 1e-6
"""Share by which a plan has to be within a limit that is said without a search: bytes are rounded in one."""
SAME = 1e-12
"""Numbers this near to one of four digits are that number."""
Find = Callable[[Instance, Limits], "P | None"]
"""How a plan within limits is found: `relaxed.fastest`."""
Reached = Callable[[Instance], Any]
"""What the plan that is found for an instance has of a quantity; None if there is no plan."""


def value_of_single(instance: Instance, plan: Plan, name: str) -> Any:
    """`value_of` of a plan on one pool."""
    of = decided(instance, plan)
    pool, gpus = instance.pools[plan.of("pool")], int(of["num_gpus"])
    rate = of["global_batch"] * instance.seq_len / plan.step / gpus
    flops = float(model_flops_per_token(instance.architecture, instance.seq_len))
    return {
        **of,
        MODULES: of[MODULES] or NO_MODULES,
        "gpus": gpus,
        "nodes": gpus // pool.fabric.gpus_per_node,
        "step_time_s": plan.step,
        "memory_gib": plan.memory / GIB,
        "tokens_per_s_per_gpu": rate,
        "mfu": rate * flops / pool.gpu.peak_flops["bf16"],
        "hfu": plan_hfu(instance, plan),
        "goodput": float(losses_of(pool, gpus, plan.of("dp")).share),
    }[name]


def may_help(name: str, among: Sequence[str]) -> bool:
    """Whether a limit may be a way out alone: those that conflict do so without any other one.

    `among`: limits in conflict; none where they are not known.
    """
    return not among or name in among


def best_found(find: Callable[[], P | None], said: Callable[[P], Relaxation]) -> Iterator[Relaxation]:
    """What the best plan makes of a limit, if there is one. Out of time, what the best one found does."""
    try:
        plan = find()
    except OutOfTime as out:
        if out.found is not None:
            yield would_do(said(out.found))
        raise
    if plan is not None:
        yield said(plan)


def would_do(move: Relaxation) -> Relaxation:
    """A value that is enough, where it is not known to be the nearest."""
    text = f"{move.text}; whether a nearer value does is not known"
    return move.model_copy(update={"proved": False, "text": text})


def looser(
    instance: Instance,
    find: Find[P],
    value_of: Callable[[Instance, P, str], Any],
    among: Sequence[str] = (),
) -> Iterator[Relaxation]:
    """For each requirement that alone is in the way: what would do instead; of those in conflict, if known.

    `value_of` reads a decision or a prediction of a plan that is found, by the word of requirements.
    """

    def value(name: str, changed: Instance) -> Any:
        plan = find(changed, changed.limits)
        return None if plan is None else value_of(changed, plan, name)

    for of in requirements_of(instance):
        if may_help(of.text, among):
            yield from moved(instance, of, partial(value, of.name))


def moved(instance: Instance, of: Requirement, reached: Reached) -> Iterator[Relaxation]:
    """The nearest value with which there is a plan, where values have an order; if there is one without it.

    Out of time, the nearest one that is known to do.
    """
    found = reached(without_requirements(instance, [of.text]))
    if found is None:
        return
    if of.operator in ("==", "!=", "in"):
        text = f"without {of.text} a plan is possible: the fastest has {of.name} {found}"
        yield Relaxation.of(of.text, of.text, f"{of.name} {found}", text)
        return
    yield from best_found(
        lambda: nearest_value(instance, of, found, reached), lambda value: moved_requirement(of, value)
    )


def moved_requirement(of: Requirement, value: Any) -> Relaxation:
    """A requirement with an order, at another value."""
    near = not_strict(of, value)
    text = f"{near.text} instead of {of.text} makes a plan possible"
    return Relaxation.of(of.text, of.text, near.text, text)


def nearest_value(instance: Instance, of: Requirement, found: Any, reached: Reached) -> Any:
    """The tightest whole number, or number of four digits, with which there is a plan.

    By bisection between the value that leaves none and what a plan is known to have: what is looser than a
    value with which there is a plan has one too. Each plan that is found may have a tighter value than was
    asked for, and that one is then known too. Raises OutOfTime, with the tightest that is known.
    """
    whole, up = of.name not in QUANTITIES, of.operator[0] == "<"
    tighter = -1 if up else 1
    low = of.value if whole else place(of.value, not up)
    low += tighter * (of.operator in ("<", ">"))
    high = found if whole else place_within(found, up)
    for _ in range(PROBES):
        middle = (low + high) // 2
        if middle in (low, high):
            break
        try:
            value = reached(requiring(instance, of, middle if whole else number_at(middle)))
        except OutOfTime as out:
            raise OutOfTime(high if whole else number_at(high)) from out
        if value is None:
            low = middle
        else:
            has = value if whole else place_within(value, up)
            high = min(middle, has) if up else max(middle, has)
    return high if whole else number_at(high)


def not_strict(of: Requirement, value: Any) -> Requirement:
    """`<=` or `>=` another value."""
    return replace(of, operator=of.operator[0] + "=", values=(value,))


def requiring(instance: Instance, of: Requirement, value: Any) -> Instance:
    """The instance with another value in one of its requirements."""
    other = not_strict(of, value)
    return with_requirements(instance, [other if each == of else each for each in requirements_of(instance)])


def place_within(value: float, up: bool) -> int:
    """The place of the tightest number of four digits that a plan with a value is surely within."""
    return place(value * (1 + SLACK if up else 1 - SLACK), up)


def place(value: float, up: bool) -> int:
    """The place among all numbers of four digits, in their order, of the next one up or down from a value."""
    power = floor(log10(value))
    digits = value * 10.0 ** (3 - power)
    whole = ceil(digits * (1 - SAME)) if up else floor(digits * (1 + SAME))
    return power * DECADE + whole - DECADE // 9


def number_at(place: int) -> float:
    """The number of four digits at a place."""
    power, beyond = divmod(place, DECADE)
    return float(f"{beyond + DECADE // 9}e{power - 3}")
