"""Two plans side by side: what they decide otherwise, what each takes, and what makes the difference."""

from __future__ import annotations

from math import isclose
from typing import Any

from costmodel.units import DAY, HOUR
from hardware.catalogue import load_accelerator
from planner.comparison import Comparison, Differs, Figure, Part, Side
from planner.reason_words import part_name

SAME_MODEL = 0.005
"""Relative difference in parameters up to which two models are one, whatever they are called."""
PLAIN = "Days and dollars are without what failures and checkpoints cost: runs do not say it."
USUAL_TOKENS = 1e12
"""Tokens that runs are compared over where no problem says how many."""


def compared(a: Side, b: Side, tokens: float | None = None) -> Comparison:
    """The comparison of two plans over so many tokens, or over those of a solution's problem."""
    notes = list(unlike(a, b))
    known = tokens or a.tokens or b.tokens
    whole = known or USUAL_TOKENS
    if known is None:
        notes.append("Neither side says how many tokens are trained on: days and dollars are for 1T tokens.")
    same = a.decisions["gpu"] == b.decisions["gpu"] and a.num_gpus == b.num_gpus
    sides = [runs(a, b, whole, tokens, notes), runs(b, a, whole, tokens, notes)]
    parts = tuple(sorted(parts_of(a, b, whole, same), key=lambda part: -abs(part.difference)))
    figures = tuple(figures_of(a, b, *sides))
    return Comparison(
        a=a,
        b=b,
        decisions=tuple(differing(a, b)),
        figures=figures,
        unit="days" if same else "GPU-hours",
        parts=parts,
        driver=part_name(parts[0].part),
        text=verdict(figures, parts, same),
        notes=tuple(dict.fromkeys(notes)),
    )


def unlike(a: Side, b: Side) -> list[str]:
    """What makes a comparison one of unlike things."""
    found = []
    if not isclose(a.parameters, b.parameters, rel_tol=SAME_MODEL):
        sizes = f"{a.parameters / 1e9:.1f}B and {b.parameters / 1e9:.1f}B parameters"
        found.append(f"The models differ: {a.model} and {b.model}, {sizes}.")
    if a.decisions["seq_len"] != b.decisions["seq_len"]:
        found.append(f"The sequences differ: {a.decisions['seq_len']} and {b.decisions['seq_len']} tokens.")
    small = [name for name, side in (("A", a), ("B", b)) if not side.fits]
    return found + [f"{name} does not fit into the GPUs' memory." for name in small]


def runs(
    side: Side, other: Side, tokens: float, asked: float | None, notes: list[str]
) -> tuple[float, float]:
    """Days and dollars: a solution's own where both are solutions, else without what failures cost."""
    if side.days is not None and side.dollars is not None and other.days is not None and not asked:
        if side.tokens != other.tokens:
            notes.append(f"They train on {side.tokens or 0:.3g} and {other.tokens or 0:.3g} tokens.")
        return side.days, side.dollars
    if side.days is not None or other.days is not None:
        notes.append("Days and dollars are without what failures and checkpoints cost: runs do not say it.")
    days = tokens / side.tokens_per_step * side.step_time_s / DAY
    return days, side.num_gpus * 24 * days * price_of(side, other, notes)


def price_of(side: Side, other: Side, notes: list[str]) -> float:
    """USD per GPU-hour: the side's own, the other's of the same GPU, or what is usual."""
    gpu = str(side.decisions["gpu"])
    if side.price is not None:
        return side.price
    if other.price is not None and other.decisions["gpu"] == gpu:
        return other.price
    usual = load_accelerator(gpu).prices.reserved.typical
    notes.append(f"{gpu} is priced at {usual:.2f} USD/gpu-hour, typical of reserved GPUs.")
    return usual


def differing(a: Side, b: Side) -> list[Differs]:
    """Decisions that both have and that differ, and those that only one has."""
    names = dict.fromkeys([*a.decisions, *b.decisions])
    pairs = ((name, a.decisions.get(name), b.decisions.get(name)) for name in names)
    return [Differs(decision=n, a=x, b=y) for n, x, y in pairs if x != y and None not in (x, y)]


def figures_of(a: Side, b: Side, of_a: tuple[float, float], of_b: tuple[float, float]) -> list[Figure]:
    """Days, dollars, step, MFU, throughput and memory of both."""
    values: list[tuple[str, str, float, float]] = [
        ("days", "days", of_a[0], of_b[0]),
        ("dollars", "USD", of_a[1], of_b[1]),
        ("step_time", "s", a.step_time_s, b.step_time_s),
        ("mfu", "%", 100 * a.mfu, 100 * b.mfu),
        ("tokens_per_s_per_gpu", "tokens/s", a.tokens_per_s_per_gpu, b.tokens_per_s_per_gpu),
        ("memory", "GiB", a.memory_gib.total, b.memory_gib.total),
    ]
    return [Figure(name=n, unit=u, a=x, b=y, difference=y - x) for n, u, x, y in values]


def parts_of(a: Side, b: Side, tokens: float, same: bool) -> list[Part]:
    """Parts of the step, with the difference over the run: days, or GPU-hours where GPUs differ."""
    whole = {}
    for side in (a, b):
        steps = tokens / side.tokens_per_step
        whole[id(side)] = steps / DAY if same else steps * side.num_gpus / HOUR
    return [
        Part(
            part=name,
            a_s=a.breakdown_s.get(name, 0.0),
            b_s=b.breakdown_s.get(name, 0.0),
            difference=b.breakdown_s.get(name, 0.0) * whole[id(b)]
            - a.breakdown_s.get(name, 0.0) * whole[id(a)],
        )
        for name in dict.fromkeys([*a.breakdown_s, *b.breakdown_s])
    ]


def verdict(figures: tuple[Figure, ...], parts: tuple[Part, ...], same: bool) -> str:
    """What is better by how much, and what makes most of it."""
    of = {figure.name: figure for figure in figures}
    days, cost = of["days"].difference, of["dollars"].difference
    clauses: list[Any] = [
        f"{abs(days):.1f} days {'longer' if days > 0 else 'shorter'}" if abs(days) >= 0.05 else "as long",
        f"${abs(cost):,.0f} {'dearer' if cost > 0 else 'cheaper'}" if abs(cost) >= 0.5 else "as dear",
    ]
    most = parts[0]
    if abs(most.difference) < 1e-9:
        return "B takes as long as A, part by part."
    amount = f"{abs(most.difference):.2f} days" if same else f"{abs(most.difference):,.0f} GPU-hours"
    more = "more" if most.difference > 0 else "less"
    return (
        f"B is {' and '.join(clauses)} than A; the largest part of the difference is "
        f"{part_name(most.part)}: {amount} {more}."
    )
