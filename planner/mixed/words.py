"""Decisions of plans on two pools in the words of reasons."""

from __future__ import annotations

from collections.abc import Collection

from planner.reason_words import label
from planner.solution import Plan

NAMES = {"gpu": "GPU types", "mixed": "Form", "first_ranks": "First ranks on"}
SHARED = ("tp", "cp", "pp", "vpp", "dp", "ep", "etp", "micro_batch", "zero", "recompute", "precision")


def label_of(decision: str) -> str:
    """A decision as people call it: TP, GPU types, Layers of H20."""
    if " of " in decision:
        return decision[:1].upper() + decision[1:]
    return NAMES.get(decision) or label(decision)


def head_words(mine: Plan, theirs: Plan, asked: Collection[str]) -> str:
    """What the alternative changes beside what was asked about, in short."""
    one, other = mine.decisions, theirs.decisions
    said = [other.machines] if other.machines != one.machines else []
    if "mixed" not in asked and other.mixed and other.mixed != one.mixed:
        said.append(f"as {other.mixed}")
    for name in SHARED:
        value = getattr(other, name)
        if name not in asked and value != getattr(one, name):
            said.append(f"{label(name)} {value}")
    return f" (with {', '.join(said)})" if said else ""
