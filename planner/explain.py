"""Why each decision is as it is: the best plan that decides otherwise, and what it would cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.pipeline import plain_layers
from planner.answer import GIB, days_and_dollars, predicted
from planner.instance import Instance
from planner.relax import why_none
from planner.search import Effort, Goal, Plan, Table, best, priced
from planner.solution import Reason
from planner.space import Candidates, Groups
from planner.stages import StagePlan

Array = NDArray[Any]

NAMES = {
    "num_gpus": "GPUs",
    "num_microbatches": "micro-batches",
    "micro_batch": "micro-batch",
    "zero": "ZeRO",
    "recompute": "recompute",
    "gpu": "GPU type",
    "stages": "stages",
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


@dataclass(frozen=True, slots=True)
class Question:
    """A decision and what counts as deciding otherwise."""

    decision: str
    chosen: Any
    value: Callable[[Plan], Any]
    mask: Callable[[Groups], Array]
    modes: frozenset[str] | None = None


def questions(instance: Instance, plan: Plan) -> Iterator[Question]:
    """One question for each decision that the problem leaves open."""
    row = plan.row

    def differs(name: str) -> Callable[[Groups], Array]:
        chosen = int(getattr(row, name)[0])
        # A group stands for every vpp and ZeRO stage: it always holds some that differ.
        return lambda rows: (
            getattr(rows, name) != chosen if hasattr(rows, name) else np.ones(len(rows), dtype=bool)
        )

    def value(name: str) -> Callable[[Plan], int]:
        return lambda plan: int(getattr(plan.row, name)[0])

    allowed = instance.narrowing.allowed
    if len(instance.pools) > 1:
        yield Question(
            "gpu",
            instance.pools[int(row.pool[0])].gpu.name,
            lambda plan: instance.pools[int(plan.row.pool[0])].gpu.name,
            differs("pool"),
        )
    moe = ("ep", "etp") if instance.architecture.moe else ()
    for name in ("num_gpus", "tp", "cp", "pp", "vpp", "dp", *moe, "micro_batch", "zero"):
        if len(allowed.get(name, (0, 1))) > 1:
            yield Question(name, int(getattr(row, name)[0]), value(name), differs(name))
    modes = frozenset(str(mode) for mode in allowed.get("recompute", ("none", "selective", "full")))
    mode = mode_of(plan)
    if modes - {mode}:
        yield Question("recompute", mode, mode_of, lambda rows: np.ones(len(rows), dtype=bool), modes - {mode})


def mode_of(plan: Plan) -> str:
    """The recompute mode as a launch file would name it."""
    if plan.row.selective[0]:
        return "selective"
    return "full" if any(plan.stages.recomputed) else "none"


def reasons(table: Table, goal: Goal, plan: Plan) -> tuple[Reason, ...]:
    """A reason for every open decision, from the best plan that decides otherwise."""
    found = [answer(table, goal, plan, question) for question in questions(table.instance, plan)]
    found += [reason for reason in (microbatch_reason(table, goal, plan), stage_reason(table, plan)) if reason]
    return tuple(found)


def answer(table: Table, goal: Goal, plan: Plan, question: Question) -> Reason:
    asked = goal
    if question.modes is not None:
        table, asked = table.fresh(), replace(goal, modes=question.modes)
    other = best(table, asked, question.mask, Effort())
    if other is None:
        because, text = why_none(table, asked, question.mask)
        name = NAMES.get(question.decision, question.decision)
        sentence = f"{name} {question.chosen}: no plan that decides otherwise is within the limits; {text}."
        return Reason(decision=question.decision, chosen=question.chosen, because=because, text=sentence)
    return compared(table.instance, plan, other, question.decision, question.chosen, question.value(other))


def compared(instance: Instance, plan: Plan, other: Plan, decision: str, chosen: Any, alternative: Any) -> Reason:
    """What taking `other` instead of `plan` would change, and which part of the step changes most."""
    days, cost = days_and_dollars(instance, plan)
    other_days, other_cost = days_and_dollars(instance, other)
    mine, theirs = predicted(instance, plan), predicted(instance, other)
    effect = {
        "days": other_days - days,
        "dollars": other_cost - cost,
        "mfu": theirs.mfu - mine.mfu,
        "memory_gib": float(theirs.memory.total - mine.memory.total) / GIB,
        "step_time_s": theirs.step_time - mine.step_time,
    }
    by_money = instance.objective[0][0] == "cost"
    parts = part_changes(instance, plan, other, by_money)
    driver = max(parts, key=lambda name: abs(parts[name]), default="nothing")
    head = f"{NAMES.get(decision, decision.upper())} {chosen} -> {alternative}"
    if decision in ("tp", "cp", "pp", "vpp", "dp", "ep", "etp"):
        head = f"{decision.upper()} {chosen} -> {alternative}"
    with_it = other_decisions(plan, other, decision)
    text = f"{head}{with_it}: {change_words(effect)}{part_words(parts, by_money)}."
    return Reason(
        decision=decision,
        chosen=chosen,
        alternative=alternative,
        effect=effect,
        because=PARTS.get(driver, driver),
        text=text,
    )


def part_changes(instance: Instance, plan: Plan, other: Plan, by_money: bool) -> dict[str, float]:
    """Change of each part of the step over the whole run, in dollars (rented by the hour) or days."""
    mine, theirs = shares(instance, plan, by_money), shares(instance, other, by_money)
    return {name: theirs.get(name, 0.0) - mine.get(name, 0.0) for name in mine | theirs}


def shares(instance: Instance, plan: Plan, by_money: bool) -> dict[str, float]:
    """Dollars or days of the run by part of the step."""
    of = predicted(instance, plan)
    days, _ = days_and_dollars(instance, plan)
    pool = instance.pools[int(plan.row.pool[0])]
    total = days * 24 * int(plan.row.num_gpus[0]) * pool.price if by_money else days
    return {name: total * seconds / of.step_time for name, seconds in of.breakdown.items()}


def other_decisions(plan: Plan, other: Plan, decision: str) -> str:
    """What else the alternative changes, in short."""
    named = ("tp", "cp", "pp", "vpp", "dp", "ep", "etp", "micro_batch", "zero")
    changed = [
        f"{NAMES.get(n, n.upper())} {int(getattr(other.row, n)[0])}"
        for n in named
        if n != decision and getattr(other.row, n)[0] != getattr(plan.row, n)[0]
    ]
    if decision != "recompute" and mode_of(other) != mode_of(plan):
        changed.append(f"recompute {mode_of(other)}")
    return f" (with {', '.join(changed)})" if changed else ""


def change_words(effect: dict[str, float]) -> str:
    days, cost = effect["days"], effect["dollars"]
    sooner = f"{abs(days):.2f} days {'longer' if days > 0 else 'shorter'}" if abs(days) >= 0.005 else "as long"
    money = f"${abs(cost):,.0f} {'dearer' if cost > 0 else 'cheaper'}" if abs(cost) >= 0.5 else "as dear"
    memory = f"{abs(effect['memory_gib']):.1f} GiB {'more' if effect['memory_gib'] > 0 else 'less'}"
    return f"{sooner}, {money}, MFU {effect['mfu'] * 100:+.2f} points, {memory}"


def part_words(parts: dict[str, float], by_money: bool) -> str:
    """The largest changes of parts, as a clause."""
    total = sum(abs(change) for change in parts.values())
    largest = sorted(parts.items(), key=lambda item: -abs(item[1]))[:3]
    said = [(name, change) for name, change in largest if total and abs(change) > max(0.05 * total, SMALL)]
    if not said:
        return ""
    words = [
        f"{PARTS.get(name, name)} {'+' if change > 0 else '-'}"
        + (f"${abs(change):,.0f}" if by_money else f"{abs(change):.2f} days")
        for name, change in said
    ]
    return "; " + ", ".join(words)


def microbatch_reason(table: Table, goal: Goal, plan: Plan) -> Reason | None:
    """The same layout with the next smaller number of micro-batches: the batch is as large as it is for this."""
    row, instance = plan.row, table.instance
    step = int(row.pp[0]) if row.vpp[0] > 1 else 1
    fewer = int(row.m_high[0]) - step
    wanted = instance.narrowing.allowed.get("num_microbatches")
    sequences = int(row.micro_batch[0] * row.dp[0])
    if fewer < 1 or sequences * fewer < instance.min_batch or (wanted and len(wanted) == 1):
        return None
    count = np.array([fewer])
    other = priced(instance, replace(row, m_low=count, m_high=count), plan.stages)
    return compared(instance, plan, other, "num_microbatches", int(row.m_high[0]), fewer)


def stage_reason(table: Table, plan: Plan) -> Reason | None:
    """Uneven stages against the even split of the same layout."""
    row, instance = plan.row, table.instance
    if row.pp[0] == 1:
        return None
    even = tuple(int(n) for n in plain_layers(instance.architecture.layers, int(row.pp[0] * row.vpp[0])))
    again = tuple(min(r, n) for r, n in zip(plan.stages.recomputed, even, strict=True))
    chosen, other = sizes(plan.stages.layers), sizes(even)
    if even == plan.stages.layers:
        return None
    alternative = priced(instance, row, StagePlan(even, again))
    return compared(instance, plan, alternative, "stages", chosen, other)


def sizes(layers: tuple[int, ...]) -> str:
    """Layers of the virtual stages, in short."""
    return ", ".join(map(str, layers)) if len(layers) <= 16 else f"{min(layers)} to {max(layers)} layers each"


__all__ = ["Candidates", "compared", "reasons"]
