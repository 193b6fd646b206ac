"""Finds the assignment with the shortest step, and proves it: case by case, the best bound first."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import monotonic
from typing import Any, TypeVar

from planner.solver import load_cp_model, one_worker
from planner.stages.cases import Case, cases_of
from planner.stages.memory import add_memory
from planner.stages.model import StageModel
from planner.stages.objective import TIME_UNITS, add_step, integer_step, keep_hfu
from planner.stages.problem import StagePlan, StageProblem
from planner.stages.slots import spread

C = TypeVar("C")
Solved = tuple[StagePlan, int] | None
"""The best assignment and its step in the model's units; None where there is none."""
RELATIVE_GAP = 1e-7
"""Assignments closer than this are the same to anyone who reads the plan."""


def solve_stages(
    problem: StageProblem, seconds: float | None = None, longest: float = float("inf")
) -> StagePlan | None:
    """The assignment with the shortest step, proven; None if none fits or none is below `longest` seconds.

    Raises TimeoutError when `seconds` pass without a proof.
    """
    cases = cases_of(problem)
    if not cases:
        return None
    unit = max(min(case.slowest for case in cases), 1e-9) / TIME_UNITS
    most = None if longest == float("inf") else integer_step(problem, longest, unit)
    until = None if seconds is None else monotonic() + seconds
    bounded = ((case, integer_step(problem, case.step, unit, room=-1)) for case in cases)
    return best_of_cases(bounded, most, lambda case, most: _solved(problem, case, unit, most, until))


def best_of_cases(
    cases: Iterable[tuple[C, int]], most: int | None, solved: Callable[[C, int | None], Solved]
) -> StagePlan | None:
    """The best assignment of cases, each with its bound on the step, the best bound first.

    `solved` finds the best assignment of a case whose step is at most so many units, and that step.
    """
    best = None
    for case, bound in cases:
        if most is not None and bound > most:
            break  # so are all others
        found = solved(case, most)
        if found is not None:
            best, step = found
            most = step - 1
    return best


def _solved(problem: StageProblem, case: Case, unit: float, most: int | None, until: float | None) -> Solved:
    """The best assignment of a case, and its step in the model's units."""
    stages = StageModel(problem, case.each)
    add_memory(stages)
    step = add_step(stages, unit, case.slowest)
    keep_hfu(stages, step, unit)
    return best_assignment(stages, step, most, until)


def best_assignment(stages: StageModel, step: Any, most: int | None, until: float | None) -> Solved:
    """The assignment of a model with the shortest step, if that is at most so many units; and that step.

    Of equal steps one with few recomputed layers.
    """
    if most is not None:
        stages.model.add(step <= most)
    stages.model.minimize(step * (stages.problem.architecture.layers + 1) + sum(stages.recomputed))
    solver = solved_model(stages.model, until)
    if solver is None:
        return None
    return read_off(stages, solver), int(solver.value(step))


def read_off(stages: StageModel, solver: Any) -> StagePlan:
    """The assignment that a solver has of a model."""
    layers = [solver.value(n) for n in stages.layers]
    recomputed = [0 if isinstance(r, int) else solver.value(r) for r in stages.recomputed]
    return spread(stages.slots, layers, recomputed, stages.each is not None)


def solved_model(model: Any, until: float | None) -> Any:
    """A solver with a model's proven optimum; None if nothing satisfies it.

    Raises TimeoutError when `until` (of time.monotonic) passes without a proof.
    """
    cp_model = load_cp_model()
    solver = one_worker()
    solver.parameters.relative_gap_limit = RELATIVE_GAP
    # The bound on a time of millions of units would else rise unit by unit where nothing is short enough.
    solver.parameters.binary_search_num_conflicts = 20
    solver.parameters.linearization_level = 2
    if until is not None:
        solver.parameters.max_time_in_seconds = max(until - monotonic(), 0.01)
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return None
    if status != cp_model.OPTIMAL:
        raise TimeoutError(f"no proof of a stage assignment: {solver.status_name(status)}")
    return solver
