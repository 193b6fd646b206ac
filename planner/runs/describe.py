"""One described run: the cost model's noun, its stage layout, and every assumption that was made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from costmodel.architecture import Architecture
from costmodel.calibration.apply import calibrated_stack
from costmodel.run import Run
from costmodel.stack import Stack
from hardware.accelerator import Accelerator
from planner.calibrated import read_calibration, with_calibration
from planner.complaints import dotted, refusal
from planner.errors import Refused
from planner.runs.accelerator import accelerator_of
from planner.runs.facts import RunFacts
from planner.runs.interconnect import fabric_of
from planner.runs.layout import layers_of_stages
from planner.runs.model import architecture_of
from planner.runs.notes import with_notes
from planner.runs.recompute import recompute_of
from planner.runs.schedule import check_schedule
from planner.runs.software import stack_of

FULL_SHARDING = 3
MICROBATCHES_A_RANK = 1
"""Micro-batches for each pipeline rank where their size is not given (torchtitan's default)."""
INTERLEAVED = 2
"""Virtual stages of an interleaved schedule where their number is not given (torchtitan's default)."""
TWO_CHUNKS = ("interleaved", "dualpipev")
"""Schedules that have several virtual stages a rank; DualPipeV always two."""


@dataclass(frozen=True, slots=True)
class DescribedRun:
    """A run that can be estimated."""

    id: str
    run: Run
    layers: tuple[int, ...]
    """Layers of each virtual stage."""
    recomputed: tuple[int, ...]
    """Of these, layers recomputed in full."""
    facts: RunFacts
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RefusedRun:
    """A run that cannot be estimated, and why."""

    id: str
    error: str


def describe(
    written: Mapping[str, Any], name: str = "run", folder: Path = Path()
) -> DescribedRun | RefusedRun:
    """A described run, or the reason why it cannot be used. Files it names lie in `folder`."""
    given = written.get("id")
    label = str(given) if given is not None else name
    try:
        return described(written, label, folder)
    except ValidationError as error:
        return RefusedRun(label, _said(refusal(error.errors(include_url=False)[0])))  # pyright: ignore[reportArgumentType]
    except Refused as refused:
        return RefusedRun(label, _said(refused))
    except ValueError as error:
        return RefusedRun(label, " ".join(str(error).split()))


def _said(refused: Refused) -> str:
    where = f"{dotted(refused.where)}: " if refused.where else ""
    hint = f"; {refused.hint}" if refused.hint else ""
    return f"{where}{refused.found}; accepted: {refused.accepted}{hint}"


def described(written: Mapping[str, Any], label: str, folder: Path = Path()) -> DescribedRun:
    """The same, raising ValidationError, Refused or another ValueError."""
    facts = with_notes(RunFacts.model_validate(dict(written)))
    architecture, gpu = architecture_of(facts.model, folder), accelerator_of(facts.gpu, facts.gpu_variant)
    if facts.calibration is not None:
        gpu = _calibrated(gpu, facts.calibration, folder)
    stack, warnings = stack_of(facts, architecture, gpu)
    fabric, assumed = fabric_of(
        gpu, facts.interconnect, facts.gpus_per_node, facts.nvlink_domain, facts.num_gpus
    )
    warnings += assumed
    columns, assumed = _columns(facts, architecture, stack)
    warnings += assumed
    layers = layers_of_stages(
        architecture,
        columns["pp"] * columns["vpp"],
        facts.pp_layout,
        facts.embedding_slots,
        stack.pipeline.deals,
    )
    sharded = stack.family == "fsdp" or columns["zero"] == FULL_SHARDING
    modules, recomputed, assumed = recompute_of(facts, layers, fully_sharded=sharded)
    warnings += assumed
    if facts.task != "pretrain":
        warnings.append(f"task: {facts.task} is estimated as pre-training on full sequences")
    run = Run(
        architecture=architecture,
        gpu=gpu,
        fabric=fabric,
        stack=calibrated_stack(stack, gpu),
        seq_len=facts.seq_len,
        precision=facts.precision.lower(),
        recompute_modules=modules,
        offload=facts.offload_fraction or 0.0,
        **columns,
    )
    return DescribedRun(label, run, tuple(layers), tuple(recomputed), facts, tuple(warnings))


def _calibrated(gpu: Accelerator, written: str | dict[str, Any], folder: Path) -> Accelerator:
    try:
        return with_calibration(gpu, read_calibration(written, folder))
    except Refused as refused:
        raise refused.below("calibration") from None


def _columns(facts: RunFacts, architecture: Architecture, stack: Stack) -> tuple[dict[str, Any], list[str]]:
    """The parallel layout with defaults, checked against the number of GPUs."""
    warnings: list[str] = []
    model = facts.tp * facts.cp * facts.pp
    if facts.num_gpus % model:
        raise Refused(
            f"{facts.num_gpus} GPUs are not divided by tp*cp*pp = {model}", "a multiple", where=("num_gpus",)
        )
    dp = facts.num_gpus // model
    if facts.dp is not None and facts.dp != dp:
        warnings.append(f"dp: {facts.dp} given; num_gpus/(tp*cp*pp) = {dp} is used")
    if facts.tp > architecture.heads:
        raise Refused(
            f"tp {facts.tp} exceeds {architecture.heads} heads", "a divisor of heads", where=("tp",)
        )
    vpp = facts.vpp or (INTERLEAVED if facts.schedule in TWO_CHUNKS and facts.pp > 1 else 1)
    if facts.vpp is None and facts.pp > 1:
        warnings.append(f"vpp: not given; {vpp}")
    zero = facts.zero_stage
    if zero is None:
        zero = FULL_SHARDING if stack.family == "fsdp" else 1
        warnings.append(f"zero_stage: not given; {zero}")
    ep, etp = _expert_groups(facts, architecture, warnings)
    micro_batch = facts.micro_batch or _default_micro_batch(facts, stack, dp, warnings)
    microbatches = max(1, round(facts.global_batch / (dp * micro_batch)))
    if microbatches * dp * micro_batch != facts.global_batch:
        warnings.append(
            f"global_batch: {facts.global_batch} is not micro_batch*dp times a whole number; "
            f"{microbatches} micro-batches of {micro_batch} on {dp} replicas are used"
        )
    columns: dict[str, Any] = {"tp": facts.tp, "cp": facts.cp, "pp": facts.pp, "vpp": vpp, "dp": dp}
    columns |= {
        "ep": ep,
        "etp": etp,
        "micro_batch": micro_batch,
        "num_microbatches": microbatches,
        "zero": zero,
    }
    if facts.fsdp_shard is not None:
        columns["shard_ranks"] = facts.fsdp_shard
    check_schedule(facts.schedule, facts.pp, vpp, microbatches)
    return columns, warnings


def _expert_groups(facts: RunFacts, architecture: Architecture, warnings: list[str]) -> tuple[int, int]:
    """Expert-parallel and expert-tensor sizes; Megatron-Core's default of the latter is tp."""
    if architecture.moe is None:
        return 1, 1
    ep = facts.ep
    if ep is None:
        ranks = facts.num_gpus // facts.pp
        ep = 1 if facts.dispatcher in (None, "alltoall") else gcd(ranks, architecture.moe.experts)
        warnings.append(f"ep: not given; {ep}")
    etp = facts.etp
    if etp is None:
        etp = facts.tp
        if etp > 1:
            warnings.append(f"etp: not given; {etp}, as tp")
    ranks = facts.num_gpus // facts.pp
    if ranks % (ep * etp):
        raise Refused(
            f"ep*etp = {ep * etp} does not divide the {ranks} GPUs of a stage", "a divisor", where=("ep",)
        )
    if architecture.moe.experts % ep:
        raise Refused(
            f"ep {ep} does not divide {architecture.moe.experts} experts", "a divisor", where=("ep",)
        )
    return ep, etp


def _default_micro_batch(facts: RunFacts, stack: Stack, dp: int, warnings: list[str]) -> int:
    """One sequence; in fully sharded stacks the replica's whole batch, in parts that fill a pipeline."""
    size = 1
    if stack.family == "fsdp":
        parts = MICROBATCHES_A_RANK * facts.pp if facts.pp > 1 else 1
        size = max(1, facts.global_batch // (dp * parts))
    warnings.append(f"micro_batch: not given; {size}")
    return size
