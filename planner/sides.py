"""Plans to be compared, from solution files, runs files and launch files."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from costmodel.parameters import total_parameters
from planner.comparison import Side
from planner.confidence import band_of
from planner.english import counted
from planner.errors import InvalidInput, nearest
from planner.estimates import as_data, estimated
from planner.frameworks.table import ANY
from planner.importers import Given, is_launch_file, read_launches
from planner.problem import Problem, parse_problem
from planner.runs import DescribedRun, RefusedRun, describe, read_runs
from planner.solution import Decisions, Plan, PoolPart, Solution, Stage, read_solution
from planner.switches import overlaps_of
from planner.yaml_file import read_mapping

TREES = (".json", ".yaml", ".yml")
"""Endings of files that may hold a solution."""
SINGLE = (
    "gpu", "num_gpus", "tp", "cp", "pp", "vpp", "dp", "ep", "etp", "micro_batch", "num_microbatches",
    "global_batch", "zero", "zero_scope", "recompute",
    "precision", "sequence_parallel", "tp_overlap", "dp_overlap", "pp_overlap", "ep_overlap",
)  # fmt: skip


def read_side(name: str, given: Given) -> Side:
    """The plan of `FILE`, or `FILE@WHICH`: by GPU type, place, or a run's id. Raises InvalidInput."""
    path, which = Path(name), ""
    if not path.exists() and "@" in name:
        head, _, which = name.rpartition("@")
        path = Path(head)
    if path.suffix in TREES or not path.exists():
        data = read_mapping(path)
        if "provenance" in data and "proof" in data:
            return from_solution(path, which)
    return from_launch(path, which, given) if is_launch_file(path) else from_runs(path, which)


def from_solution(path: Path, which: str) -> Side:
    """A plan of a solution file: the best one, or that of a GPU type, or the n-th."""
    try:
        solution = read_solution(path)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        accepted = "a solution of `planner solve --output`"
        raise InvalidInput(file=str(path), path=where, found=first["msg"], accepted=accepted) from None
    plan = chosen(path, solution, which)
    problem = parse_problem(dict(solution.problem), file=str(path), folder=path.parent)
    d, e = plan.decisions, plan.estimate
    price = price_of_both(problem, d) if d.parts else price_on(problem, d.gpu)
    return Side(
        name=f"{problem.name} ({d.gpu})",
        kind="solution",
        file=str(path),
        **described(problem, d),
        step_time_s=e.step_time_s,
        mfu=e.mfu,
        hfu=e.hfu,
        tokens_per_s_per_gpu=e.tokens_per_s_per_gpu,
        memory_gib=e.memory_gib,
        breakdown_s=e.breakdown_s,
        tokens=float(problem.training.tokens),
        price=price,
        days=e.days,
        dollars=e.dollars,
    )


def price_on(problem: Problem, gpu: str) -> float | None:
    """USD per GPU-hour of the first pool of a GPU type."""
    return next((pool.price for pool in problem.hardware if pool.accelerator.name == gpu), None)


def price_of_both(problem: Problem, d: Decisions) -> float | None:
    """Of a plan on two pools: the mean over its GPUs."""
    prices = [(part.num_gpus, price_on(problem, part.gpu)) for part in d.parts]
    known = [number * price for number, price in prices if price is not None]
    return sum(known) / d.num_gpus if len(known) == len(prices) else None


def described(problem: Problem, d: Decisions) -> dict[str, Any]:
    """What a problem and a plan's decisions say of a side, before anything is predicted."""
    model, seq_len = problem.model.architecture, problem.training.seq_len
    return {
        "decisions": decisions_of(d) | {"seq_len": seq_len, "software": problem.search.profile},
        "model": model.name,
        "parameters": float(total_parameters(model)),
        "num_gpus": d.num_gpus,
        "tokens_per_step": float(d.global_batch * seq_len),
    }


def chosen(path: Path, solution: Solution, which: str) -> Plan:
    """The plan that is asked for. Raises InvalidInput."""
    others = [other.plan for other in solution.runner_ups if other.plan is not None]
    plans = [*solution.plans, *others]
    if not plans:
        raise InvalidInput(file=str(path), found="a solution without a plan", accepted="one with a plan")
    if not which:
        return plans[0]
    by_name = {plan.decisions.gpu: plan for plan in reversed(plans)}
    by_name |= {str(place): plan for place, plan in enumerate(plans, 1)}
    if which not in by_name:
        accepted = ", ".join(f"@{name}" for name in by_name)
        raise InvalidInput(file=str(path), found=f"no plan {which!r}", accepted=accepted)
    return by_name[which]


def decisions_of(d: Decisions) -> dict[str, Any]:
    """Decisions as single values."""
    single = {name: getattr(d, name) for name in SINGLE}
    if d.mixed is not None:
        single |= {"mixed": d.mixed, "pools": " + ".join(map(part_words, d.parts))}
    return single | {"stages": stage_words(d.stages)}


