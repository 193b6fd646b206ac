"""Facts that an exported file carries in a comment, since its launcher has no setting for them."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any

from pydantic import BaseModel, ConfigDict, PositiveInt, ValidationError

from hardware.catalogue import accelerator_names
from planner.export.carried import MARK
from planner.importers.launch import Given

LINE = re.compile(rf"^(?:#\s*)?{MARK} (\{{.*\}})\s*$", re.MULTILINE)


class Carried(BaseModel):
    """The keys that `planner.export.carried` writes."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    gpu: str
    gpus_per_node: PositiveInt
    interconnect: str


def carried(text: str, given: Given, warnings: list[str]) -> dict[str, Any]:
    """Keys of a run from the comment of an exporter; nothing where there is none, or --gpu says otherwise."""
    found = LINE.search(text)
    if found is None or given.gpu is not None:
        return {}
    with suppress(ValidationError, json.JSONDecodeError):
        facts = Carried.model_validate(json.loads(found.group(1)))
        if facts.gpu in accelerator_names():
            warnings.append(
                f"gpu, gpus_per_node, interconnect: {facts.gpu}, {facts.gpus_per_node}, "
                f"{facts.interconnect}, as the file's own comment says"
            )
            return facts.model_dump()
    return {}
