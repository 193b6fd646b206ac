"""Decisions, differences of plans and parts of a step in the words of reasons."""

from __future__ import annotations

from planner.account import mode_of, modules_word, overlap_word, overlapped, scope_of
from planner.instance import Instance
from planner.search import Plan

NAMES = {
    "num_gpus": "GPUs",
    "num_microbatches": "micro-batches",
    "micro_batch": "micro-batch",
    "global_batch": "global batch",
    "zero": "ZeRO",
    "zero_scope": "ZeRO scope",
    "recompute": "recompute",
    "recompute_modules": "recomputed modules",
    "gpu": "GPU type",
    "mixed": "form",
    "precision": "precision",
    "stages": "stages",
    "tp_overlap": "TP overlap",
    "dp_overlap": "DP overlap",
    "pp_overlap": "PP overlap",
    "ep_overlap": "EP overlap",
}
PARTS = {
    "gemm": "matrix products",
    "attention": "attention",
    "elementwise": "elementwise work",
    "host": "launch gaps",
    "tp": "tensor-parallel traffic",
    "cp": "context-parallel traffic",
    "ep": "expert-parallel traffic",
    "head": "embedding, head and loss",
    "recompute": "recompute",
    "bubble": "pipeline bubble",
    "p2p": "pipeline transfers",
    "data_parallel": "data-parallel traffic",
    "optimizer": "optimizer",
    "fixed": "per-step overhead",
    "stragglers": "stragglers",
    "assumed": "computing at the assumed MFU",
}
SMALL = 5e-4
"""Shares of the total below this are not worth a clause."""


def label(decision: str) -> str:
    """A decision as people call it."""
    return NAMES.get(decision, decision.upper())


def part_name(part: str) -> str:
    """A part of a step as people call it."""
    return PARTS.get(part, part.replace("_", " "))


def other_decisions(instance: Instance, plan: Plan, other: Plan, decision: str) -> str:
    """What else the alternative changes, in short."""
    named = ("tp", "cp", "pp", "vpp", "dp", "ep", "etp", "micro_batch", "zero")
    changed = [
        f"{label(n)} {int(getattr(other.row, n)[0])}"
        for n in named
        if n != decision and getattr(other.row, n)[0] != getattr(plan.row, n)[0]
    ]
    if decision != "zero_scope" and scope_of(other) != scope_of(plan):
        changed.append(f"{label('zero_scope')} {scope_of(other)}")
    if decision != "recompute" and mode_of(other) != mode_of(plan):
        changed.append(f"recompute {mode_of(other)}")
    modules = modules_word(instance, other)
    if decision != "recompute_modules" and modules not in ("", modules_word(instance, plan)):
        changed.append(f"{label('recompute_modules')} {modules}")
    if decision != "ep_overlap" and overlapped(other) != overlapped(plan):
        changed.append(f"{label('ep_overlap')} {overlap_word(other)}")
    first, second = (instance.pools[each.of("pool")] for each in (plan, other))
    if decision != "precision" and first.precision != second.precision:
        changed.append(second.precision.upper())
    if decision == "precision" and first.gpu.name != second.gpu.name:
        changed.append(f"GPU type {second.gpu.name}")
    return f" (with {', '.join(changed)})" if changed else ""


def change_words(effect: dict[str, float]) -> str:
    """The effect of an alternative as a clause; what rounds to nothing is left out."""
    said = [days_words(effect["days"]), money_words(effect["dollars"])]
    if abs(effect["mfu"]) >= 5e-5:
        said.append(f"MFU {effect['mfu'] * 100:+.2f} points")
    if abs(effect["memory_gib"]) >= 0.05:
        said.append(f"{abs(effect['memory_gib']):.1f} GiB {'more' if effect['memory_gib'] > 0 else 'less'}")
    return ", ".join(said)


def days_words(days: float) -> str:
    """1.84 days longer."""
    if abs(days) < 0.005:
        return "as long"
    return f"{abs(days):.2f} days {'longer' if days > 0 else 'shorter'}"


def money_words(cost: float) -> str:
    """$23,598 dearer."""
    return f"${abs(cost):,.0f} {'dearer' if cost > 0 else 'cheaper'}" if abs(cost) >= 0.5 else "as dear"


def part_words(parts: dict[str, float], in_dollars: bool, most: int = 3) -> str:
    """The largest changes of parts, as a clause."""
    total = sum(abs(change) for change in parts.values())
    largest = sorted(parts.items(), key=lambda item: -abs(item[1]))[:most]
    said = [(name, change) for name, change in largest if total and abs(change) > max(0.05 * total, SMALL)]
    if not said:
        return ""
    words = [
        f"{part_name(name)} {'+' if change > 0 else '-'}"
        + (f"${abs(change):,.0f}" if in_dollars else f"{abs(change):.2f} days")
        for name, change in said
    ]
    return "; " + ", ".join(words)


def seconds_words(change: float) -> str:
    """-4.1 s, +12 ms."""
    size = f"{abs(change):.2f} s" if abs(change) >= 0.1 else f"{abs(change) * 1e3:.1f} ms"
    return f"{'+' if change > 0 else '-'}{size}"


def sizes(layers: tuple[int, ...]) -> str:
    """Layers of the virtual stages, in short."""
    return ", ".join(map(str, layers)) if len(layers) <= 16 else f"{min(layers)} to {max(layers)} layers each"
