"""The frontier: every plan that no other beats in days, dollars and a third axis, and the knee of it."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Literal

from pydantic import JsonValue, NonNegativeFloat, NonNegativeInt, PositiveInt

from costmodel.units import DAY
from planner import answer, search
from planner.asking import Asking
from planner.conflict import infeasible
from planner.document import Document, Report
from planner.errors import nothing_found
from planner.instance import Instance
from planner.knee import knee_of, knee_words
from planner.mixing import alone_note
from planner.problem import Problem
from planner.resolve import instance_of
from planner.search.front import figures, weighing
from planner.search.front import frontier as find
from planner.search.goal import Effort, OutOfTime
from planner.search.headroom import STEP, frontier_with_headroom, used
from planner.search.ledger import Ledger
from planner.search.table import Table
from planner.solution import SCHEMA_VERSION, Conflict, Plan, Provenance, Status
from planner.solve import checked
from planner.space.recompute import recompute_families
from planner.space.values import lattice_size

Axis = Literal["gpus", "energy", "carbon", "headroom"]
NAMES: dict[Axis, str] = {
    "gpus": "gpus",
    "energy": "mwh",
    "carbon": "tonnes_co2",
    "headroom": "memory_percent",
}
"""What an axis measures, as `Frontier.axes` has it; less of it is better."""


class FrontierProof(Report):
    """How much was looked at to know that nothing else belongs on the frontier."""

    lattice: NonNegativeInt
    """Combinations of decision values."""
    valid: NonNegativeInt | None = None
    """Of these, what divisibility and topology allow; null where time was out before that."""
    solved: NonNegativeInt
    """Stage assignments solved exactly."""
    seconds: NonNegativeFloat


class Frontier(Document):
    """Non-dominated plans within the limits, quickest first."""

    schema_version: Literal["1"] = SCHEMA_VERSION
    status: Status
    """optimal: no other plan belongs here; feasible: the time ran out before that was proved."""
    axes: tuple[str, ...] = ("days", "dollars")
    """And a third one: gpus, mwh, tonnes_co2, or memory_percent of what a GPU lets processes use."""
    values: tuple[tuple[float, ...], ...] = ()
    """What each of the points takes of the axes. Memory is rounded up to whole steps of `headroom_step`."""
    headroom_step: PositiveInt | None = None
    """Percentage points in which headroom is told apart, where it is an axis: exact to that."""
    problem: dict[str, JsonValue]
    """The problem in the spelling of its file."""
    provenance: Provenance
    points: tuple[Plan, ...] = ()
    knee: NonNegativeInt | None = None
    """Which of the points is the knee."""
    knee_text: str = ""
    """What it takes to go on from it along each axis."""
    proof: FrontierProof
    conflict: Conflict | None = None
    """Why there is no plan."""
    notes: tuple[str, ...] = ()


def frontier(
    problem: Problem,
    progress: Callable[[str], None] = lambda text: None,
    time_limit: float | None = None,
    axis: Axis | None = None,
    step: int = STEP,
) -> Frontier:
    """Every non-dominated plan of a problem. `step`: percentage points in which headroom is told apart.

    Raises TimeLimit when `time_limit` seconds pass before any plan is found.
    """
    started = monotonic()
    instance = instance_of(problem)
    until = None if time_limit is None else started + time_limit
    effort, asking = Effort(until=until, progress=progress), Asking(until)
    try:
        plans, table = plans_of(instance, effort, axis, step)
    except OutOfTime:
        raise nothing_found(time_limit) from None
    shown = instance if axis == "headroom" else weighing(instance, axis)
    found = [(taken(instance, plan, axis, step), answer.reported(shown, plan)) for plan in plans]
    if instance.mixing is not None and axis is None:
        progress("looking for plans on two pools")
        found = with_pairs(instance, found, effort)
    if not found and effort.out_of_time:
        raise nothing_found(time_limit)
    values, points = [of for of, _ in found], tuple(point for _, point in found)
    checked(problem, list(points))
    ledger = Ledger.in_time(table, recompute_families(instance), effort)
    status: Status = "feasible" if effort.out_of_time else "optimal" if points else "infeasible"
    axes = ("days", "dollars") if axis is None else ("days", "dollars", NAMES[axis])
    knee = knee_of(values)
    conflict = infeasible(instance, asking) if status == "infeasible" else None
    return Frontier(
        status=status,
        axes=axes,
        values=tuple(values),
        headroom_step=step if axis == "headroom" else None,
        problem=problem.as_written(),
        provenance=answer.provenance(problem.problem_hash, problem.files),
        points=points,
        knee=knee,
        knee_text="" if knee is None else knee_words(values, axes, knee),
        proof=FrontierProof(
            lattice=lattice_size(instance),
            valid=None if ledger is None else ledger.valid,
            solved=effort.solved,
            seconds=monotonic() - started,
        ),
        conflict=conflict,
        notes=(*problem.assumptions, *(alone_note(problem) if axis else ()), *asking.note()),
    )


def plans_of(
    instance: Instance, effort: Effort, axis: Axis | None, step: int
) -> tuple[list[search.Plan], Table]:
    """The plans of the frontier, quickest first, and the table they were found in."""
    if axis == "headroom":
        return frontier_with_headroom(instance, effort, step)
    return find(instance, effort, axis)


def with_pairs(
    instance: Instance, found: list[tuple[tuple[float, ...], Plan]], effort: Effort
) -> list[tuple[tuple[float, ...], Plan]]:
    """The frontier in days and dollars with plans on two pools in it."""
    from planner.mixed import front_of_pairs
    from planner.mixed.answer import reported

    known = tuple((days * DAY, dollars) for (days, dollars), _ in found)
    pairs = front_of_pairs(instance, known, effort).plans
    every = found + [((of.seconds / DAY, of.dollars), reported(instance, of)) for of in pairs]
    ordered: list[tuple[tuple[float, ...], Plan]] = []
    for each in sorted(every, key=lambda of: of[0]):
        if not ordered or each[0][1] < ordered[-1][0][1]:
            ordered.append(each)
    return ordered


def taken(instance: Instance, plan: search.Plan, axis: Axis | None, step: int) -> tuple[float, ...]:
    """What a plan takes of each axis, in the units of `Frontier.axes`."""
    if axis == "headroom":
        seconds, dollars = figures(instance, plan)
        return seconds / DAY, dollars, float(used(instance, plan, step))
    seconds, dollars, *third = figures(instance, plan, axis)
    return seconds / DAY, dollars, *(value / 1e3 if axis == "energy" else value for value in third)
