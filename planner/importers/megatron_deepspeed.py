"""Megatron-DeepSpeed command lines: Megatron-LM's options of 2023, with DeepSpeed's JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from planner.errors import Refused
from planner.importers import deepspeed, megatron
from planner.importers.deepspeed_trainer import json_of
from planner.importers.findings import Finding
from planner.importers.launch import Given, Launch
from planner.importers.megatron import SIGNS
from planner.importers.options import Options, parse
from planner.importers.shell_expand import unset_in
from planner.importers.started import Started, placed

FRAMEWORK = "Megatron-DeepSpeed"
FLASH = (
    "use-flash-attn",
    "use-flash-attn-v1",
    "use-flash-attn-v2",
    "use-flash-attn-triton",
    "use-flash-attn-builder",
)
RENAMED = {
    "num-key-value-heads": "num-query-groups",
    "ds-sequence-parallel-size": "context-parallel-size",
}
"""Its own options by Megatron-LM's names of today."""
NORMS = {"rmsnorm": "RMSNorm", "layernorm": "LayerNorm"}
DROPOUT = "memory.dropout"
NOT_READ = {"moe-expert-parallel-size", "topk", "expert-interval", "mlp-type"}


def is_launch(words: Sequence[str]) -> bool:
    """A launch of Megatron-LM that hands itself to DeepSpeed."""
    return megatron.is_launch(words) and any(
        word.split("=")[0] in ("--deepspeed", "--deepspeed_config", "--deepspeed-config") for word in words
    )


def launches(started: Started, given: Given) -> list[Launch]:
    """The run of a command. Raises InvalidInput."""
    launcher, words = placed(started.command.words, SIGNS)
    warnings: list[str] = []
    try:
        options = parse(words)
        unread = sorted(NOT_READ & set(options.unknown)) if experts(options) else []
        written, findings = facts(options, warnings)
    except Refused as refused:
        raise refused.of(started.line) from None
    reasons = [f"--{', --'.join(unread)}: its experts are not read"] if unread else []
    if (name := json_of(words)) and not unset_in(name.rsplit("/", 1)[-1]):
        json = deepspeed.opened(started.beside(name, "DeepSpeed JSON"))
        findings += disagreements(json, written)
        written["zero_stage"] = deepspeed.sizes_of(json)["zero_stage"]
        reasons.append(deepspeed.refusal(json))
    world = started.world(launcher)
    found = megatron.launch_of(started, options, (written, findings), world, warnings, given)
    reasons = [each for each in (found.refused, *reasons) if each]
    return [replace(found, framework="deepspeed", refused="; ".join(reasons))]


def facts(options: Options, warnings: list[str]) -> tuple[dict[str, Any], list[Finding]]:
    """Keys of a run, and what contradicts itself. Raises Refused."""
    own = {
        "framework": FRAMEWORK,
        "flash_attention": any(name in options.given or name in options.unknown for name in FLASH),
        "zero_stage": number(options, "zero-stage"),
        **dict.fromkeys(("tp_overlap", "dp_overlap", "pp_overlap")),
    }
    translate(options)
    written, findings = megatron.facts(options, warnings)
    dropped = (written.get("profile_settings") or {}).get(DROPOUT)
    return written | own | {"profile_settings": {DROPOUT: dropped} if dropped else None}, findings


def experts(options: Options) -> bool:
    """More than one expert somewhere: `--num-experts` takes a list, and 1 is its default."""
    counts = options.given.get("num-experts", ["1"])
    if set(counts) <= {"1"}:
        options.given.pop("num-experts", None)
        return False
    return True


def translate(options: Options) -> None:
    """Its own options under Megatron-LM's names; the rest that Megatron-LM does not know is passed over."""
    for name, today in RENAMED.items():
        if (values := options.unknown.get(name)) is not None:
            options.given[today] = values
    if "num-query-groups" in options.given:
        options.given["group-query-attention"] = []
    if norm := options.text("normalization", "layernorm"):
        options.given["normalization"] = [NORMS.get(norm, norm)]
    options.unknown.clear()


def number(options: Options, name: str) -> int:
    """A whole number among the options that Megatron-LM does not have; 1 where it is not there."""
    values = options.unknown.get(name) or ["1"]
    try:
        return int(float(values[0]))
    except (ValueError, OverflowError):
        raise Refused(f"--{name} {values[0]!r}", "0, 1, 2 or 3") from None


def disagreements(json: deepspeed.Json, written: dict[str, Any]) -> list[Finding]:
    """What the command line and the JSON say differently; the engine follows the JSON."""
    own = deepspeed.sizes_of(json) | deepspeed.batch_of(json)
    told = {key: written[key] for key in ("zero_stage", "micro_batch", "global_batch")}
    return [
        Finding(
            "contradiction",
            "error",
            f"{key.replace('_', ' ')} is {value} on the command line and {own[key]} in the JSON.",
            "The same in both.",
        )
        for key, value in told.items()
        if value is not None and own[key] is not None and own[key] != value
    ]
