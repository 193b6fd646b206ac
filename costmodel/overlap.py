"""Switches of a software profile that hide communication behind compute."""

from __future__ import annotations

from costmodel.stack import Stack
from costmodel.stack_parts import Part

KINDS = ("tp", "dp", "pp")
"""Traffic that `without_overlap` shows."""


def with_expert_overlap(stack: Stack, overlapped: bool) -> Stack:
    """The profile with the experts' all-to-all hidden behind another micro-batch's compute, or not."""
    if stack.expert_parallel.overlap == overlapped:
        return stack
    experts = stack.expert_parallel.model_copy(update={"overlap": overlapped})
    return stack.model_copy(update={"expert_parallel": experts})


def without_overlap(stack: Stack, *, tp: bool = False, dp: bool = False, pp: bool = False) -> Stack:
    """The profile with kinds of traffic in the open that it hides.

    tp: collectives run by themselves, not in user buffers beside their GEMM. dp: gradients are reduced after
    the backward pass, and weights gathered before the forward. pp: transfers of interleaved stages are waited
    for.
    """
    changes: dict[str, Part] = {}
    if tp:
        shown = {"exposed": max(1.0, stack.tensor_parallel.exposed)}
        changes["tensor_parallel"] = stack.tensor_parallel.model_copy(update=shown)
    if dp:
        shown = {"reduce_window": 0.0, "gather_window": 0.0, "sharded_window": 0.0}
        changes["data_parallel"] = stack.data_parallel.model_copy(update=shown)
    if pp:
        shown = {"exposed_interleaved": max(1.0, stack.pipeline.exposed_interleaved)}
        changes["pipeline"] = stack.pipeline.model_copy(update=shown)
    return stack.model_copy(update=changes) if changes else stack
