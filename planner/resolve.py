"""From a problem file's models and names to the search's instance."""

from __future__ import annotations

from costmodel.units import DAY, GIB
from planner.errors import InvalidInput
from planner.instance import Instance, Limits, Mixing, Narrowing, Pool, Term
from planner.pool import Pool as Described
from planner.problem import Problem
from planner.required import STEPS
from planner.site import Site


def instance_of(problem: Problem) -> Instance:
    """The instance of a problem; names were checked when it was read. Raises `InvalidInput` for phases."""
    if problem.phases:
        raise InvalidInput(
            file=problem.name,
            path="phases",
            found="a run in phases",
            accepted="a problem without phases: only `planner solve` plans them together",
        )
    return whole_instance(problem)


def whole_instance(problem: Problem) -> Instance:
    """The instance of a problem as if all its tokens were one phase."""
    search = problem.search
    terms, lexicographic = objective_of(problem)
    batch = problem.training.global_batch
    return Instance(
        architecture=problem.model.architecture,
        stack=search.software,
        switches=search.chosen,
        tokens=float(problem.training.tokens),
        seq_len=problem.training.seq_len,
        min_batch=batch.min,
        max_batch=batch.max,
        pools=pools_of(problem),
        without_precision=lacking(problem),
        limits=limits_of(problem),
        objective=terms,
        lexicographic=lexicographic,
        narrowing=Narrowing(
            dict(search.allowed), tuple(of for of in problem.limits.require if of.decision is not None)
        ),
        framework=search.framework,
        own_stack=search.stack is None,
        per_stage_recompute=search.by_stage,
        stages_alike=search.per_stage_recompute is False,
        assume_mfu=problem.assume_mfu,
        nominal_parameters=problem.model.nominal_parameters,
        mixing=None if problem.mixing is None else Mixing(problem.mixing.network, problem.mixing.forms),
    )


def limits_of(problem: Problem) -> Limits:
    """The limits, with requirements on days, dollars and the like as the limits that they are."""
    of = problem.limits
    return Limits(
        least_of(of.deadline, [DAY * each for each in required(problem, "days")]),
        least_of(of.budget, required(problem, "dollars")),
        max([of.memory_headroom, *required(problem, "memory_headroom")]),
        of.confidence,
        least_of(of.energy, [1e3 * each for each in required(problem, "energy")]),
        least_of(of.carbon, required(problem, "carbon")),
        least_of(None, [GIB * each for each in required(problem, "memory_gib")]),
        tuple(each for each in of.require if each.name in STEPS),
    )


def required(problem: Problem, name: str) -> list[float]:
    """Values of the requirements on a prediction."""
    return [float(each.value) for each in problem.limits.require if each.name == name]


def least_of(limit: float | None, others: list[float]) -> float | None:
    """The tightest of limits, None if there is none."""
    return min([*others, *([] if limit is None else [limit])], default=None)


def pools_of(problem: Problem) -> tuple[Pool, ...]:
    """A pool of each described one for each precision that is allowed and that its GPU has."""
    return tuple(
        pool_of(described, site, precision, entry)
        for entry, (described, site) in enumerate(zip(problem.hardware, problem.sites, strict=True))
        for precision in problem.training.precision
        if precision in described.accelerator.peak_flops
    )


def lacking(problem: Problem) -> tuple[tuple[str, str], ...]:
    """GPUs without any of the problem's precisions."""
    wanted = problem.training.precision
    gpus = (pool.accelerator for pool in problem.hardware)
    names = dict.fromkeys(gpu.name for gpu in gpus if not set(wanted) & set(gpu.peak_flops))
    return tuple((name, " and no ".join(each.upper() for each in wanted)) for name in names)


def pool_of(described: Described, site: Site, precision: str, entry: int) -> Pool:
    """GPUs to search over: of what there is, what trains beside its spares, at the price of its tariff."""
    most = site.training_nodes(described.max_nodes)
    return Pool(
        gpu=described.accelerator,
        fabric=described.fabric,
        min_nodes=min(described.min_nodes, most),
        max_nodes=most,
        price=site.tariff.price,
        committed=site.tariff.committed_days * DAY,
        site=site,
        nodes=described.max_nodes,
        precision=precision,
        entry=entry,
    )


def objective_of(problem: Problem) -> tuple[tuple[tuple[Term, float], ...], bool]:
    """Terms of the objective and whether they are taken one after the other."""
    objective = problem.objective
    if not objective.weighted:
        return tuple((goal, 1.0) for goal in objective.goals), True
    value_of_a_day = (objective.value_of_time or 0.0) * DAY
    return (("cost", objective.cost_weight), ("time", value_of_a_day)), False
