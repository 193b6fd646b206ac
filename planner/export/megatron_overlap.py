"""Overlap switches of a plan in Megatron-LM's argument names.

Sources: Megatron-Core 0.16 (TransformerConfig, schedules, Transformer Engine extensions) and Megatron-LM's
validate_args.
"""

from __future__ import annotations

from planner.export.job import Job
from planner.export.megatron_model import Settings
from planner.export.refusal import CannotExport
from planner.frameworks.table import MOST_MTP
from planner.switches import TRAFFIC

SHARDED_GRADIENTS = 2
"""The ZeRO stage from which Megatron-FSDP takes the place of its distributed optimizer."""
WAITING = 3
"""Fewest pipeline ranks of interleaved stages whose transfers are waited for."""


def overlap(job: Job, target: str) -> Settings:
    """What runs behind compute, each with what it needs. Raises `CannotExport`.

    Transfers between interleaved stages overlap unless that is switched off.
    """
    d = job.decisions
    settings = gradients(job, target)
    if d.tp_overlap:
        settings |= user_buffers(job, target)
    if d.pp > 1 and d.vpp > 1 and not d.pp_overlap:
        if d.pp < WAITING:
            why = f"it needs {WAITING} stages or more to wait for transfers"
            raise CannotExport(target, "no overlap of", TRAFFIC["pp_overlap"], why)
        settings["no_overlap_p2p_communication"] = True
    if d.ep_overlap:
        settings |= expert_overlap(job, target)
    return settings


def gradients(job: Job, target: str) -> Settings:
    """Reduction behind the backward pass; gathering weights needs that and the distributed optimizer."""
    d = job.decisions
    if d.dp_overlap:
        gathered: Settings = {"overlap_param_gather": True} if d.zero else {}
        return {"overlap_grad_reduce": True} | gathered
    if d.zero >= SHARDED_GRADIENTS and job.replicas > 1:
        why = f"Megatron-FSDP (ZeRO {d.zero}) overlaps in any case"
        raise CannotExport(target, "no overlap of", TRAFFIC["dp_overlap"], why)
    return {}


def user_buffers(job: Job, target: str) -> Settings:
    """Transformer Engine's user buffers. Raises `CannotExport`."""
    d = job.decisions
    lacking = {
        "it needs sequence parallelism": not d.sequence_parallel,
        f"a group of {d.tp} is more than an NVLink domain": d.tp > job.fabric.domain,
        "its user buffers do not know latent attention": job.architecture.mla is not None,
    }
    for why, so in lacking.items():
        if so:
            raise CannotExport(target, "overlap of", TRAFFIC["tp_overlap"], why)
    return {"tp_comm_overlap": True}


def expert_overlap(job: Job, target: str) -> Settings:
    """The all-to-all of one micro-batch behind the compute of another. Raises `CannotExport`.

    The dispatcher is alltoall or flex (`megatron_model.dispatch`), shared experts do not overlap by
    themselves, and CUDA_DEVICE_MAX_CONNECTIONS is above 1 (`megatron.environment`).
    """
    d, mtp = job.decisions, job.architecture.mtp_layers
    lacking = {
        "it needs several ranks of experts": d.ep == 1,
        "it needs virtual stages in a pipeline": d.pp > 1 and d.vpp == 1,
        "it goes without full recompute": d.recompute == "full",
        "it goes without recompute of `moe`": "moe" in d.recompute_modules,
        f"it does not go with {mtp} layers of multi-token prediction": mtp > MOST_MTP,
    }
    for why, so in lacking.items():
        if so:
            raise CannotExport(target, "overlap of", TRAFFIC["ep_overlap"], why)
    return {"overlap_moe_expert_parallel_comm": True}
