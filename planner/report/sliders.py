"""The sliders of the page: limits and prices as multiples of the problem's own."""

from __future__ import annotations

from html import escape
from typing import NamedTuple

from costmodel.units import DAY
from planner.cli.words import dollars
from planner.report.candidates import LIMIT, PRICE, Span
from planner.report.data import ReportData

STEP = 0.005
"""Of a slider, as a share of the problem's own value, which has to be on a step."""


class Slider(NamedTuple):
    """One quantity that can be moved."""

    name: str
    kind: str
    """deadline, budget or price."""
    base: float
    """What a factor of 1 is: seconds, dollars, dollars a GPU-hour."""
    span: Span
    words: str
    """The value as it stands."""
    pool: int = 0
    none: bool = False
    """The problem has no such limit: the right end is none."""


def sliders(data: ReportData) -> list[Slider]:
    """Deadline, budget, and the price of each pool."""
    instance, candidates = data.instance, data.found.candidates
    if not candidates:
        return []
    made, usual = [], candidates[0]
    for kind, limit, scale in (
        ("deadline", instance.limits.deadline, usual.seconds * usual.margin),
        ("budget", instance.limits.budget, usual.dollars),
    ):
        if limit is None:
            made.append(Slider(kind, kind, scale, LIMIT, "none", none=True))
        else:
            words = f"{limit / DAY:.1f} days" if kind == "deadline" else dollars(limit)
            made.append(Slider(kind, kind, limit, LIMIT, words))
    for pool in (instance.pools[index] for index in instance.described):
        if pool.price > 0 and any(one.entry == pool.entry for one in candidates):
            name = f"{pool.gpu.name} a GPU-hour"
            made.append(Slider(name, "price", pool.price, PRICE, f"${pool.price:.2f}", pool.entry))
    return made


def markup(made: list[Slider]) -> str:
    """The inputs; each begins where the problem is."""
    return f'<div class="sliders">{"".join(_one(i, slider) for i, slider in enumerate(made))}</div>\n'


def _one(place: int, of: Slider) -> str:
    value = of.span.most if of.none else 1
    none = ' data-none="yes"' if of.none else ""
    return (
        f'<label for="slider-{place}">{escape(of.name)} <output id="slider-{place}-value" '
        f'for="slider-{place}">{escape(of.words)}</output>'
        f'<input type="range" id="slider-{place}" data-kind="{of.kind}" data-pool="{of.pool}" '
        f'data-base="{of.base!r}"{none} min="{of.span.least}" max="{of.span.most}" step="{STEP}" '
        f'value="{value}"></label>'
    )
