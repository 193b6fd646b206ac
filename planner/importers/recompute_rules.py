"""Recompute options of Megatron-LM that contradict each other."""

from __future__ import annotations

from typing import Any

from planner.importers.findings import Finding, Level
from planner.importers.options import Options


def told(when: bool, code: str, level: Level, text: str, fix: str) -> list[Finding]:
    """A finding, if it holds."""
    return [Finding(code, level, text, fix)] if when else []


def recompute(options: Options, model: dict[str, Any]) -> list[Finding]:
    """Granularity against method, number of layers, modules and graphs."""
    granularity, method = options.text("recompute-granularity"), options.text("recompute-method")
    count = options.has("recompute-num-layers")
    short = options.has("recompute-activations")
    full = granularity == "full" and not short
    code = "recompute_contradiction"
    detail = [
        f"--{name}"
        for name in ("recompute-method", "recompute-num-layers", "recompute-modules")
        if options.has(name)
    ]
    return [
        *told(
            short and granularity == "full",
            code,
            "error",
            "--recompute-activations turns --recompute-granularity full into selective, without a word.",
            "Drop --recompute-activations to recompute whole layers.",
        ),
        *told(
            (granularity == "selective" or short) and method is not None,
            code,
            "error",
            f"selective recompute with --recompute-method {method}: Megatron-LM stops.",
            "Drop --recompute-method and --recompute-num-layers, or use --recompute-granularity full.",
        ),
        *told(
            full and (method is None or not count),
            code,
            "error",
            "--recompute-granularity full needs --recompute-method and --recompute-num-layers: "
            "Megatron-LM stops.",
            "--recompute-method uniform --recompute-num-layers 1.",
        ),
        *told(
            granularity is None and not short and bool(detail),
            code,
            "warning",
            f"{', '.join(detail)} without --recompute-granularity: nothing is recomputed.",
            "Add --recompute-granularity full or selective, or drop them.",
        ),
        *told(
            full and options.has("recompute-modules"),
            code,
            "warning",
            "--recompute-modules is ignored with --recompute-granularity full.",
            "Choose one of the two.",
        ),
        *told(
            full and options.text("cuda-graph-impl", "none") != "none",
            code,
            "error",
            "full recompute with CUDA graphs: Megatron-LM stops.",
            "Selective recompute, or --cuda-graph-impl none.",
        ),
        *_saved(options, full),
        *_modules(options, model),
    ]


def _saved(options: Options, full: bool) -> list[Finding]:
    """Checkpoints spread over tensor-parallel ranks."""
    spread = options.has("distribute-saved-activations")
    alone = not full or (options.whole("tensor-model-parallel-size", 1) or 1) == 1
    return [
        *told(
            spread and alone,
            "recompute_contradiction",
            "error",
            "--distribute-saved-activations needs full recompute and TP > 1: Megatron-LM stops.",
            "Drop it.",
        ),
        *told(
            spread and options.has("sequence-parallel"),
            "recompute_contradiction",
            "error",
            "--distribute-saved-activations with --sequence-parallel, which shards them already: "
            "Megatron-LM stops.",
            "Drop --distribute-saved-activations.",
        ),
    ]


def _modules(options: Options, model: dict[str, Any]) -> list[Finding]:
    """Modules that a model or its kernels do not have."""
    modules = {each for text in options.all("recompute-modules") for each in text.split(",")}
    needs = {
        "moe_act": (options.has("moe-grouped-gemm"), "--moe-grouped-gemm"),
        "mla_up_proj": (bool(model.get("mla")), "--multi-latent-attention"),
        "moe": (bool(model.get("moe")), "--num-experts"),
        "shared_experts": (not options.has("moe-shared-expert-overlap"), "no --moe-shared-expert-overlap"),
    }
    return [
        Finding(
            "recompute_contradiction",
            "error",
            f"--recompute-modules {name} needs {need}: Megatron-LM stops.",
            f"Drop {name} from --recompute-modules.",
        )
        for name, (there, need) in needs.items()
        if name in modules and not there
    ]
