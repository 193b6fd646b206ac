"""The best plan for the same job on the same GPUs, beside what is run today."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from costmodel.architecture import Architecture
from costmodel.run import Run
from costmodel.stack import Stack, load_stack
from planner.errors import InvalidInput, TimeLimit
from planner.frameworks.table import table
from planner.problem import Problem, parse_problem
from planner.runs import DescribedRun
from planner.solution import Solution

STEPS = 1000
"""Steps of the job that is planned: any number gives the same plan, since time is what counts."""
FP8 = ("fp8", "fp8-cs", "fp8-tensorwise", "fp8-rowwise")
TITAN = "torchtitan"
WHOLE = {"tp": 1, "cp": 1, "pp": 1}


@dataclass(frozen=True, slots=True)
class Better:
    """The outcome of a search."""

    solution: Solution | None
    """What was found; nothing where it could not be asked."""
    why_not: str = ""


def better(
    described: DescribedRun, time_limit: float | None, progress: Callable[[str], None] = lambda text: None
) -> Better:
    """The fastest plan for the same model, batch and GPUs, with the run's software profile."""
    from planner.solve import solve

    if described.run.precision not in ("bf16", *FP8):
        return Better(None, f"the search plans BF16 and FP8, not {described.run.precision}")
    try:
        problem = problem_of(described)
    except InvalidInput as error:
        return Better(None, " ".join(str(error).split()))
    try:
        return Better(solve(problem, progress, time_limit))
    except TimeLimit as error:
        return Better(None, str(error))


def problem_of(described: DescribedRun) -> Problem:
    """The run as a problem: same model, batch, length and GPUs; the least time wins. Raises InvalidInput."""
    run, gpus = described.run, described.facts.num_gpus
    batch, node = described.facts.global_batch, min(run.fabric.gpus_per_node, gpus)
    gpu: Any = run.gpu.name
    if node != run.gpu.gpus_per_node:
        gpu = {"based_on": run.gpu.name, "gpus_per_node": node}
    pool = {
        "gpu": gpu,
        "gpus": gpus,
        "price": "1 USD/gpu-hour",
        "network": f"{run.fabric.nic!r} B/s",
        "nvlink": f"{run.fabric.nvlink!r} B/s",
    }
    data = {
        "name": described.id,
        "model": shapes_of(run.architecture),
        "training": {
            "tokens": batch * run.seq_len * STEPS,
            "seq_len": run.seq_len,
            "global_batch": f"{batch} sequences",
            "precision": "fp8" if run.precision in FP8 else run.precision,
        },
        "hardware": [pool],
        "limits": {"memory_headroom": 1 - run.stack.memory.capacity_share},
        "objective": "time",
        "search": {**launchable(run), "stack": run.stack.name},
    }
    return parse_problem(data, file="the run as a problem")


def launchable(run: Run) -> dict[str, Any]:
    """What of the search's plans the run's software can launch.

    Hugging Face models under DeepSpeed stay whole: split ones are other code, with another profile. FSDP
    is torchtitan's where its profile is, in the precision that its launch files have; else any FSDP 2.
    """
    family, profile = run.stack.family, run.stack.name
    if family == "megatron":
        return {"framework": "megatron"}
    if family == "deepspeed":
        return {"framework": "deepspeed"} | (WHOLE if profile == table()["deepspeed"].profile else {})
    if profile.startswith(TITAN) and run.precision in table()[TITAN].precisions:
        return {"framework": TITAN}
    return {"framework": "any"} | ({"pp": 1, "zero": [2, 3]} if family == "fsdp" else {})


def shapes_of(architecture: Architecture) -> dict[str, Any]:
    """An architecture as a problem file writes it."""
    return architecture.model_dump(exclude_none=True, exclude={"source"})


def changed_settings(stack: Stack) -> list[str]:
    """Fields in which a run's profile differs from the plain one: what a better plan would also switch."""
    plain, own = load_stack(stack.name).model_dump(), stack.model_dump()
    return [
        f"{part}.{name} {value} -> {plain[part][name]}"
        for part, fields in own.items()
        if isinstance(fields, dict)
        for name, value in fields.items()
        if plain[part][name] != value
    ]
