"""Of assignments that take equally long, the one that recomputes least and leaves most memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from costmodel.pipeline import level_chunks
from planner.solver import load_cp_model, one_worker
from planner.stages.cases import cases_of
from planner.stages.memory import BYTES, add_memory
from planner.stages.model import StageModel
from planner.stages.objective import TIME_UNITS, busy_of, ends_of
from planner.stages.problem import StagePlan, StageProblem
from planner.stages.solve import RELATIVE_GAP, read_off

Figures = tuple[float, float]
"""Seconds of a step and bytes of the fullest rank."""
EFFORT = 0.05
"""Deterministic seconds of CP-SAT for a case: the same answer on every machine, proven or not."""


def plainest(
    problem: StageProblem, plan: StagePlan, figures: Callable[[StagePlan], Figures], level: bool = False
) -> StagePlan:
    """The best assignment with as few recomputed layers as can be, and of those the least memory.

    `plan` has the shortest step. None is taken that is longer by more than `RELATIVE_GAP`. Where times
    are agreed on and say nothing of stages (`level`), these are as even as can be instead.
    """
    if not _has_choice(problem) or (level and not any(plan.recomputed)):
        return plan
    cases = cases_of(problem)
    unit = max(min((case.slowest for case in cases), default=0.0), 1e-9) / TIME_UNITS
    step, memory = figures(plan)
    pace, best = Pace.of(problem, plan, unit), (sum(plan.recomputed), memory, plan)
    for case in cases:
        if case.step > step * (1 + RELATIVE_GAP):
            break  # so are all others
        if case.each is not None and case.each > max(best[2].recomputed):
            continue
        found = _leanest(problem, case.each, unit, pace, plan, level)
        if found is None:
            continue
        its_step, its_memory = figures(found)
        other = (sum(found.recomputed), its_memory, found)
        better = other[0] < best[0] if level else other[:2] < best[:2]
        if better and its_step <= step * (1 + RELATIVE_GAP):
            best = other
    return best[2]


def _has_choice(problem: StageProblem) -> bool:
    """Whether layers can lie in more than one way, or be recomputed or not."""
    if problem.recompute == "some":
        return True
    if problem.pp == 1 or problem.even:
        return False
    level = level_chunks(problem.architecture.layers, problem.pp, problem.vpp)
    return level is None or len(level.at_first) > 1


@dataclass(frozen=True, slots=True)
class Pace:
    """What a plan's ranks take, in the model's units. What is no slower in any of these takes no longer."""

    slowest: int
    """Of the slowest rank, a micro-batch."""
    total: int
    """Of all ranks together."""
    end: int
    """Of the worst rank, at the end of a step."""

    @classmethod
    def of(cls, problem: StageProblem, plan: StagePlan, unit: float) -> Pace:
        """Of a plan: read off the model with all its variables fixed."""
        stages = StageModel(problem)
        for slot, layers, again in zip(stages.slots, stages.layers, stages.recomputed, strict=True):
            stages.model.add(layers == sum(plan.layers[stage] for stage in slot.stages))
            if not isinstance(again, int):
                stages.model.add(again == sum(plan.recomputed[stage] for stage in slot.stages))
        solver = one_worker()
        status = solver.solve(stages.model)
        assert status == load_cp_model().OPTIMAL, f"no plan of the model: {solver.status_name(status)}"
        busy = [int(solver.value(of)) for of in busy_of(stages, unit)]
        return cls(max(busy), sum(busy), max(int(solver.value(of)) for of in ends_of(stages, unit)))

    def add(self, stages: StageModel, unit: float) -> None:
        """No rank of a model takes longer."""
        busy = busy_of(stages, unit)
        stages.model.add(sum(busy) <= self.total)
        for of in busy:
            stages.model.add(of <= self.slowest)
        for of in ends_of(stages, unit):
            stages.model.add(of <= self.end)


def _leanest(
    problem: StageProblem, each: int | None, unit: float, pace: Pace, known: StagePlan, level: bool
) -> StagePlan | None:
    """The leanest assignment of a case that keeps a pace, from a known one on; None if there is none.

    Or the most even one that recomputes least.
    """
    stages, cp_model = StageModel(problem, each), load_cp_model()
    for slot, layers in zip(stages.slots, stages.layers, strict=True):
        stages.model.add_hint(layers, sum(known.layers[stage] for stage in slot.stages))
    room = int(problem.memory_limit // BYTES) + 1
    spare = stages.model.new_int_var(0, room, "spare")
    add_memory(stages, spare)
    pace.add(stages, unit)
    second = -spare
    if level:
        most, least = (
            stages.model.new_int_var(0, problem.architecture.layers, name) for name in ("most", "least")
        )
        stages.model.add_max_equality(most, stages.layers)
        stages.model.add_min_equality(least, stages.layers)
        second = most - least
    stages.model.minimize(sum(stages.recomputed) * room + second)
    solver = one_worker()
    solver.parameters.max_deterministic_time = EFFORT
    if solver.solve(stages.model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    return read_off(stages, solver)
