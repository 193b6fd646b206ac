"""Where the time of a step goes: of the whole plan, and on each pipeline stage."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from planner.reason_words import PARTS
from planner.report.charts.theme import PART_COLORS, Drawing, colored, data, sized, tooltip
from planner.report.data import ReportData
from planner.report.extras import extra

LABELS = PARTS | {"idle": "waiting for others"}
LEAST = 1e-9
"""Seconds below which a part is rounding."""


def parts(of: ReportData) -> dict[str, float]:
    """Parts of the plan's step, in the order of the colours."""
    told = of.plan.estimate.breakdown_s if of.plan else {}
    return {name: told[name] for name in PART_COLORS if told.get(name, 0.0) > LEAST}


def whole(of: ReportData, for_page: bool) -> Drawing | None:
    """One stacked bar: seconds of a step by cause."""
    seconds = parts(of)
    if not seconds:
        return None
    alt, total = extra("altair"), sum(seconds.values())
    rows = [
        _row(i, name, value) | {"share": f"{100 * value / total:.1f} %"}
        for i, (name, value) in enumerate(seconds.items())
    ]
    scale = alt.Scale(domain=[0, total])
    bar = data("rows").mark_bar(size=40)
    bar = bar.encode(
        x=alt.X("seconds:Q", stack="zero", title="seconds of one step", scale=scale),
        color=_colors(seconds, for_page),
        order="order:Q",
        tooltip=tooltip(part="part", words="seconds", share="share"),
    )
    return Drawing(sized(bar, for_page, "Where the time of a step goes", height=56), {"rows": rows})


def by_stage(of: ReportData, for_page: bool) -> Drawing | None:
    """A stacked bar a pipeline stage; what is left to the length of the step is waiting."""
    if of.ranks is None or len(of.ranks.names) < 2:
        return None
    alt, by_rank = extra("altair"), of.ranks.seconds
    names = [name for name in PART_COLORS if name in by_rank and by_rank[name].max() > LEAST]
    rows = [
        _row(i, name, max(float(value), 0.0)) | {"stage": stage}
        for i, name in enumerate(names)
        for stage, value in zip(of.ranks.names, by_rank[name], strict=True)
    ]
    bars = data("rows").mark_bar()
    bars = bars.encode(
        x=alt.X("stage:O", sort=list(of.ranks.names), title="pipeline stage", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("seconds:Q", stack="zero", title="seconds of one step"),
        color=_colors(names, for_page),
        order="order:Q",
        tooltip=tooltip(stage="stage", part="part", words="seconds"),
    )
    title = "What each pipeline stage does during a step"
    return Drawing(sized(bars, for_page, title, height=260), {"rows": rows})


def _row(order: int, part: str, seconds: float) -> dict[str, Any]:
    return {"part": LABELS[part], "seconds": seconds, "words": f"{seconds:.3f}", "order": order}


def _colors(names: Iterable[str], for_page: bool) -> Any:
    return colored("part", {LABELS[name]: PART_COLORS[name] for name in names}, for_page)
