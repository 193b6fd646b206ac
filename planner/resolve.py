"""From a problem file's models and names to the search's instance."""

from __future__ import annotations

from costmodel.stack import load_stack
from planner.instance import Instance, Limits, Narrowing, Pool, Term
from planner.problem import Problem

SECONDS_PER_DAY = 86400.0
DEFAULT_STACK = "megatron-core"
"""The software profile of a problem that names none: today's Megatron-Core."""


def instance_of(problem: Problem) -> Instance:
    """The instance of a problem; names were checked when it was read."""
    search = problem.search
    terms, lexicographic = objective_of(problem)
    batch = problem.training.global_batch
    return Instance(
        architecture=problem.model.architecture,
        stack=load_stack(search.stack or DEFAULT_STACK),
        precision=problem.training.precision,
        tokens=float(problem.training.tokens),
        seq_len=problem.training.seq_len,
        min_batch=batch.min,
        max_batch=batch.max,
        pools=tuple(
            Pool(p.accelerator, p.fabric, p.min_nodes, p.max_nodes, p.price, p.committed or 0.0)
            for p in problem.hardware
        ),
        limits=Limits(problem.limits.deadline, problem.limits.budget, problem.limits.memory_headroom),
        objective=terms,
        lexicographic=lexicographic,
        narrowing=Narrowing(dict(search.allowed)),
        framework=search.framework,
        per_stage_recompute=per_stage_recompute(problem),
        assume_mfu=problem.assume_mfu,
        nominal_parameters=problem.model.nominal_parameters,
    )


def objective_of(problem: Problem) -> tuple[tuple[tuple[Term, float], ...], bool]:
    """Terms of the objective and whether they are taken one after the other."""
    objective = problem.objective
    if not objective.weighted:
        return tuple((goal, 1.0) for goal in objective.goals), True
    value_of_a_day = (objective.value_of_time or 0.0) * SECONDS_PER_DAY
    return (("cost", objective.cost_weight), ("time", value_of_a_day)), False


def per_stage_recompute(problem: Problem) -> bool:
    """Megatron's --recompute-num-layers is one number for all stages; other code may differ by stage."""
    if problem.search.per_stage_recompute is not None:
        return problem.search.per_stage_recompute
    return problem.search.framework != "megatron"
