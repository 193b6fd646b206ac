"""Runs files as launches, where their owner asks for a better plan."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from planner.errors import InvalidInput
from planner.importers.launch import Framework, Launch
from planner.runs import DescribedRun, describe
from planner.runs.read import ACCEPTED, found_instead
from planner.yaml_file import read_mapping

FAMILIES: dict[str, Framework] = {"megatron": "megatron", "deepspeed": "deepspeed", "fsdp": "torchtitan"}


def read_as_launches(path: Path) -> list[Launch]:
    """Every run of a runs file. Raises InvalidInput."""
    data = read_mapping(path)
    rows = data.get("runs", [data])
    if not isinstance(rows, list) or not rows or not all(isinstance(row, Mapping) for row in rows):
        raise InvalidInput(file=str(path), path="runs", found=found_instead(rows), accepted=ACCEPTED)
    return [_launch(dict(row), f"run-{number}", path.parent) for number, row in enumerate(rows, 1)]


def _launch(row: dict[str, Any], name: str, folder: Path) -> Launch:
    described = describe(row, name, folder)
    if not isinstance(described, DescribedRun):
        return Launch(described.id, "other", row | {"id": described.id}, refused=described.error)
    framework = FAMILIES.get(described.run.stack.family, "other")
    shapes = described.run.architecture.model_dump(exclude_none=True)
    return Launch(described.id, framework, row | {"id": described.id, "model": shapes})