def part_words(part: PoolPart) -> str:
    """What one of two pools does: 128 x H20: ranks 0 to 1 of 16 replicas, 61 micro-batches each."""
    return (
        f"{part.num_gpus} x {part.gpu}: ranks {part.first_rank} to {part.last_rank} of "
        f"{counted(part.dp, 'replica', '')}, "
        f"{counted(part.num_microbatches, 'micro-batch', '')} each"
    )


def stage_words(stages: Sequence[Stage]) -> str:
    """Layers a rank, equal neighbours together: 15 x 8, 1 x 6 (2 recomputed)."""
    again = (stage.recomputed_layers for stage in stages)
    each = [
        f"{stage.layers}" + (f" ({n} recomputed)" if n else "")
        for stage, n in zip(stages, again, strict=True)
    ]
    return ", ".join(f"{len(list(same))} x {word}" for word, same in groupby(each))


def from_runs(path: Path, which: str) -> Side:
    """A run of a runs file: the only one, or that with an id."""
    runs = read_runs(path)
    return from_described(path, one_of([(each.id, each) for each in runs], path, which), "run")


def from_launch(path: Path, which: str, given: Given) -> Side:
    """A launch of a launch file: the only one, or that with an id."""
    launches = read_launches(path, given)
    launch = one_of([(each.id, each) for each in launches], path, which)
    if launch.refused:
        raise InvalidInput(file=str(path), found=launch.refused, accepted="a launch that can be estimated")
    return from_described(path, describe(launch.written, launch.id, path.parent), "launch")


def one_of(named: list[tuple[str, Any]], path: Path, which: str) -> Any:
    """The only entry, or the one with a name. Raises InvalidInput."""
    if len(named) == 1 and not which:
        return named[0][1]
    for name, each in named:
        if name == which:
            return each
    known = [name for name, _ in named]
    found = f"no run {which!r}" if which else f"{len(named)} runs"
    accepted = f"one of them: {', '.join(f'{path}@{name}' for name in known[:5])}" if known else "a run"
    raise InvalidInput(
        file=str(path), found=found, accepted=accepted, suggestion=nearest(which, known) if which else ""
    )


def from_described(path: Path, described: DescribedRun | RefusedRun, kind: Any) -> Side:
    """A run that is written out. Raises InvalidInput where it cannot be estimated."""
    try:
        if isinstance(described, RefusedRun):
            raise ValueError(described.error)
        predicted = estimated(described)
    except ValueError as error:
        found = " ".join(str(error).split())
        raise InvalidInput(file=str(path), found=found, accepted="a run that can be estimated") from None
    run, data = described.run, as_data(predicted, band_of(described.run))
    shown = ("step_time_s", "mfu", "hfu", "tokens_per_s_per_gpu", "fits", "breakdown_s")
    return Side(
        name=described.id,
        kind=kind,
        file=str(path),
        decisions=decisions_of_run(described),
        model=run.architecture.name,
        parameters=float(total_parameters(run.architecture)),
        num_gpus=int(run.num_gpus),
        tokens_per_step=float(run.tokens_per_step),
        memory_gib=data["memory_gib"],
        **{name: data[name] for name in shown},
    )


def decisions_of_run(described: DescribedRun) -> dict[str, Any]:
    """What a run decides, in the words of a solution."""
    run = described.run
    sizes = {name: int(getattr(run, name)) for name in ("tp", "cp", "pp", "vpp", "dp", "ep", "etp", "zero")}
    again = sum(described.recomputed)
    by_rank = [sum(described.layers[rank :: sizes["pp"]]) for rank in range(sizes["pp"])]
    redone = [sum(described.recomputed[rank :: sizes["pp"]]) for rank in range(sizes["pp"])]
    stages = [Stage(layers=n, recomputed_layers=r) for n, r in zip(by_rank, redone, strict=True)]
    return {
        "gpu": run.gpu.name,
        "num_gpus": int(run.num_gpus),
        **sizes,
        "zero_scope": "node" if sizes["zero"] and run.shard_ranks < run.weight_ranks else "full",
        "micro_batch": int(run.micro_batch),
        "num_microbatches": int(run.num_microbatches),
        "global_batch": int(run.global_batch),
        "recompute": "full" if again else "selective" if run.recompute_modules else "none",
        "precision": run.precision,
        "sequence_parallel": sizes["tp"] > 1 and run.stack.tensor_parallel.sequence_parallel,
        **overlaps_of(run.architecture, run.stack, ANY, sizes),
        "ep_overlap": sizes["ep"] > 1 and run.stack.expert_parallel.overlap,
        "stages": stage_words(stages),
        "seq_len": run.seq_len,
        "software": run.stack.name,
    }
