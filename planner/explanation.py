"""What `planner explain` returns: why the plan is as it is, what limits cost, what would change it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from planner.document import Report
from planner.payment import Paying
from planner.solution import Plan, Reason, Scalar, Status


class Alone(Report):
    """The chosen layout with a decision changed, and only what follows: ranks, micro-batches, chunks."""

    change: dict[str, Scalar]
    """The decision and what follows from it."""
    breaks: tuple[str, ...] = ()
    """Limits that it breaks: memory, deadline, budget; none if it is a plan."""
    memory_gib: float
    """Of the fullest stage: of its best stages where it fits, else evenly split without recompute."""
    memory_recomputed_gib: float | None = None
    """The same with every layer recomputed, where it does not fit."""
    memory_limit_gib: float
    effect: dict[str, float] = Field(default_factory=dict)
    """Change against the plan."""
    text: str


class ExplainedReason(Reason):
    """A reason, and what becomes of the plan's own layout when just this decision is changed."""

    alone: tuple[Alone, ...] = ()


class LimitMoved(Report):
    """One limit moved a little, all else solved again."""

    limit: str
    """Its key in the problem file."""
    called: str
    """What people call it: H800 nodes."""
    loosened: bool
    from_value: Scalar
    to_value: Scalar
    binds: bool
    """Whether the objective changes."""
    feasible: bool = True
    effect: dict[str, float] = Field(default_factory=dict)
    """Change of the best plan."""
    price: float | None = None
    """Change of the objective for each unit of the limit."""
    price_unit: str = ""
    decisions: dict[str, Scalar] = Field(default_factory=dict)
    """What the best plan then decides otherwise."""
    text: str


class BreakEven(Report):
    """The price at which another pool's best plan is as good as the chosen one."""

    pool: int
    """Index in the problem's hardware."""
    gpu: str
    price: float
    """Today's, USD per GPU-hour."""
    break_even: float | None
    """USD per GPU-hour; none if no price decides."""
    wins: Literal["below", "above", "never", "always"]
    """`below`: the pool wins where it is cheaper; `above` is said of the chosen pool, which loses there."""
    text: str


class Changed(Report):
    """The problem with other hardware or precision, solved again."""

    change: str
    from_value: str
    to_value: str
    feasible: bool
    effect: dict[str, float] = Field(default_factory=dict)
    """Change of the best plan."""
    saves: float = 0.0
    """Share of the objective."""
    days_on_same_gpus: float | None = None
    """Days of the best plan on exactly as many of the chosen GPUs."""
    decisions: dict[str, Scalar] = Field(default_factory=dict)
    """What the best plan then decides otherwise."""
    text: str


class Sureness(Report):
    """How sure it is that the plan does what is said of it."""

    interval_80_days: tuple[float, float] | None = None
    evidence: str = ""
    probability: dict[str, float] = Field(default_factory=dict)
    """That deadline and budget hold."""
    confidence: float | None = None
    """Asked for by the problem."""
    text: tuple[str, ...] = ()


class Explanation(Report):
    """Why this plan, what would change it, how sure."""

    schema_version: Literal["1"] = "1"
    name: str
    status: Status
    objective: str
    plan: Plan
    reasons: tuple[ExplainedReason, ...]
    limits: tuple[LimitMoved, ...] = ()
    break_evens: tuple[BreakEven, ...] = ()
    paying: Paying | None = None
    what_ifs: tuple[Changed, ...] = ()
    sureness: Sureness = Sureness()
    notes: tuple[str, ...] = ()


class Answer(Report):
    """The answer to `--why`: the best plan that decides so, or why there is none."""

    schema_version: Literal["1"] = "1"
    name: str
    question: dict[str, Scalar]
    chosen: dict[str, Scalar]
    """What the plan decides."""
    plan: Plan | None = None
    """The best plan that decides as asked."""
    effect: dict[str, float] = Field(default_factory=dict)
    because: str = ""
    """What drives the difference, or the limit that leaves no plan."""
    alone: Alone | None = None
    text: str
    notes: tuple[str, ...] = ()
