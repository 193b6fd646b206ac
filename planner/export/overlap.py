"""Overlap switches of a plan that a target cannot say."""

from __future__ import annotations

from planner.export.job import Job
from planner.export.refusal import CannotExport
from planner.switches import TRAFFIC


def refuse_overlap(job: Job, target: str, *names: str) -> None:
    """Raises `CannotExport` where the plan hides traffic that a target cannot hide."""
    for name in names:
        if getattr(job.decisions, name):
            raise CannotExport(target, "overlap of", TRAFFIC[name], "it has no switch for that")


def refuse_exposed_gradients(job: Job, target: str) -> None:
    """Raises `CannotExport` where gradients are to be reduced after the backward pass: it cannot wait."""
    if job.replicas > 1 and not job.decisions.dp_overlap:
        why = "it overlaps gradients without a switch"
        raise CannotExport(target, "no overlap of", TRAFFIC["dp_overlap"], why)
