"""Plans as solutions have them: decisions, estimate, slack, reasons; runs in phases."""

from __future__ import annotations

from typing import Literal

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt

from planner.document import Report

Scalar = bool | int | float | str | None


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


class PoolPart(Report):
    """What the GPUs of one pool do in a plan on two."""

    gpu: str
    num_gpus: PositiveInt
    nodes: PositiveInt
    dp: PositiveInt
    """Replicas on this pool; of a pipeline over both, how many there are."""
    num_microbatches: PositiveInt
    """Micro-batches a step of each of these replicas."""
    first_rank: NonNegativeInt
    """The first pipeline rank that the pool holds."""
    last_rank: NonNegativeInt
    """The last one, itself included."""
    memory_gib: NonNegativeFloat
    """Peak memory of its fullest GPU."""
    memory_limit_gib: NonNegativeFloat | None = None
    """What a plan may use of its GPUs."""


class Decisions(Report):
    """Everything a launch file needs to know.

    Of a plan on two pools GPUs, nodes, replicas and the batch are those of both together.
    """

    gpu: str
    """`H800`, or `H800 + H20`."""
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
    """Micro-batches a step: gradient accumulation. Of replicas on two pools those of the first pool."""
    global_batch: PositiveInt
    """Sequences."""
    zero: Literal[0, 1, 2, 3]
    zero_scope: Literal["full", "node"] = "full"
    """Ranks that share the states of ZeRO: all that hold the same weights, or those in one NVLink domain."""
    recompute: Literal["none", "selective", "full"]
    recompute_modules: tuple[str, ...] = ()
    """Modules that selective recompute repeats in every layer."""
    precision: str
    sequence_parallel: bool
    tp_overlap: bool = False
    """Tensor-parallel collectives run beside GEMMs (user buffers, async TP)."""
    dp_overlap: bool = False
    """Gradients are reduced, and weights gathered, behind compute."""
    pp_overlap: bool = False
    """Transfers between interleaved stages run behind compute."""
    ep_overlap: bool = False
    """The experts' all-to-all runs behind the compute of another micro-batch."""
    stages: tuple[Stage, ...]
    """One entry a pipeline rank, in order. Of replicas on two pools that of the fuller and slower one."""
    mixed: Literal["stages", "replicas"] | None = None
    """What lies on different GPU types: pipeline stages, or whole replicas. None: there is one type."""
    parts: tuple[PoolPart, ...] = ()
    """Of a mixed plan, one entry a pool; of stages, the first pool holds the first ranks."""

    @property
    def modules(self) -> frozenset[str]:
        """What selective recompute repeats in every layer."""
        return frozenset(self.recompute_modules)

    @property
    def machines(self) -> str:
        """GPUs in words: `640 x H800`, `64 x H800 + 128 x H20`."""
        named = [(part.num_gpus, part.gpu) for part in self.parts] or [(self.num_gpus, self.gpu)]
        return " + ".join(f"{number} x {gpu}" for number, gpu in named)


class MemoryParts(Report):
    """GiB on a GPU of the fullest rank."""

    weights: NonNegativeFloat = 0.0
    gradients: NonNegativeFloat = 0.0
    optimizer: NonNegativeFloat = 0.0
    activations: NonNegativeFloat = 0.0
    buffers: NonNegativeFloat = 0.0
    overhead: NonNegativeFloat = 0.0
    total: NonNegativeFloat


class Losses(Report):
    """What keeps a run from training all the time, and how often it saves."""

    mtbf_hours: NonNegativeFloat
    """Mean time between unplanned stops."""
    stops: NonNegativeFloat
    """Unplanned stops to be expected in the run."""
    restart_minutes: NonNegativeFloat
    """What a stop costs beside the work it undoes."""
    checkpoint_gb: NonNegativeFloat
    """Of one checkpoint, 10^9 bytes."""
    checkpoint_minutes: NonNegativeFloat
    """Training between checkpoints."""
    checkpoint_steps: NonNegativeInt
    """The same in whole steps: what to set."""
    stall_s: NonNegativeFloat
    """How long training stands still for a checkpoint."""
    write_s: NonNegativeFloat
    """How long it is written after that, beside training."""
    spare_nodes: NonNegativeInt = 0
    """Nodes of one's own that stand ready; they are paid like the others."""
    shares: dict[str, float] = {}
    """Of the time by the clock, by what it is lost to."""


