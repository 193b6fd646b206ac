"""Keys of a run that its free text states: read where the key itself is missing."""

from __future__ import annotations

import re
from typing import Any

from planner.runs.facts import RunFacts

PHRASES: tuple[tuple[str, str, Any], ...] = (
    ("dispatcher", r"hybrid-?ep\b", "hybridep"),
    ("dispatcher", r"deep-?ep\b", "deepep"),
    ("dispatcher", r"all-?to-?all dispatcher", "alltoall"),
    ("ep_overlap", r"EP (all-?to-?all )?overlap on|\+ EP overlap", True),
    ("ep_overlap", r"EP (all-?to-?all )?overlap off", False),
    ("cuda_graphs", r"CUDA graphs:? off", "none"),
    ("cuda_graphs", r"full_iteration", "full"),
    ("cuda_graphs", r"CUDA graphs[^;]*\battn\b", "attention_router"),
    ("cuda_graphs", r"CUDA graphs[^;]*moe_router", "router"),
    ("tp_overlap", r"TP (comm )?overlap (\(user buffers\) )?on|async ?TP", True),
    ("tp_overlap", r"vanilla TP", False),
    ("permute_fusion", r"no permute fusion", False),
    (
        "embedding_slots",
        r"one layer fewer|embedding (and loss )?(counted as|occupy|taking)[^;]*(layer|slots)",
        True,
    ),
    ("embedding_slots", r"without embedding balancing", False),
    ("routing", r"token[- ]drop|capacity factor", "capacity"),
    ("routing", r"(forced?|fake)[- ]?balanced", "balanced"),
    ("routing", r"natural routing", "natural"),
    ("schedule", r"\bInterleaved 1F1B\b", "interleaved"),
    ("fp8_params", r"float8 all-gather|FP8 param", True),
)
"""(key, pattern, what it then is); the first match of a key counts."""
LAYOUT = re.compile(r"pp layout (\S+)")
OFFLOADED = re.compile(r"(\d+(?:\.\d+)?)\s*% of activations offloaded")
SCHEDULE = re.compile(r"schedule (1F1B-I|1F1B|ZB-1p|ZB-2p|ZB-V)\b", re.IGNORECASE)
SCHEDULES = {"1f1b-i": "interleaved"}
TOOL = re.compile(r"nvidia-smi|allocated|reserved", re.IGNORECASE)
TOOLS = {"nvidia-smi": "device", "allocated": "allocated", "reserved": "reserved"}
EXACT_RECIPE = re.compile(r"recipe .*\(exact\)")
"""A published recipe stands behind the run, so what the notes leave out is that recipe's default."""


def with_notes(facts: RunFacts) -> RunFacts:
    """The facts with keys that only free text states."""
    text = facts.notes or ""
    said: dict[str, Any] = {}
    for key, pattern, value in PHRASES:
        if key not in said and re.search(pattern, text, re.IGNORECASE):
            said[key] = value
    if layout := LAYOUT.search(text):
        said["pp_layout"] = layout.group(1).rstrip(";,")
    if share := OFFLOADED.search(facts.offload or ""):
        said["offload_fraction"] = float(share.group(1)) / 100
    if schedule := SCHEDULE.search(f"{facts.framework or ''}; {text}"):
        name = schedule.group(1).lower()
        said["schedule"] = SCHEDULES.get(name, name)
    if facts.peak_memory_note and (tool := TOOL.search(facts.peak_memory_note)):
        said["memory_figure"] = TOOLS[tool.group(0).lower()]
    if "dispatcher" not in said and any(EXACT_RECIPE.search(each) for each in facts.inferred or ()):
        said["dispatcher"] = "alltoall"
        said.setdefault("ep_overlap", False)
    missing = {key: value for key, value in said.items() if getattr(facts, key) is None}
    return facts.model_copy(update=missing) if missing else facts
