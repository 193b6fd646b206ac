"""Overlap switches of Megatron-LM that contradict the rest of its options.

Source: Megatron-Core 0.16 (TransformerConfig.__post_init__, Transformer Engine extensions) and validate_args.
"""

from __future__ import annotations

from typing import Any

from planner.importers.findings import Finding
from planner.importers.megatron_layout import pipeline_of
from planner.importers.options import Options
from planner.importers.recompute_rules import told

EXPERT_OVERLAP = "overlap-moe-expert-parallel-comm"
WAITING = 3
"""Fewest pipeline ranks of interleaved stages whose transfers are waited for."""


def overlap(options: Options, model: dict[str, Any]) -> list[Finding]:
    """User buffers of latent attention, and transfers of two interleaved ranks."""
    pp, vpp = _pipeline(options, model)
    return [
        *told(
            options.has("tp-comm-overlap") and bool(model.get("mla")),
            "tp_overlap",
            "warning",
            "--tp-comm-overlap with latent attention, whose linears have no user buffers: "
            "Megatron-Core switches it off.",
            "Drop --tp-comm-overlap.",
        ),
        *told(
            options.has("no-overlap-p2p-communication") and vpp > 1 and pp < WAITING,
            "pp_overlap",
            "error",
            f"--no-overlap-p2p-communication with virtual stages on PP {pp}: Megatron-LM stops.",
            f"Drop it, or PP {WAITING} or more.",
        ),
    ]


def expert_overlap(options: Options, model: dict[str, Any]) -> list[Finding]:
    """What --overlap-moe-expert-parallel-comm needs and excludes."""
    if not options.has(EXPERT_OVERLAP):
        return []
    pp, vpp = _pipeline(options, model)
    modules = {each for text in options.all("recompute-modules") for each in text.split(",")}
    needs = {
        "an --expert-model-parallel-size above 1": (options.whole("expert-model-parallel-size", 1) or 1) == 1,
        "virtual stages in a pipeline": pp > 1 and vpp == 1,
        "--moe-token-dispatcher-type alltoall or flex": options.text("moe-token-dispatcher-type", "allgather")
        == "allgather",
        "no full recompute": options.text("recompute-granularity") == "full"
        and not options.has("recompute-activations"),
        "no recompute of the module moe": "moe" in modules or options.has("moe-layer-recompute"),
        "no --moe-shared-expert-overlap": options.has("moe-shared-expert-overlap"),
        "at most one layer of --mtp-num-layers": (model.get("mtp_layers") or 0) > 1,
    }
    return [
        Finding(
            "ep_overlap",
            "error",
            f"--{EXPERT_OVERLAP} needs {need}: Megatron-LM stops.",
            f"Drop it, or {need}.",
        )
        for need, missing in needs.items()
        if missing
    ]


def _pipeline(options: Options, model: dict[str, Any]) -> tuple[int, int]:
    """Ranks of the pipeline and virtual stages of each."""
    pp = options.whole("pipeline-model-parallel-size", 1) or 1
    return pp, pipeline_of(options, model, pp)[0]["vpp"]
