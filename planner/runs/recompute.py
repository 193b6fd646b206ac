"""What a run recomputes: modules in every layer, and layers in full on each virtual stage."""

from __future__ import annotations

import re
from collections.abc import Sequence

from costmodel.modules import MODULES
from planner.errors import Refused
from planner.runs.facts import RunFacts

BLOCK = re.compile(r"of (\d+) layer\(?s?\)? per \(?virtual\)? stage", re.IGNORECASE)
EVERY_OTHER = re.compile(r"every other layer", re.IGNORECASE)
LISTED = re.compile(r"modules:\s*([^();]*)", re.IGNORECASE)
PHRASES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"per-?op\b", ("per_op",)),
    (r"dots except MLP in-projections", ("mlp_in",)),
    (r"dots except MLP|remat policy variable", ("mlp",)),
    (r"norm \+ activation function", ("layernorm", "act")),
    (r"core[_ ]att|recompute-activations", ("core_attn",)),
)
"""What free text says, in the words of its source, and the modules it means."""


def recompute_of(
    facts: RunFacts, layers: Sequence[int], *, fully_sharded: bool
) -> tuple[frozenset[str], list[int], list[str]]:
    """Modules recomputed in every layer, full layers of each virtual stage, and what was assumed."""
    detail = facts.recompute_detail or ""
    none = [0] * len(layers)
    if facts.recompute is None and not detail:
        return frozenset(), none, ["recompute: not given; none"]
    if block := BLOCK.search(detail):
        return frozenset(), [min(int(block.group(1)), held) for held in layers], []
    if EVERY_OTHER.search(detail):
        return frozenset(), [-(-held // 2) for held in layers], []
    if facts.recompute in ("full", "partial-full"):
        return frozenset(), list(layers), []
    if facts.recompute == "none":
        return frozenset(), none, []
    if (modules := _modules(detail)) is not None:
        return modules, none, []
    usual = "per_op" if fully_sharded else "core_attn"
    return frozenset({usual}), none, [f"recompute: selective without modules; {usual}"]


def _modules(detail: str) -> frozenset[str] | None:
    if listed := LISTED.search(detail):
        names = [name.strip() for name in listed.group(1).split(",")]
        for name in names:
            if name not in MODULES:
                raise Refused(f"found module {name!r}", ", ".join(MODULES), where=("recompute_detail",))
        return frozenset(names)
    for pattern, names in PHRASES:
        if re.search(pattern, detail, re.IGNORECASE):
            return frozenset(names)
    return None
