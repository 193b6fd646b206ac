"""The problem with every name resolved: what the search works on. SI units throughout."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from costmodel.architecture import Architecture
from costmodel.run import Fabric
from costmodel.stack import Stack
from hardware.accelerator import Accelerator

Term = Literal["cost", "time"]


@dataclass(frozen=True, slots=True)
class Pool:
    """GPUs of one type that can be had together."""

    gpu: Accelerator
    fabric: Fabric
    min_nodes: int
    max_nodes: int
    price: float
    """USD per GPU-hour."""
    committed: float = 0.0
    """Seconds that are paid for even if the run ends sooner."""

    def memory_limit(self, headroom: float) -> float:
        """Bytes a plan may use of each GPU."""
        return self.gpu.memory.driver * (1 - headroom)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a plan must stay within."""

    deadline: float | None = None
    """Seconds."""
    budget: float | None = None
    """USD."""
    memory_headroom: float = 0.05
    """Share of the GPU's memory that no plan may touch."""


@dataclass(frozen=True, slots=True)
class Narrowing:
    """Values a decision may take; a decision that is absent takes every valid one."""

    allowed: dict[str, tuple[int | str, ...]] = field(default_factory=dict)

    def permits(self, decision: str, value: int | str) -> bool:
        return decision not in self.allowed or value in self.allowed[decision]


@dataclass(frozen=True, slots=True)
class Instance:
    """A problem ready to search."""

    architecture: Architecture
    stack: Stack
    precision: str
    tokens: float
    seq_len: int
    min_batch: int
    """Sequences a step, at least."""
    max_batch: int
    pools: tuple[Pool, ...]
    limits: Limits
    objective: tuple[tuple[Term, float], ...] = (("cost", 1.0),)
    """One term; or several. Lexicographic if `lexicographic`, else a weighted sum in dollars
    (cost x weight + days x dollars a day)."""
    lexicographic: bool = True
    narrowing: Narrowing = field(default_factory=Narrowing)
    framework: str = "any"
    per_stage_recompute: bool = True
    assume_mfu: float | None = None
    nominal_parameters: float | None = None
    """Parameters of the 6*P*D arithmetic under `assume_mfu`; the model's active ones if none."""
