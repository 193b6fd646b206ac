"""What a solve returns: plans with estimates, slack and reasons, the proof, and where it all came from.

The JSON of a `Solution` is read by other programs; `SCHEMA_VERSION` changes when a key does. Units
are the ones people report (days, dollars, GiB) and are in each key's name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, JsonValue, NonNegativeFloat, NonNegativeInt, PositiveInt

SCHEMA_VERSION = "1"

Status = Literal["optimal", "feasible", "infeasible"]
Scalar = bool | int | float | str | None


class Report(BaseModel):
    """Frozen and closed; numbers are finite, so that JSON can hold them."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        serialize_by_alias=True,
        validate_by_alias=True,
        validate_by_name=True,
    )


class Stage(Report):
    """What one pipeline rank holds."""

    layers: NonNegativeInt
    """Transformer layers, all kinds and chunks together."""
    recomputed_layers: NonNegativeInt = 0
    """Of these, layers that are recomputed in full."""
    kinds: dict[str, NonNegativeInt] = {}
    """Layers by kind (dense, moe), where the model has both."""
    chunks: tuple[NonNegativeInt, ...] = ()
    """Layers of each virtual stage of this rank, where the schedule is interleaved."""
    recomputed_chunks: tuple[NonNegativeInt, ...] = ()
    """Of these, layers that are recomputed in full."""
    memory_gib: NonNegativeFloat | None = None
    """Peak memory of a GPU of this rank."""
    micro_batch_time_s: NonNegativeFloat | None = None
    """Forward and backward of one micro-batch."""


class Decisions(Report):
    """Everything a launch file needs to know."""

    gpu: str
    num_gpus: PositiveInt
    nodes: PositiveInt
    tp: PositiveInt
    cp: PositiveInt
    pp: PositiveInt
    vpp: PositiveInt
    dp: PositiveInt
    ep: PositiveInt
    etp: PositiveInt
    micro_batch: PositiveInt
    """Sequences."""
    num_microbatches: PositiveInt
    """Micro-batches a step: gradient accumulation."""
    global_batch: PositiveInt
    """Sequences."""
    zero: Literal[0, 1, 2, 3]
    recompute: Literal["none", "selective", "full"]
    recompute_modules: tuple[str, ...] = ()
    """Modules that selective recompute covers."""
    precision: str
    sequence_parallel: bool
    stages: tuple[Stage, ...]
    """One entry a pipeline rank, in order."""


class MemoryParts(Report):
    """GiB on a GPU of the fullest rank."""

    weights: NonNegativeFloat = 0.0
    gradients: NonNegativeFloat = 0.0
    optimizer: NonNegativeFloat = 0.0
    activations: NonNegativeFloat = 0.0
    buffers: NonNegativeFloat = 0.0
    overhead: NonNegativeFloat = 0.0
    total: NonNegativeFloat


class Estimate(Report):
    """What the plan is predicted to do."""

    step_time_s: NonNegativeFloat
    days: NonNegativeFloat
    dollars: NonNegativeFloat
    mfu: NonNegativeFloat
    """Model FLOPs without recompute, causal attention halved, over dense BF16 peak."""
    hfu: NonNegativeFloat
    """The same with recomputed FLOPs."""
    tokens_per_s_per_gpu: NonNegativeFloat
    memory_gib: MemoryParts
    breakdown_s: dict[str, float]
    """Parts of `step_time_s`, to which they add up."""
    interval_80_days: tuple[NonNegativeFloat, NonNegativeFloat] | None = None
    """The run ends between these with 80 % confidence."""


class Slack(Report):
    """How far a plan stays from one limit."""

    limit: float
    used: float
    left: float
    """limit - used; what the plan has to spare."""
    unit: str


class Reason(Report):
    """Why a decision is as it is: what the best alternative would have done."""

    decision: str
    chosen: Scalar
    alternative: Scalar = None
    effect: dict[str, float] = {}
    """Change if the alternative were taken: {step_time_s: 0.21, dollars: 81000}."""
    because: str
    """What rules or drives it: memory, bandwidth, a limit, the bubble."""
    text: str
    """A sentence for people."""


class Plan(Report):
    """One way to run the job."""

    decisions: Decisions
    estimate: Estimate
    slack: dict[str, Slack] = {}
    """By limit: deadline, budget, memory, nodes."""
    reasons: tuple[Reason, ...] = ()


class RunnerUp(Report):
    """The best plan of a GPU type that was not chosen, or why there is none."""

    gpu: str
    plan: Plan | None = None
    text: str
    """A sentence for people."""


class Proof(Report):
    """How much was looked at, and how far the answer can be from the best."""

    lattice: NonNegativeInt
    """Combinations of decision values."""
    valid: NonNegativeInt
    """Of these, what divisibility and topology allow."""
    feasible: NonNegativeInt
    """Of these, what no limit rules out."""
    screened: NonNegativeInt
    """Dropped: another is at least as good in time and cost."""
    bounded: NonNegativeInt
    """Dropped: their lower bound cannot beat the plan."""
    solved: NonNegativeInt
    """Solved exactly, with their stage assignment."""
    gap: NonNegativeFloat
    """(objective - bound) / objective; 0 is proved optimal."""
    seconds: NonNegativeFloat
    rejected: dict[str, NonNegativeInt] = {}
    """Valid combinations by the limit that rules them out."""


class Relaxation(Report):
    """One limit moved, all others kept: the least that makes the problem solvable."""

    limit: str
    from_: Annotated[Scalar, Field(alias="from")]
    to: Scalar
    text: str


class Conflict(Report):
    """Limits that cannot hold together."""

    limits: tuple[str, ...]
    relaxations: tuple[Relaxation, ...] = ()


class Provenance(Report):
    """What the answer depends on."""

    planner: str
    """Version."""
    problem_hash: str
    catalogue: str = ""
    """Hash of the hardware facts and software profiles."""
    files: dict[str, str] = {}
    """SHA-256 of the files that the problem names (a model's config.json)."""
    versions: dict[str, str] = {}
    """Of the libraries that computed it."""


class Solution(Report):
    """The answer to a problem."""

    schema_version: Literal["1"] = SCHEMA_VERSION
    status: Status
    problem: dict[str, JsonValue]
    """The problem in the spelling of its file; reading it gives the same problem."""
    provenance: Provenance
    plans: tuple[Plan, ...] = ()
    """Best first."""
    runner_ups: tuple[RunnerUp, ...] = ()
    proof: Proof
    conflict: Conflict | None = None
    notes: tuple[str, ...] = ()
    """Assumptions and warnings, a sentence each."""

    def to_json(self) -> str:
        """Indented JSON, with a newline at the end."""
        return self.model_dump_json(indent=2) + "\n"

    def to_yaml(self) -> str:
        """YAML in the same order of keys."""
        # Escaped, since PyYAML folds line separators of Unicode when it writes them as they are.
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=False, width=110)

    @classmethod
    def from_text(cls, text: str) -> Solution:
        """Reads what `to_json` or `to_yaml` wrote."""
        data: Any = yaml.safe_load(text) if not text.lstrip().startswith("{") else None
        return cls.model_validate(data) if data is not None else cls.model_validate_json(text)


def read_solution(path: str | Path) -> Solution:
    """A solution file, JSON or YAML."""
    return Solution.from_text(Path(path).read_text(encoding="utf-8"))
