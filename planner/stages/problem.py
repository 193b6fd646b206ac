"""What a stage assignment is asked for, and the assignment."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from costmodel.architecture import Architecture
from costmodel.stage import StageRates


@dataclass(frozen=True, slots=True)
class StagePlan:
    """Where layers lie."""

    layers: tuple[int, ...]
    """Of each virtual stage."""
    recomputed: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StageProblem:
    """One candidate's stage assignment. `rates` are those of this candidate alone."""

    architecture: Architecture
    rates: StageRates
    pp: int
    vpp: int
    num_microbatches: int
    memory_limit: float
    recompute: str
    """Layers that may be recomputed: none, some or all."""
    uniform: bool
    """Whether every virtual stage recomputes the same number of layers (or all it has)."""
    even: bool = False
    """Whether every virtual stage holds the same number of layers."""
    longest: float = inf
    """Seconds of a step at most if no layer is recomputed, where an HFU is required (`planner.hfu`)."""
    longer: tuple[float, ...] = ()
    """Seconds that each recomputed layer of a kind adds to that."""
    strict: bool = False
    """Whether what rounding leaves in doubt of that is left out, and not let in."""
