"""Single settings that cost time for nothing, each tried the other way."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from costmodel.estimate import Estimate
from planner.importers.findings import Finding
from planner.importers.subject import Subject

WHOLE_BLOCK = re.compile(r"\bmoe\b")
WORTH = 0.02
"""Gain of a step from which a change is named."""


def switches(subject: Subject) -> list[Finding]:
    """Single settings that cost time for nothing."""
    found: list[Finding] = []
    for code, (applies, changes, text, fix) in SWITCHES.items():
        if not applies(subject.launch.written, subject) or any(
            each.code in AT_ONCE.get(code, ()) for each in found
        ):
            continue
        changed = subject.variant(**changes(subject.launch.written))
        gain = 0.0 if changed is None else 1 - changed.step_time / subject.estimate.step_time
        if changed is not None and gain >= WORTH and (changed.fits or not subject.estimate.fits):
            numbers = {"step_time_s": changed.step_time, "gain": gain}
            found.append(Finding(code, "warning", text, f"{fix}{gain_words(subject, changed)}.", numbers))
    return found


def gain_words(subject: Subject, changed: Estimate) -> str:
    """A change's step time beside today's."""
    gain = 1 - changed.step_time / subject.estimate.step_time
    fits = "" if changed.fits else ", but does not fit"
    way = f"{abs(gain):.1%} {'less' if gain >= 0 else 'more'}{fits}"
    return f": {changed.step_time:.3g} s a step instead of {subject.estimate.step_time:.3g} s ({way})"


AT_ONCE = {"full_recompute_not_needed": ("recompute_not_needed",)}
"""Codes that leave nothing for another to say."""
Applies = Callable[[Mapping[str, Any], Subject], bool]
Changes = Callable[[Mapping[str, Any]], dict[str, Any]]


def _settings(written: Mapping[str, Any], *dropped: str) -> dict[str, Any]:
    """Settings of the profile without some."""
    settings = written.get("profile_settings") or {}
    return {"profile_settings": {key: value for key, value in settings.items() if key not in dropped}}


def hides_experts(written: Mapping[str, Any]) -> bool:
    """Whether a layout lets Megatron-Core hide the experts' traffic behind another micro-batch."""
    ranks, chunks = written.get("ep") or 1, written.get("vpp") or 1
    redone = written.get("recompute") in ("full", "partial-full") or WHOLE_BLOCK.search(
        written.get("recompute_detail") or ""
    )
    return ranks > 1 and (written.get("pp", 1) == 1 or chunks > 1) and not redone


GATHER = "data_parallel.gather_window"
SWITCHES: dict[str, tuple[Applies, Changes, str, str]] = {
    "recompute_not_needed": (
        lambda written, at: (
            written.get("recompute") in ("full", "partial-full", "selective") and at.estimate.fits
        ),
        lambda written: {"recompute": "none", "recompute_detail": None},
        "activations are recomputed although they fit without.",
        "No recompute",
    ),
    "full_recompute_not_needed": (
        lambda written, at: written.get("recompute") == "full" and at.estimate.fits,
        lambda written: {"recompute": "selective", "recompute_detail": "modules: core_attn, layernorm"},
        "whole layers are recomputed although selective recompute fits.",
        "Selective recompute of core_attn and layernorm",
    ),
    "sequence_parallel_missing": (
        lambda written, at: (written.get("tp") or 1) > 1 and written.get("sequence_parallel") is False,
        lambda written: {"sequence_parallel": True},
        "tensor parallelism without sequence parallelism repeats norms and residuals on every rank.",
        "Sequence parallelism",
    ),
    "attention_not_fused": (
        lambda written, at: written.get("flash_attention") is False,
        lambda written: {"flash_attention": True},
        "attention is not fused: its scores go through memory.",
        "Fused attention (--attention-backend flash)",
    ),
    "gradient_reduction_exposed": (
        lambda written, at: written.get("dp_overlap") is False,
        lambda written: {"dp_overlap": True},
        "gradients are reduced after the backward pass, with nothing to hide it.",
        "--overlap-grad-reduce (with the distributed optimizer --overlap-param-gather too), or overlap_comm",
    ),
    "parameter_gather_exposed": (
        lambda written, at: GATHER in (written.get("profile_settings") or {}),
        lambda written: _settings(written, GATHER),
        "weights are gathered before the forward pass, with nothing to hide it.",
        "--overlap-param-gather with --overlap-grad-reduce",
    ),
    "tensor_parallel_exposed": (
        lambda written, at: (written.get("tp") or 1) > 1 and written.get("tp_overlap") is False,
        lambda written: {"tp_overlap": None},
        "tensor-parallel collectives run beside no GEMM.",
        "--tp-comm-overlap (Transformer Engine user buffers), or async TP",
    ),
    "transfers_exposed": (
        lambda written, at: written.get("pp_overlap") is False,
        lambda written: {"pp_overlap": True},
        "transfers between interleaved stages are waited for.",
        "No --no-overlap-p2p-communication",
    ),
    "expert_traffic_exposed": (
        lambda written, at: written.get("ep_overlap") is False and hides_experts(written),
        lambda written: {"ep_overlap": True},
        "the experts' all-to-all runs beside no compute.",
        "--overlap-moe-expert-parallel-comm (with CUDA_DEVICE_MAX_CONNECTIONS=32)",
    ),
}
"""By code: when to try, what to change, what is so, what helps."""
