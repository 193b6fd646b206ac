"""What an assignment may recompute, case by case, each with what no assignment of it can beat."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.bound.capacity import case_bounds
from planner.bound.mix import LayerMix
from planner.bound.recompute import recompute_cases, uniform_case
from planner.stages.problem import StageProblem
from planner.stages.slots import most_of_a_stage


@dataclass(frozen=True, slots=True)
class Case:
    """A number of recomputed layers, and what no assignment with it can beat."""

    each: int | None
    """Layers that every virtual stage recomputes (or all it has); None where each decides for itself."""
    slowest: float
    """Seconds a micro-batch of the slowest rank."""
    step: float
    """Seconds of a step."""


def cases_of(problem: StageProblem) -> list[Case]:
    """What may be recomputed, the best bound first; without the cases in which nothing fits.

    Uniform recompute is a case for each number of layers: as a variable it would tie all stages
    together, and the proof would take thousands of times as long.
    """
    layers, alike = problem.architecture.layers, problem.recompute == "some" and problem.uniform
    if not alike or problem.pp * problem.vpp == 1:
        numbers, each = (None,), np.zeros(1, dtype=np.int64)
        (case,) = recompute_cases(
            problem.recompute, False, layers, np.array([problem.pp]), np.array([problem.vpp])
        )
    else:
        each = np.arange(most_of_a_stage(problem) + 1)
        numbers, case = tuple(each.tolist()), uniform_case(layers, problem.pp, problem.vpp, each)
    mix = LayerMix.of(problem.architecture, problem.even)
    slowest, step = case_bounds(
        problem.rates, mix, problem.pp, problem.vpp, problem.num_microbatches,
        problem.memory_limit, case, len(each),
    )  # fmt: skip
    found = zip(numbers, slowest.tolist(), step.tolist(), strict=True)
    return sorted((Case(*of) for of in found if np.isfinite(of[1])), key=lambda of: of.step)
