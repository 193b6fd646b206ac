"""Files of fully specified runs: read into the cost model's noun, every assumption said aloud."""

from __future__ import annotations

from planner.runs.describe import DescribedRun, RefusedRun, describe, described
from planner.runs.read import read_runs

__all__ = ["DescribedRun", "RefusedRun", "describe", "described", "read_runs"]
