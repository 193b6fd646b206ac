"""Reads a runs file: one run, or a mapping whose `runs` is a list of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from planner.errors import InvalidInput, shown
from planner.runs.describe import DescribedRun, RefusedRun, describe
from planner.yaml_file import read_mapping

ACCEPTED = "one run as a mapping, or a mapping with `runs:` holding a list of them"


def read_runs(path: Path) -> list[DescribedRun | RefusedRun]:
    """Every run of the file in its order; those that cannot be used carry the reason."""
    data = read_mapping(path)
    rows = data.get("runs", [data])
    if not isinstance(rows, list) or not rows:
        raise InvalidInput(file=str(path), path="runs", found=found_instead(rows), accepted=ACCEPTED)
    return [_one(row, f"run-{number}", path.parent) for number, row in enumerate(rows, 1)]


def found_instead(rows: Any) -> str:
    """What is there in the place of runs."""
    return "holds no run" if rows == [] else f"found {shown(rows)}"


def _one(row: Any, name: str, folder: Path) -> DescribedRun | RefusedRun:
    if not isinstance(row, Mapping):
        return RefusedRun(name, f"found {shown(row)}; accepted: a mapping of keys to values")
    return describe(row, name, folder)
