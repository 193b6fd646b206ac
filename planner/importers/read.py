"""Which reader a launch file needs."""

from __future__ import annotations

from pathlib import Path

from planner.importers import deepspeed, script, torchtitan, torchtitan_recipe
from planner.importers.launch import Given, Launch, completed
from planner.yaml_file import read_text

RUNS = (".yaml", ".yml")
ACCEPTED = (
    "a runs file (YAML), a script that starts Megatron-LM, DeepSpeed or torchtitan, a DeepSpeed JSON, "
    "a torchtitan TOML or recipe (Python)"
)


def is_launch_file(path: Path) -> bool:
    """Anything but YAML, which is a runs file."""
    return path.suffix.lower() not in RUNS


def read_launches(path: Path, given: Given) -> list[Launch]:
    """Every launch of a file with the command line's facts laid over it. Raises InvalidInput."""
    suffix = path.suffix.lower()
    if suffix == ".json":
        found = deepspeed.read(path, given)
    elif suffix == ".py":
        found = torchtitan_recipe.read(path, given)
    elif suffix == ".toml":
        found = torchtitan.read(path, given)
    else:
        found = script.read(read_text(path, ACCEPTED), str(path), given)
    return [completed(each, given, str(path), path.parent) for each in found]