class Meter(Report):
    """Electricity of a run, the data centre's overhead included."""

    mwh: NonNegativeFloat
    tonnes_co2: NonNegativeFloat
    dollars: NonNegativeFloat
    """The electricity bill; rent contains it."""


class Kept(Report):
    """What a run keeps on storage, writes and reads; 10^12 bytes and 10^9 bytes a second."""

    data_tb: NonNegativeFloat
    checkpoints_tb: NonNegativeFloat
    logs_tb: NonNegativeFloat
    total_tb: NonNegativeFloat
    write_gb_s: NonNegativeFloat
    """So that a checkpoint is written before the best time for the next one."""
    read_gb_s: NonNegativeFloat
    """Of data loading, or of a restart within the asked time."""


class MemoryRisk(Report):
    """How likely a plan runs out of memory, by how far predicted peaks have been off."""

    risk: Literal["low", "moderate", "high"]
    probability: NonNegativeFloat
    balanced: NonNegativeFloat
    """The same with tokens spread over experts as evenly as the profile has it."""
    headroom: NonNegativeFloat | None = None
    """Where the risk is high: `limits.memory_headroom` with which it would be moderate at most."""


class Sure(Report):
    """What it costs that limits hold at the confidence that the problem asks for."""

    confidence: NonNegativeFloat
    effect: dict[str, float] = {}
    """Against the best plan whose limits hold as predicted."""
    without: dict[str, NonNegativeFloat] = {}
    """How likely that one meets deadline and budget."""
    text: str
    """A sentence for people."""


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
    probability: dict[str, NonNegativeFloat] = {}
    """That deadline and budget hold, by how far step time and failures can be off."""
    out_of_memory: MemoryRisk | None = None
    """How likely it runs out of memory."""
    evidence: Literal["strong", "fair", "weak"] | None = None
    """How near the nearest measured configuration is; None under an agreed MFU."""
    ideal_days: NonNegativeFloat | None = None
    """Days if nothing ever stopped the run."""
    ideal_dollars: NonNegativeFloat | None = None
    """What it would cost then."""
    goodput: NonNegativeFloat | None = None
    """Share of the time of the run, once it has started, in which it trains or evaluates."""
    finish_days: dict[str, NonNegativeFloat] = {}
    """Days within which 50, 80 and 95 % of such runs end, by failures and by what the prediction is off."""
    losses: Losses | None = None
    """None where nothing is lost: the time of the whole run is agreed."""
    energy: Meter | None = None
    """Where the problem describes power, or asks for energy or carbon."""
    storage: Kept | None = None
    """Where the problem describes storage."""


class Slack(Report):
    """How far a plan stays from one limit."""

    limit: float
    used: float
    left: float
    """limit - used, or used - limit of a limit from below; what the plan has to spare."""
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
    """By limit: deadline, budget, memory, nodes, energy, carbon, storage, and requirements as written."""
    reasons: tuple[Reason, ...] = ()


class PhasePlan(Report):
    """One phase of a run and its plan."""

    name: str
    tokens: NonNegativeFloat
    seq_len: PositiveInt
    days: NonNegativeFloat
    """With its start, and the checkpoint at its end that the next phase starts from, where there are any."""
    goes_on: bool = False
    """In the job of the phase before it, with no more than a larger batch: nothing is saved or loaded."""
    plan: Plan
    """Its estimate is of this phase."""


class PhasedRun(Report):
    """A run in phases, from its beginning to its end."""

    gpu: str
    num_gpus: PositiveInt
    nodes: PositiveInt
    days: NonNegativeFloat
    dollars: NonNegativeFloat
    ideal_days: NonNegativeFloat
    """If nothing ever stopped it, changes of phase included."""
    goodput: NonNegativeFloat
    """Of all phases: the share of their time, starts and changes of phase apart, that is not lost."""
    switching_hours: NonNegativeFloat
    """Of saving, starting and loading between phases."""
    interval_80_days: tuple[NonNegativeFloat, NonNegativeFloat] | None = None
    """All phases early, all phases late: what one prediction is off, the others are likely to be."""
    energy: Meter | None = None
    slack: dict[str, Slack] = {}
    phases: tuple[PhasePlan, ...]
    """In the order in which they run."""
    texts: tuple[str, ...] = ()
    """Which phases go on in the same job, and why this many nodes, a sentence each."""


class RunnerUp(Report):
    """The best plan of a GPU type that was not chosen, or why there is none."""

    gpu: str
    plan: Plan | None = None
    text: str
    """A sentence for people."""
