"""What was looked at and how far the answer can be from the best; or the limits in conflict, and ways out."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, NonNegativeFloat, NonNegativeInt

from planner.document import Report
from planner.solution.plan import Plan, Scalar


class Proof(Report):
    """How much was looked at, and how far the answer can be from the best."""

    lattice: NonNegativeInt
    """Combinations of decision values."""
    unrestricted: NonNegativeInt | None = None
    """What divisibility and topology allow on any framework, with nothing narrowed. Counted where the problem
    narrows decisions, or where nothing fits."""
    narrowed: dict[str, NonNegativeInt] = {}
    """Of these, what each thing that narrows removes of what those before it leave: `search.framework`, then
    keys of `search`, then required decisions, each in the order of the problem."""
    needless: NonNegativeInt = 0
    """Of the rest, those that recompute modules of which others are as quick and as small in every layer.
    What is left then is `valid`."""
    valid: NonNegativeInt | None = None
    """Combinations that divisibility, topology, the framework and what is narrowed allow. Null, as the other
    counts, where the time was out before candidates were counted."""
    feasible: NonNegativeInt | None = None
    """Of these, what no limit rules out as far as was looked: bounds dismiss most without a closer look."""
    screened: NonNegativeInt | None = None
    """Dropped: another is at least as good in time and cost; out of time, or not looked at yet."""
    bounded: NonNegativeInt | None = None
    """Dropped: their lower bound cannot beat the plan; out of time, or not solved yet."""
    solved: NonNegativeInt | None = None
    """Solved exactly, with their stage assignment."""
    gap: NonNegativeFloat
    """(objective - bound) / objective; 0 is proved optimal."""
    seconds: NonNegativeFloat
    rejected: dict[str, NonNegativeInt] = {}
    """Valid combinations by the limit that ruled them out first, each counted once; `feasible` are the
    others. `memory` is the GPUs' own with its headroom, beside what only a required `memory_gib` rules out.
    Of a run in phases: candidates of all phases, against what the limits leave a phase. With `mixing`: those
    on one pool; `mixing.proof` counts the others."""


class Relaxation(Report):
    """One limit moved, all others kept: the least that makes the problem solvable, where that is proved."""

    limit: str
    from_: Annotated[Scalar, Field(alias="from")]
    to: Scalar
    proved: bool = True
    """That no nearer value does; else time was out, and this is only one that would do."""
    text: str

    @classmethod
    def of(cls, limit: str, old: Scalar, new: Scalar, text: str) -> Relaxation:
        """From one value to another, with a sentence for people."""
        return cls.model_validate({"limit": limit, "from": old, "to": new, "text": text})


class Nearest(Report):
    """The plan that breaks the limits by the least share (`planner.nearest`)."""

    plan: Plan
    phase: str | None = None
    """Of a run in phases the longest one, which `plan` is of."""
    over: dict[str, NonNegativeFloat]
    """How far it is beyond each limit that it breaks, by the limit's name and in the unit of `slack`."""
    share: dict[str, NonNegativeFloat] = {}
    """The share by which each would have to be looser: of x at most to x * (1 + share), of x at least to
    x / (1 + share)."""
    let_go: tuple[str, ...] = ()
    """Limits without a number that it does not keep to: looser numbers alone leave no plan."""
    proved: bool = True
    """That none is nearer; else time was out."""
    text: str
    """A sentence for people."""


class Conflict(Report):
    """Limits that cannot hold together."""

    limits: tuple[str, ...]
    """By name: deadline, budget, memory, ... Alone, whatever the limits: `search` where no layout divides
    batch, layers, heads and GPUs, `reliability` where no run would ever end. None can be left out; empty
    where the time was out before that was known."""
    relaxations: tuple[Relaxation, ...] = ()
    stuck: dict[str, str] = {}
    """Of `limits` those of which no value alone makes a plan possible, a sentence each."""
    nearest: Nearest | None = None
    """What comes nearest to all limits together; None where there is no plan whatever is let go."""


class Fates(Report):
    """What became of pairs of node counts, or of layouts, each counted once; they add up to all."""

    rejected: dict[str, NonNegativeInt] = {}
    """By the first limit that the first bound breaks: no plan of them can keep it. Bounds come in order: of
    parts of the pairs the GPUs' speed alone, of a pair its best layer key, of a layout its layers and bubble
    before anything is priced; of a bound memory comes first, then deadline, budget, energy, carbon, storage
    and requirements. `memory` of a pair: no pipeline of an allowed length has room. `search` of a layout: no
    batch that is allowed. Others may break a limit too, which nobody had to look at."""
    bounded: NonNegativeInt
    """No better than a plan that was found, by a bound; out of time, or not looked at yet."""
    opened: NonNegativeInt
    """Looked into. Of a pair its layouts were written down, unless none may win; a layout was looked at with
    each number of chunks, by bounds with prices and memory, and its stages solved where it may still win."""


class MixingProof(Report):
    """How much was looked at to know the best plan on two pools.

    Out of time, counts are of what was looked at so far.
    """

    node_pairs: NonNegativeInt
    """Numbers of nodes of two pools, in every form and order."""
    pairs: Fates | None = None
    """What became of these. None in solutions that were written before it was counted."""
    layouts: NonNegativeInt
    """Layouts on them that were written down; all others have a bound that is outside the limits or cannot
    win."""
    written: Fates | None = None
    """What became of these. None as above."""
    solved: NonNegativeInt
    """Stage assignments solved exactly."""
    gap: NonNegativeFloat
    """(objective - bound) / objective of the plan that is chosen, by what a plan on two pools takes at least;
    0: none is better."""
    seconds: NonNegativeFloat


class MixingVerdict(Report):
    """Whether a plan on two pools beats the best plan on one."""

    better: bool
    """Whether the first of `plans` is mixed."""
    effect: dict[str, float] = {}
    """The best mixed plan minus the best on one pool: days, dollars, step_time_s; where there are both."""
    plan: Plan | None = None
    """The best mixed plan, where it is not the first of `plans`."""
    proof: MixingProof
    """What was looked at for it."""
    text: str
    """Why it is better or not, a sentence or two for people."""
