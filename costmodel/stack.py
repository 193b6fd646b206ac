"""Software profiles: what a training framework of one age does with the hardware.

A profile is a YAML file under `costmodel/stacks/`. It may name another with `extends` and then holds
only what differs. Shares are of 1, times in seconds, bytes in bytes; a rate factor of 1 is what
today's Megatron-Core reaches.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from pydantic import Field

from costmodel.memory.profile import MemoryProfile
from costmodel.stack_parallel import (
    ContextParallel,
    DataParallel,
    ExpertParallel,
    Pipeline,
    TensorParallel,
)
from costmodel.stack_parts import (
    Attention,
    Elementwise,
    Gemm,
    Head,
    Host,
    Optimizer,
    Part,
    Recompute,
    Scale,
)
from hardware import yaml_text

DIRECTORY = Path(__file__).parent / "stacks"

Tree: TypeAlias = "dict[str, Any]"


class Stack(Part):
    """One software profile."""

    name: str
    title: str
    """Framework and age, for people."""
    family: Literal["megatron", "deepspeed", "fsdp", "other"]
    """Who writes the launch file, and which schedules and sharding it knows."""
    sources: tuple[str, ...] = Field(min_length=1)
    """Where the numbers come from: what was fitted, on how many runs, how well."""
    gemm: Gemm
    attention: Attention
    elementwise: Elementwise
    host: Host
    tensor_parallel: TensorParallel
    context_parallel: ContextParallel
    expert_parallel: ExpertParallel
    pipeline: Pipeline
    data_parallel: DataParallel
    head: Head
    optimizer: Optimizer
    recompute: Recompute
    scale: Scale
    memory: MemoryProfile


class UnknownStackError(ValueError):
    """No profile of that name; the message says which there are and the nearest."""


def stack_names() -> tuple[str, ...]:
    """Names of the profiles that can be loaded."""
    return tuple(sorted(path.stem for path in DIRECTORY.glob("*.yaml")))


@cache
def load_stack(name: str) -> Stack:
    """The profile `name`, with what it inherits. Raises UnknownStackError."""
    return Stack.model_validate(_tree(name))


def _tree(name: str) -> Tree:
    known = stack_names()
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise UnknownStackError(
            f"{DIRECTORY}: no software profile {name!r}, there are {', '.join(known)}{hint}"
        )
    tree = cast(Tree, yaml_text.load((DIRECTORY / f"{name}.yaml").read_text()))
    parent = tree.pop("extends", None)
    merged = overlay(_tree(parent), tree) if parent else tree
    return {**merged, "name": name}


def overlay(under: Mapping[str, Any], over: Mapping[str, Any]) -> Tree:
    """`under` with the leaves of `over` put in their place."""
    merged: Tree = dict(under)
    for key, value in over.items():
        below: Any = merged.get(key)
        both = isinstance(value, dict) and isinstance(below, dict)
        merged[key] = overlay(cast(Tree, below), cast(Tree, value)) if both else value
    return merged
