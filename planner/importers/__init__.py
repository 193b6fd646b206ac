"""What people run today, read from their launch files: Megatron-LM, DeepSpeed, torchtitan."""

from __future__ import annotations

from planner.importers.findings import Finding
from planner.importers.launch import Given, Launch
from planner.importers.read import is_launch_file, read_launches

__all__ = ["Finding", "Given", "Launch", "is_launch_file", "read_launches"]
