"""Launch files of a plan, a file a target. A target refuses what it cannot launch: `CannotExport`."""

from __future__ import annotations

from planner.export.accelerate import accelerate
from planner.export.bridge import bridge
from planner.export.deepspeed import deepspeed
from planner.export.job import Job, job_of
from planner.export.megatron import megatron
from planner.export.nanotron import nanotron
from planner.export.pools import refuse_pools
from planner.export.refusal import CannotExport
from planner.export.slurm import Exporter, slurm
from planner.export.torchtitan import torchtitan

LAUNCHERS: dict[str, Exporter] = {
    "megatron": megatron,
    "bridge": bridge,
    "torchtitan": torchtitan,
    "deepspeed": deepspeed,
    "accelerate": accelerate,
    "nanotron": nanotron,
}
"""Targets that start ranks; `slurm` wraps one of them."""
FAMILIES = {
    "megatron": "megatron",
    "bridge": "megatron",
    "deepspeed": "deepspeed",
    "torchtitan": "fsdp",
    "accelerate": "fsdp",
}
"""Software profiles by the launcher whose times they predict."""
SLURM = "slurm"
TARGETS = (*LAUNCHERS, SLURM)


def export(job: Job, target: str, launcher: str = "megatron") -> dict[str, str]:
    """File names and texts. Raises `CannotExport`, which says which targets can launch the plan."""
    try:
        refuse_pools(job, launcher if target == SLURM else target)
        if target == SLURM:
            return slurm(job, launcher, LAUNCHERS[launcher])
        return LAUNCHERS[target](job)
    except CannotExport as refusal:
        raise refusal.knowing(able(job)) from None


def foreign(job: Job, target: str, launcher: str = "megatron") -> str:
    """A warning where the plan was priced with the profile of another framework, or nothing."""
    wanted = FAMILIES.get(launcher if target == SLURM else target, "other")
    if job.stack.family == wanted:
        return ""
    return (
        f"priced with the profile {job.stack.name}: times and memory under {target} will differ; "
        "`planner catalogue profiles` lists others for `search: {stack: ...}`"
    )


def able(job: Job) -> tuple[str, ...]:
    """Targets that can launch the plan as it is."""
    return tuple(name for name, exporter in LAUNCHERS.items() if _can(name, exporter, job))


def _can(name: str, exporter: Exporter, job: Job) -> bool:
    try:
        refuse_pools(job, name)
        exporter(job)
    except CannotExport:
        return False
    return True


__all__ = ["LAUNCHERS", "TARGETS", "CannotExport", "Job", "able", "export", "foreign", "job_of"]
