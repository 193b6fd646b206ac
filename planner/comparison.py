"""What `planner compare` returns: two plans side by side."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveInt

from planner.document import Report
from planner.solution import MemoryParts, Scalar


class Side(Report):
    """One plan, wherever it was read from."""

    name: str
    kind: Literal["solution", "run", "launch"]
    file: str
    decisions: dict[str, Scalar]
    """What a launch file says, and the software profile that predicts it."""
    model: str
    parameters: NonNegativeFloat
    num_gpus: PositiveInt
    tokens_per_step: NonNegativeFloat
    step_time_s: NonNegativeFloat
    mfu: NonNegativeFloat
    hfu: NonNegativeFloat
    tokens_per_s_per_gpu: NonNegativeFloat
    memory_gib: MemoryParts
    fits: bool = True
    breakdown_s: dict[str, float]
    tokens: NonNegativeFloat | None = None
    """Of the whole run, where a problem says it."""
    price: NonNegativeFloat | None = None
    """USD per GPU-hour, where a problem says it."""
    days: NonNegativeFloat | None = None
    """With what failures cost, where a solution says it."""
    dollars: NonNegativeFloat | None = None


class Differs(Report):
    """A decision on which the plans differ."""

    decision: str
    a: Scalar
    b: Scalar


class Figure(Report):
    """One figure of both."""

    name: str
    unit: str
    a: float
    b: float
    difference: float
    """b - a."""


class Part(Report):
    """One part of the step: seconds a step of each, and what the difference makes over the run."""

    part: str
    a_s: float
    b_s: float
    difference: float
    """b - a over the whole run, in `Comparison.unit`."""


class Comparison(Report):
    """Two plans side by side; differences are b - a."""

    schema_version: Literal["1"] = "1"
    a: Side
    b: Side
    decisions: tuple[Differs, ...]
    figures: tuple[Figure, ...]
    unit: Literal["days", "GPU-hours"]
    """Of differences of parts: days on equal GPUs, else GPU-hours."""
    parts: tuple[Part, ...]
    """Largest difference first."""
    driver: str
    """The part that differs most."""
    text: str
    notes: tuple[str, ...] = Field(default=())
