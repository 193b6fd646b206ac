"""The problem with every name resolved: what the search works on. SI units throughout."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from costmodel.architecture import Architecture
from costmodel.run import Fabric
from costmodel.stack import Stack
from hardware.accelerator import Accelerator
from planner.mixing import FORMS, Form
from planner.requirements import Requirement
from planner.site import Site

Term = Literal["cost", "time", "energy", "carbon"]


@dataclass(frozen=True, slots=True)
class Pool:
    """GPUs of one type that can be had together, and the precision they train in.

    A problem that allows several precisions has a pool of each for the same nodes: variants, of one `entry`.
    """

    gpu: Accelerator
    fabric: Fabric
    min_nodes: int
    """Nodes that train, at least."""
    max_nodes: int
    """Nodes that train, at most: what there is, without the spares that so many need."""
    price: float
    """USD per GPU-hour."""
    committed: float = 0.0
    """Seconds that are paid for even if the run ends sooner."""
    site: Site | None = None
    """What runs lose, keep and draw there; None: nothing is lost."""
    nodes: int = 0
    """All nodes there are, spares included; `max_nodes` where it is 0."""
    precision: str = "bf16"
    """Of the matrix products; one that the GPU has."""
    entry: int = 0
    """Place in the problem's hardware; pools of the same one are variants of each other."""

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
    confidence: float | None = None
    """Share of runs of a plan that are to meet deadline and budget; as predicted if none is given."""
    energy: float | None = None
    """kWh at the meter."""
    carbon: float | None = None
    """Tonnes of CO2-equivalent."""
    most_memory: float | None = None
    """Bytes of each GPU that no plan may exceed, where that is less than the headroom leaves."""
    steps: tuple[Requirement, ...] = ()
    """Requirements on predictions that ask for a step no longer than something (`planner.required`)."""

    @property
    def chance(self) -> float | None:
        """The confidence, where there is a limit that it says something about."""
        return None if self.deadline is None and self.budget is None else self.confidence


@dataclass(frozen=True, slots=True)
class Narrowing:
    """Values a decision may take; a decision that is absent takes every valid one."""

    allowed: dict[str, tuple[int | str, ...]] = field(default_factory=dict)
    required: tuple[Requirement, ...] = ()
    """Requirements on decisions; each holds beside what is allowed."""

    def permits(self, decision: str, value: int | str) -> bool:
        if decision in self.allowed and value not in self.allowed[decision]:
            return False
        return all(each.holds(value) for each in self.required if each.decision == decision)

    def permitted(self, decision: str, values: NDArray[Any]) -> NDArray[np.bool_]:
        """The same of many values."""
        found = np.ones(len(values), dtype=bool)
        if decision in self.allowed:
            found &= np.isin(values, self.allowed[decision])
        for each in self.required:
            if each.decision == decision:
                found &= each.holds(values)
        return found

    def open(self, decision: str) -> bool:
        """Whether more than one value may be left."""
        fixed = (each for each in self.required if each.decision == decision and len(each.values) == 1)
        return len(self.allowed.get(decision, (0, 1))) > 1 and all(
            e.operator not in ("==", "in") for e in fixed
        )

    def narrows(self, decision: str) -> bool:
        """Whether anything says which values a decision may take."""
        return decision in self.allowed or any(each.decision == decision for each in self.required)


@dataclass(frozen=True, slots=True)
class Mixing:
    """Plans may use two pools at once."""

    link: float
    """bytes/s one way that each GPU has to GPUs of another pool."""
    forms: tuple[Form, ...] = FORMS


@dataclass(frozen=True, slots=True)
class Instance:
    """A problem ready to search."""

    architecture: Architecture
    stack: Stack
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
    switches: dict[str, bool] = field(default_factory=dict[str, bool])
    """Overlap of the software that the problem says to be on or off; the stack is as it says."""
    own_stack: bool = False
    """The stack is the framework's own: the problem names no other."""
    per_stage_recompute: bool = True
    stages_alike: bool = False
    """The problem itself asks for the same recompute on every stage, whatever the framework can."""
    assume_mfu: float | None = None
    nominal_parameters: float | None = None
    """Parameters of the 6*P*D arithmetic under `assume_mfu`; the model's active ones if none."""
    mixing: Mixing | None = None
    """None: every plan stays within one pool."""
    saves: bool = False
    """The run ends with a checkpoint that is waited for: the next phase starts from it."""
    without_precision: tuple[tuple[str, str], ...] = ()
    """GPUs of the problem that have none of its precisions, each with what it lacks: they have no pool."""
    derived: dict[str, Any] = field(default_factory=dict[str, Any], init=False, compare=False, repr=False)
    """What is computed from the instance once and looked up after that; never carried over to another."""

    @property
    def precisions(self) -> tuple[str, ...]:
        """Precisions that plans may have."""
        return tuple(dict.fromkeys(pool.precision for pool in self.pools))

    def variants(self, index: int) -> list[int]:
        """The pool and its variants: the same nodes in each precision."""
        entry = self.pools[index].entry
        return [place for place, pool in enumerate(self.pools) if pool.entry == entry]

    @property
    def described(self) -> list[int]:
        """Of each described pool the first variant."""
        first = {pool.entry: place for place, pool in reversed(list(enumerate(self.pools)))}
        return sorted(first.values())
