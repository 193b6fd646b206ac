"""The cost-time frontier: every plan that no other beats in both days and dollars, and the knee of it."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Literal

from pydantic import JsonValue, NonNegativeFloat, NonNegativeInt

from planner import answer, relax
from planner.errors import TimeLimit
from planner.problem import Problem
from planner.resolve import instance_of
from planner.search.front import frontier as find
from planner.search.goal import Effort, goal_of
from planner.search.ledger import Ledger
from planner.search.table import Table
from planner.solution import SCHEMA_VERSION, Conflict, Plan, Provenance, Report, Status
from planner.solve import checked
from planner.space.values import lattice_size, recompute_families, recompute_modes

Axis = Literal["gpus"]


class FrontierProof(Report):
    """How much was looked at to know that nothing else belongs on the frontier."""

    lattice: NonNegativeInt
    """Combinations of decision values."""
    valid: NonNegativeInt
    """Of these, what divisibility and topology allow."""
    solved: NonNegativeInt
    """Stage assignments solved exactly."""
    seconds: NonNegativeFloat


class Frontier(Report):
    """Non-dominated plans within the limits, quickest first."""

    schema_version: Literal["1"] = SCHEMA_VERSION
    status: Status
    """optimal: no other plan belongs here; feasible: the time ran out before that was proved."""
    axes: tuple[str, ...] = ("days", "dollars")
    problem: dict[str, JsonValue]
    """The problem in the spelling of its file."""
    provenance: Provenance
    points: tuple[Plan, ...] = ()
    knee: NonNegativeInt | None = None
    """Which of the points is the knee."""
    knee_text: str = ""
    """What a day costs on either side of it."""
    proof: FrontierProof
    conflict: Conflict | None = None
    """Why there is no plan."""
    notes: tuple[str, ...] = ()

    def to_json(self) -> str:
        """Indented JSON, with a newline at the end."""
        return self.model_dump_json(indent=2) + "\n"

    def to_yaml(self) -> str:
        """The same as YAML."""
        import yaml

        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=False, width=110)


def frontier(
    problem: Problem,
    progress: Callable[[str], None] = lambda text: None,
    time_limit: float | None = None,
    axis: Axis | None = None,
) -> Frontier:
    """Every non-dominated plan of a problem.

    Raises TimeLimit when `time_limit` seconds pass before any plan is found.
    """
    started = monotonic()
    instance = instance_of(problem)
    effort = Effort(until=None if time_limit is None else started + time_limit, progress=progress)
    plans, table = find(instance, effort, axis)
    if not plans and effort.out_of_time:
        raise TimeLimit(f"no plan was found in {time_limit:.0f} s; nothing is proved either way")
    points = tuple(answer.reported(instance, plan) for plan in plans)
    checked(problem, list(points))
    families = recompute_families(recompute_modes(instance))
    table = table or Table.of(instance, goal_of(instance), families)
    status: Status = "feasible" if effort.out_of_time else "optimal" if points else "infeasible"
    knee = knee_of([(point.estimate.days, point.estimate.dollars) for point in points])
    return Frontier(
        status=status,
        axes=("days", "dollars") if axis is None else ("days", "dollars", axis),
        problem=problem.as_written(),
        provenance=answer.provenance(problem.problem_hash, problem.files),
        points=points,
        knee=knee,
        knee_text="" if knee is None else knee_words(points, knee),
        proof=FrontierProof(
            lattice=lattice_size(instance),
            valid=Ledger.of(table, families).valid,
            solved=effort.solved,
            seconds=monotonic() - started,
        ),
        conflict=relax.infeasible(instance) if status == "infeasible" else None,
        notes=problem.assumptions,
    )


def knee_of(points: list[tuple[float, float]]) -> int | None:
    """The point farthest below the straight line between the ends, both axes scaled to their range.

    None with fewer than three points. Points are quickest first; those that a third axis adds above the
    line are never the knee.
    """
    if len(points) < 3:
        return 0 if points else None
    days, dollars = ([point[axis] for point in points] for axis in (0, 1))
    wide, high = max(days) - min(days), max(dollars) - min(dollars)
    if not wide or not high:
        return 0
    below = [1 - (d - min(days)) / wide - (c - min(dollars)) / high for d, c in points]
    return max(range(len(points)), key=lambda i: below[i])


def knee_words(points: tuple[Plan, ...], knee: int) -> str:
    """What the next quicker and the next cheaper plan would cost a day."""
    if len(points) < 3:
        return ""
    at, parts = points[knee].estimate, []
    if knee > 0:
        quick = points[knee - 1].estimate
        saved, more = at.days - quick.days, quick.dollars - at.dollars
        parts.append(f"ending {saved:.1f} days sooner costs ${more / saved:,.0f} a day")
    if knee + 1 < len(points):
        cheap = points[knee + 1].estimate
        later, less = cheap.days - at.days, at.dollars - cheap.dollars
        parts.append(f"waiting {later:.1f} days more saves only ${less / later:,.0f} a day")
    return f"Knee at {at.days:.1f} days and ${at.dollars:,.0f}: {', '.join(parts)}."
