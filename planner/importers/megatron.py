"""Megatron-LM command lines and scripts as runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from planner.errors import Refused
from planner.importers.findings import Finding
from planner.importers.launch import Given, Launch
from planner.importers.launcher import World
from planner.importers.megatron_layout import pipeline_of
from planner.importers.megatron_model import model_of
from planner.importers.megatron_rules import FP32, contradictions
from planner.importers.megatron_settings import (
    expert_facts,
    flash_of,
    graphs_of,
    overlap_of,
    precision_of,
    recompute_of,
    settings_of,
    zero_of,
)
from planner.importers.options import Options, parse, table, unknown_options
from planner.importers.overlap_rules import EXPERT_OVERLAP
from planner.importers.recompute_rules import told
from planner.importers.shell import Command, shell_text
from planner.importers.started import Started, placed

SIGNS = frozenset(
    {
        "--num-layers",
        "--hidden-size",
        "--num-attention-heads",
        "--seq-length",
        "--micro-batch-size",
        "--global-batch-size",
        "--tensor-model-parallel-size",
        "--pipeline-model-parallel-size",
        "--use-mcore-models",
    }
)
ENOUGH = 3
"""Of these options a command has to have, to be a launch of Megatron-LM."""
FRAMEWORK = "Megatron-Core"
PEAK = re.compile(r"PEAK\w*FLOP|FLOP\w*PEAK", re.IGNORECASE)
ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")


def is_launch(words: Sequence[str]) -> bool:
    """A command with enough of Megatron-LM's options that is not a shell around it."""
    return shell_text(words) is None and len(SIGNS & {word.split("=")[0] for word in words}) >= ENOUGH


def launches(started: Started, given: Given) -> list[Launch]:
    """The run of a command. Raises InvalidInput."""
    launcher, words = placed(started.command.words, SIGNS)
    warnings: list[str] = []
    try:
        options = parse(words)
        return [
            launch_of(started, options, facts(options, warnings), started.world(launcher), warnings, given)
        ]
    except Refused as refused:
        raise refused.of(started.line) from None


def launch_of(
    started: Started,
    options: Options,
    read: tuple[dict[str, Any], list[Finding]],
    world: World,
    warnings: list[str],
    given: Given,
) -> Launch:
    """The launch with what stands around its options."""
    written, findings = read
    assumed = [world.assumed] if world.assumed and not world.open else []
    if world.open:
        options.open["num_gpus"] = world.open
    written = started.carried(given, world, warnings) | written | {"num_gpus": world.gpus, "id": started.id}
    written["fsdp_shard"] = shard_of(options, written)
    texts = {key: value for key, value in started.command.values.items() if isinstance(value, str)}
    return Launch(
        id=started.id,
        framework="megatron",
        written={key: value for key, value in written.items() if value is not None},
        warnings=(*assumed, *dict.fromkeys(started.shell.doubts), *warnings),
        findings=(*findings, *unknown_options(options), *environment(options, started.command)),
        open=options.open,
        refused=refusal(options),
        node_gpus=world.node_gpus,
        peaks={name: value for name, value in texts.items() if PEAK.search(name)},
        environment={name: value for name, value in texts.items() if name in ALLOCATOR},
        derived_batch=True,
    )


def shard_of(options: Options, written: dict[str, Any]) -> int | None:
    """Ranks that share the states, where there are several instances of the distributed optimizer."""
    instances = options.whole("num-distributed-optimizer-instances", 1, "fsdp_shard") or 1
    gpus, zero = written["num_gpus"], written["zero_stage"]
    if instances <= 1 or not zero or not gpus:
        return None
    return max(1, gpus // (written["tp"] * written["pp"] * instances))


def refusal(options: Options) -> str:
    """Why a run with these options is not estimated: what is not modelled, each by name."""
    reasons = []
    for name, rule in table()["unsupported"].items():
        if options.has(name) and not set(options.given[name]) & set(rule.get("unless", ())):
            reasons.append(f"--{name}: {rule['why']}")
    if not options.has("bf16") and not options.has("fp16"):
        reasons.append(FP32)
    return "; ".join(reasons)


def facts(options: Options, warnings: list[str]) -> tuple[dict[str, Any], list[Finding]]:
    """Keys of a run, and what contradicts itself. Raises Refused."""
    model = model_of(options, warnings)
    tp = options.whole("tensor-model-parallel-size", 1, "tp", least=1) or 1
    written: dict[str, Any] = {
        "framework": FRAMEWORK,
        "model": model,
        "seq_len": options.whole("seq-length", key="seq_len", least=1),
        "micro_batch": options.whole("micro-batch-size", key="micro_batch", least=1),
        "global_batch": options.whole("global-batch-size", key="global_batch", least=1),
        "tp": tp,
        "pp": options.whole("pipeline-model-parallel-size", 1, "pp", least=1) or 1,
        "cp": options.whole("context-parallel-size", 1, "cp", least=1) or 1,
        "sequence_parallel": options.has("sequence-parallel") and tp > 1,
        "zero_stage": zero_of(options),
        "precision": precision_of(options),
        "flash_attention": flash_of(options),
        "cuda_graphs": graphs_of(options),
        "fp8_params": options.has("fp8-param-gather"),
        "task": "sft" if options.has("sft") else "pretrain",
    }
    findings = contradictions(options, model or {})
    layout, more = pipeline_of(options, model or {}, written["pp"])
    written |= layout | recompute_of(options, written["pp"], warnings) | expert_facts(options, model, tp)
    written |= overlap_of(options, model, written["zero_stage"], written["vpp"])
    written["profile_settings"] = settings_of(options, written)
    if options.has("rampup-batch-size"):
        warnings.append("rampup-batch-size: the final batch is priced")
    return written, findings + more


def environment(options: Options, command: Command) -> list[Finding]:
    """CUDA_DEVICE_MAX_CONNECTIONS, which Megatron-LM insists on before Blackwell."""
    value = command.values.get("CUDA_DEVICE_MAX_CONNECTIONS")
    sharded = options.has("use-torch-fsdp2") or options.has("use-megatron-fsdp")
    if sharded and value == "1":
        text = (
            "CUDA_DEVICE_MAX_CONNECTIONS=1 with FSDP: Megatron-LM refuses, since gathers would wait "
            "for kernels."
        )
        return [
            Finding("max_connections", "error", text, "unset CUDA_DEVICE_MAX_CONNECTIONS, or set it to 8.")
        ]
    split = any((options.whole(f"{name}-parallel-size", 1) or 1) > 1 for name in ("tensor-model", "context"))
    if options.has(EXPERT_OVERLAP):
        text = f"CUDA_DEVICE_MAX_CONNECTIONS=1 with --{EXPERT_OVERLAP}: one queue leaves nothing to overlap."
        fix = "export CUDA_DEVICE_MAX_CONNECTIONS=32."
        return told(value == "1", "max_connections", "warning", text, fix)
    if split and not sharded and isinstance(value, str) and value not in ("1",) and "\0" not in value:
        text = f"CUDA_DEVICE_MAX_CONNECTIONS={value} with TP or CP: Megatron-LM refuses on Hopper and before."
        return [Finding("max_connections", "error", text, "export CUDA_DEVICE_MAX_CONNECTIONS=1.")]
    return []
