"""Of assignments that take equally long, the one that recomputes least and leaves most memory.

Which one that is depends on the problem alone, not on which of them was found first: a search that asked for
less, or in another order, ends with the same plan.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from costmodel.pipeline import level_chunks, plain_layers
from planner.solver import load_cp_model, one_worker
from planner.stages.cases import cases_of
from planner.stages.memory import BYTES, add_memory
from planner.stages.model import StageModel
from planner.stages.objective import TIME_UNITS, add_step, keep_hfu
from planner.stages.problem import StagePlan, StageProblem
from planner.stages.slots import slot_range, slots_of
from planner.stages.solve import read_off

Figures = tuple[float, float]
"""Seconds of a step, and bytes that the fullest rank leaves of what it may use."""
TIED = 1e-12
"""Relative difference of steps that is rounding: limits that hold, and proofs, stay as they are."""
EFFORT = 0.05
"""Deterministic seconds of CP-SAT for a case: the same answer on every machine, proven or not."""


@dataclass(frozen=True, slots=True)
class Assignments:
    """The assignments that ties are looked for among, on one pool or two."""

    shape: StageProblem
    cases: list[tuple[int | None, float]]
    """(layers that every stage recomputes or None, least seconds of a step), the best bound first."""
    room: int
    """No rank leaves more units of memory."""
    add_limits: Callable[[StageModel, Any], None]
    """Holds a model to memory, with so many units that every rank leaves."""
    add_step: Callable[[StageModel], Any]
    """The time of a step in integer units."""
    keep_hfu: Callable[[StageModel, Any], None]
    """Holds such a step to the HFU that is required."""

    @classmethod
    def of(cls, problem: StageProblem) -> Assignments:
        """Of a candidate on one pool."""
        cases = cases_of(problem)
        unit = max(min((case.slowest for case in cases), default=0.0), 1e-9) / TIME_UNITS
        return cls(
            shape=problem,
            cases=[(case.each, case.step) for case in cases],
            room=int(problem.memory_limit // BYTES) + 1,
            add_limits=add_memory,
            add_step=partial(add_step, unit=unit),
            keep_hfu=partial(keep_hfu, unit=unit),
        )


def plainest(
    of: Assignments, plan: StagePlan, figures: Callable[[StagePlan], Figures], level: bool = False
) -> StagePlan:
    """The best assignment with as few recomputed layers as can be, and of those the most memory left.

    `plan` is the best one; none is taken that is longer. Where times are agreed on and say nothing of
    stages (`level`), these are as even as can be instead.
    """
    step, left = figures(plan)
    most, best = _units(of, plan), (sum(plan.recomputed), left, plan)
    # A rank's memory is rounded up to units, layer by layer: what is closer is as good as the plan.
    rounding = 2 * BYTES * (of.shape.architecture.layers + 2)
    for each, bound in of.cases:
        if bound > step * (1 + TIED):
            break  # so are all others
        if each is not None and _fewest(of.shape, each) > best[0]:
            continue
        found = _leanest(of, each, most, best[0], level)
        if found is None:
            continue
        its_step, its_left = figures(found)
        fewer, as_few = sum(found.recomputed) - best[0], its_left >= best[1] - rounding
        if its_step <= step * (1 + TIED) and (fewer < 0 or (fewer == 0 and (level or as_few))):
            best, rounding = (sum(found.recomputed), its_left, found), 0
    return best[2]


def has_choice(problem: StageProblem, plan: StagePlan) -> bool:
    """Whether another assignment could recompute fewer layers than a plan, or lay them out otherwise."""
    if any(plan.recomputed) and problem.recompute == "some":
        return True
    if problem.pp == 1 or problem.even:
        return False
    level = level_chunks(problem.architecture.layers, problem.pp, problem.vpp)
    return level is None or len(level.at_first) > 1


def _units(of: Assignments, plan: StagePlan) -> int:
    """The time of a plan's step in integer units."""
    stages = StageModel(of.shape)
    for slot, layers, again in zip(stages.slots, stages.layers, stages.recomputed, strict=True):
        stages.model.add(layers == sum(plan.layers[stage] for stage in slot.stages))
        if not isinstance(again, int):
            stages.model.add(again == sum(plan.recomputed[stage] for stage in slot.stages))
    step = of.add_step(stages)
    stages.model.minimize(step)
    solver = one_worker()
    status = solver.solve(stages.model)
    assert status == load_cp_model().OPTIMAL, f"no plan of the model: {solver.status_name(status)}"
    return int(solver.value(step))


def _fewest(problem: StageProblem, each: int) -> int:
    """Layers that are recomputed at least where every stage recomputes so many, or all it has."""
    ranges = ((len(slot.stages), slot_range(problem, slot)[0]) for slot in slots_of(problem))
    return sum(min(stages * each, fewest) for stages, fewest in ranges)


def _leanest(of: Assignments, each: int | None, most: int, again: int, level: bool) -> StagePlan | None:
    """The leanest assignment of a case; None if no step takes at most so many units.

    It recomputes no more than `again` layers. If `level`, the most even one that recomputes least. Of what is
    equally good it is the one nearest to plain: that is where it is looked for first.
    """
    shape, stages, cp_model = of.shape, StageModel(of.shape, each), load_cp_model()
    plain = plain_layers(shape.architecture.layers, shape.pp, shape.vpp)
    for slot, layers in zip(stages.slots, stages.layers, strict=True):
        stages.model.add_hint(layers, int(plain[list(slot.stages)].sum()))
    spare = stages.model.new_int_var(0, of.room, "spare")
    of.add_limits(stages, spare)
    step = of.add_step(stages)
    stages.model.add(step <= most)
    of.keep_hfu(stages, step)
    stages.model.add(sum(stages.recomputed) <= again)
    second = -spare
    if level:
        total = shape.architecture.layers
        longest, shortest = (stages.model.new_int_var(0, total, name) for name in ("longest", "shortest"))
        stages.model.add_max_equality(longest, stages.layers)
        stages.model.add_min_equality(shortest, stages.layers)
        second = longest - shortest
    stages.model.minimize(sum(stages.recomputed) * of.room + second)
    solver = one_worker()
    solver.parameters.max_deterministic_time = EFFORT
    if solver.solve(stages.model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    return read_off(stages, solver)
