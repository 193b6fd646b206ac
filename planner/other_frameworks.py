"""When nothing fits: whether it is the framework that leaves no plan, and which other one has one."""

from __future__ import annotations

from dataclasses import replace

from hardware.accelerator import Accelerator
from planner.frameworks.lacking import why_not
from planner.frameworks.rules import overlaps_experts, trains
from planner.frameworks.table import ANY, FRAMEWORKS, framework_of, profile_of
from planner.instance import Instance
from planner.mixing import LAUNCHERS
from planner.narrowing import DEFAULT_STACK
from planner.space.recompute import recompute_families
from planner.space.values import base_keys
from planner.switch_rules import always_overlaps, lacking, uncovered
from planner.switches import software

FRAMEWORK = "search.framework"
"""What conflicts call it."""
MORE_THAN_ENOUGH = 1e15
"""Bytes of memory."""


def with_framework(instance: Instance, name: str) -> Instance:
    """The instance as the problem would be with another framework: its profile too, if none is named."""
    if name == instance.framework:
        return instance
    rules = framework_of(name)
    own, switches = profile_of(name, DEFAULT_STACK), instance.switches
    stack = software(own, switches) if instance.own_stack else instance.stack
    by_stage = not instance.stages_alike and (rules is None or rules.recompute == "stage")
    return replace(instance, framework=name, stack=stack, per_stage_recompute=by_stage)


def removes_keys(instance: Instance) -> bool:
    """Whether the framework has less or other software than any: the bounds of layers are its own then."""
    free = with_framework(instance, ANY)
    return free.stack != instance.stack or number_of_keys(instance) != number_of_keys(free)


def number_of_keys(instance: Instance) -> int:
    """Layer keys of all pools, whatever is recomputed; 0 where nothing may be."""
    pools = range(len(instance.pools)) if recompute_families(instance) else ()
    return sum(base_keys(instance, pool).shape[1] for pool in pools)


def without_memory_limit(instance: Instance) -> Instance:
    """The instance on GPUs with all the memory in the world."""
    pools = tuple(replace(pool, gpu=with_memory(pool.gpu, MORE_THAN_ENOUGH)) for pool in instance.pools)
    return replace(instance, pools=pools, limits=replace(instance.limits, most_memory=None))


def with_memory(gpu: Accelerator, size: float) -> Accelerator:
    """The GPU with so many bytes of memory."""
    memory = gpu.memory.model_copy(update={"driver": size})
    return gpu.model_copy(update={"memory": memory})


def others(instance: Instance) -> tuple[str, ...]:
    """Frameworks that may have a plan where the instance's has none, the nearest to today's usual first.

    Those that have overlap on or off as the problem's `search` says.
    """
    if instance.framework == ANY:
        return ()
    every = (*FRAMEWORKS, ANY) if instance.mixing is None else LAUNCHERS
    each = (name for name in every if name != instance.framework)
    return tuple(name for name in each if switched_as_asked(with_framework(instance, name)))


def switched_as_asked(instance: Instance) -> bool:
    """Whether framework, profile and model have the switches that the problem asks for (`switch_rules`)."""
    allowed, asked = instance.narrowing.allowed, dict(instance.switches)
    if allowed.get("ep_overlap") == (True,):
        asked["ep_overlap"] = True
        if not overlaps_experts(instance.framework):
            return False
    stages = tuple(int(zero) for zero in allowed.get("zero", ()))
    if asked.get("dp_overlap") is False and always_overlaps(instance.framework, stages):
        return False
    missing = (
        lacking(instance.framework, instance.stack, name, on=on) for name, on in instance.switches.items()
    )
    nothing = (uncovered(instance.architecture, instance.stack, name) for name, on in asked.items() if on)
    return not any((*missing, *nothing))


def unlaunchable(instance: Instance) -> tuple[str, str] | None:
    """The framework as the reason why there is no layout at all, if there is one without it."""
    free = with_framework(instance, ANY)
    if instance.framework == ANY or not number_of_keys(free):
        return None
    why = why_not(instance.architecture, instance.seq_len, instance.framework)
    return FRAMEWORK, f"{instance.framework} cannot launch it" + (f": {why}" if why else "")


def cannot_launch(instance: Instance) -> str:
    """That the framework does not train the model, and why if that is known; empty if it does."""
    of = trains(instance)
    if of.whole or of.split:
        return ""
    why = why_not(instance.architecture, instance.seq_len, instance.framework)
    words = f"{instance.framework} cannot launch {instance.architecture.name}"
    return f"{words}: {why}" if why else words


def none_launches(instance: Instance) -> str:
    """What is said of a way out to `any`: that no framework has the model, or that none has a plan."""
    of = [trains(with_framework(instance, name)) for name in FRAMEWORKS]
    if not any(each.whole or each.split for each in of):
        return "which no framework in the table can launch"
    return "but no framework in the table has one"
