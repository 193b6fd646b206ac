"""Peak memory as tools report it: allocated, reserved, or in use on the device."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, NonNegativeFloat

from costmodel.memory.overhead import communicators
from costmodel.memory.profile import Figure
from costmodel.run import Run
from costmodel.stage import Array
from hardware import yaml_text

FILE = Path(__file__).with_name("figures.yaml")


class Tool(BaseModel):
    """What one kind of figure shows beyond allocated bytes; meanings in `figures.yaml`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str
    share: NonNegativeFloat
    fixed_bytes: NonNegativeFloat
    group_bytes: NonNegativeFloat
    source: str


@cache
def tools() -> dict[Figure, Tool]:
    """Every kind of figure."""
    tree = cast(dict[Figure, Any], yaml_text.load(FILE.read_text(encoding="utf-8")))
    return {name: Tool.model_validate(entry) for name, entry in tree.items()}


def reported_bytes(run: Run, allocated: Array, figure: Figure) -> Array:
    """Bytes that a tool shows for a peak of allocated bytes: allocated*(1 + share) + fixed + groups.

    Whether a plan fits is another question (`memory_limit`): the caching allocator gives blocks back
    before it fails, so less is lost at the limit than tools show on the way there.
    """
    tool = tools()[figure]
    return allocated * (1 + tool.share) + tool.fixed_bytes + tool.group_bytes * communicators(run)
