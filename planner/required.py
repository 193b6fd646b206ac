"""What requirements on predictions ask of a step: how long it may take, a row of decisions each.

    tokens_per_s_per_gpu >= x    GPU-seconds a token <= 1/x
    mfu >= x                     GPU-seconds a token <= model FLOPs a token / (x * peak)
    hfu >= x                     the same with the FLOPs that are recomputed as well (`planner.hfu`)
    step_time_s <= x             step <= x
    goodput >= x                 any step if slowdown <= 1/x, else none

All but the last two are about the time of a token, which falls with the number of micro-batches like
everything the search is after; `step_time_s` is about the step, which grows with it: fewer micro-batches may
keep to it. What a run loses is no matter of its step, so that goodput only excludes layouts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.units import GIB
from planner.hfu import again_at_most, model_flops, seconds_a_flop
from planner.instance import Instance
from planner.requirements import Requirement
from planner.running import Running
from planner.space.columns import Candidates, Groups, LayerKeys

Array = NDArray[Any]
STEPS = ("step_time_s", "mfu", "hfu", "tokens_per_s_per_gpu", "goodput")
"""Predictions that a longest step stands for."""
NEVER = -np.inf
"""The longest step where none will do."""


def most_gpu_seconds(instance: Instance, of: Requirement, rows: LayerKeys) -> Array | None:
    """(rows,) GPU-seconds a token at most; None where a requirement is about something else."""
    if of.name in ("step_time_s", "goodput"):
        return None
    if of.name == "tokens_per_s_per_gpu":
        return np.full(len(rows), 1 / float(of.value))
    flops = model_flops(instance) + (again_at_most(instance, rows) if of.name == "hfu" else 0.0)
    return seconds_a_flop(instance, rows, of.value) * flops


def step_requirement(instance: Instance) -> Requirement | None:
    """The tightest requirement on the step itself."""
    steps = [of for of in instance.limits.steps if of.name == "step_time_s"]
    return min(steps, key=lambda of: of.value, default=None)


def longest_step(instance: Instance) -> float:
    """Seconds that a step may take whatever the decisions; inf where nothing is required of it."""
    of = step_requirement(instance)
    return np.inf if of is None else float(of.value)


def longest_steps(instance: Instance, rows: Groups, slowdown: Array) -> Array | None:
    """(rows, requirements): seconds that steps may take at the rows' largest number of micro-batches."""
    if not instance.limits.steps:
        return None
    tokens = rows.micro_batch * rows.m_high * rows.dp * float(instance.seq_len)
    found = np.empty((len(rows), len(instance.limits.steps)))
    for column, of in enumerate(instance.limits.steps):
        most = most_gpu_seconds(instance, of, rows)
        if of.name == "goodput":
            found[:, column] = lasting_enough(of, slowdown)
        else:
            found[:, column] = of.value if most is None else most * tokens / rows.num_gpus
    return found


def lasting_enough(of: Requirement, slowdown: Array) -> Array:
    """The longest step that a required goodput allows: any, or none."""
    return np.where(1 / slowdown >= of.value, np.inf, NEVER)


def longest_runs(steps: Array, seconds_per_step: Array, fixed: Array) -> Array:
    """Seconds of runs with the longest steps that requirements allow, one requirement after the other."""
    runs = seconds_per_step[..., None] * np.maximum(steps, 0.0) + fixed[..., None]
    return np.where(steps == NEVER, NEVER, runs)


def most_by_key(instance: Instance, keys: LayerKeys) -> dict[str, Array]:
    """GPU-seconds a token that layer keys may take at most, by the requirement's text."""
    limits = {of.text: most_gpu_seconds(instance, of, keys) for of in instance.limits.steps}
    return {text: most for text, most in limits.items() if most is not None}


def too_lossy(instance: Instance, pool: Array, num_gpus: Array) -> dict[str, Array]:
    """Rows that lose too much on so many GPUs of a pool or on any more, by the requirement's text."""
    required = [of for of in instance.limits.steps if of.name == "goodput"]
    if not required:
        return {}
    running = Running.of(instance)
    slowdown = running.at_least(running.slowdown, pool, num_gpus)
    return {of.text: lasting_enough(of, slowdown) == NEVER for of in required}


def fewer_microbatches(rows: Groups, bound: Array, longest: float) -> Array:
    """The most micro-batches with which steps may still be `longest`, given a bound beyond it at `m_high`.

    A token takes no less time with fewer micro-batches, so m of them take at least bound * m / m_high.
    """
    with np.errstate(invalid="ignore"):
        most = np.floor(rows.m_high * (longest / bound) * (1 + 1e-12))
    most = np.minimum(most.astype(np.int64), rows.m_high - 1)
    step = np.where(rows.vpp > 1, rows.pp, 1) if isinstance(rows, Candidates) else 1
    return most // step * step


def requirements_of(instance: Instance) -> tuple[Requirement, ...]:
    """All requirements of an instance; those on days, dollars and the like are limits of other names."""
    of = memory_requirement(instance)
    return (*instance.narrowing.required, *instance.limits.steps, *(() if of is None else (of,)))


def memory_requirement(instance: Instance) -> Requirement | None:
    """The tightest requirement on memory."""
    most = instance.limits.most_memory
    return None if most is None else Requirement("memory_gib", "<=", (most / GIB,))


def with_requirements(instance: Instance, required: Iterable[Requirement]) -> Instance:
    """The instance with other requirements."""
    required = tuple(required)
    memory = [GIB * float(of.value) for of in required if of.name == "memory_gib"]
    steps = tuple(of for of in required if of.name in STEPS)
    decided = tuple(of for of in required if of.decision is not None)
    return replace(
        instance,
        narrowing=replace(instance.narrowing, required=decided),
        limits=replace(instance.limits, steps=steps, most_memory=min(memory, default=None)),
    )


def without_requirements(instance: Instance, texts: Iterable[str]) -> Instance:
    """The instance without some of its requirements."""
    left = set(texts)
    return with_requirements(instance, (of for of in requirements_of(instance) if of.text not in left))
