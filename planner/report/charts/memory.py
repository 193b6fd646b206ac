"""Peak memory of each pipeline stage by category, against the limit."""

from __future__ import annotations

from typing import Any

from planner.report.charts.theme import FAINT, MEMORY_COLORS, Drawing, colored, data, sized, tooltip
from planner.report.data import ReportData
from planner.report.extras import extra
from planner.report.stages import Ranks

LABELS = {
    "weights": "weights",
    "gradients": "gradients",
    "optimizer": "optimizer states",
    "activations": "activations",
    "buffers": "buffers",
    "overhead": "overhead",
}


TICK = 48
"""Pixels across, of what marks the limit of one stage."""


def by_stage(of: ReportData) -> dict[str, list[float]]:
    """GiB by category and stage; of the fullest stage alone where the stages are not modelled here."""
    if of.ranks is not None:
        return {name: part.tolist() for name, part in of.ranks.memory.items() if name in LABELS}
    if of.plan is None:
        return {}
    return {name: [getattr(of.plan.estimate.memory_gib, name)] for name in LABELS}


def chart(of: ReportData, for_page: bool) -> Drawing | None:
    """Stacked bars a stage, and a line at the limit."""
    alt = extra("altair")

    if of.plan is None:
        return None
    parts, limit = by_stage(of), of.plan.slack.get("memory")
    order = list(of.ranks.names) if of.ranks else ["fullest"]
    rows = [
        {
            "stage": stage,
            "part": LABELS[name],
            "gib": gib,
            "words": f"{gib:.2f}",
            "order": i,
        }
        for i, name in enumerate(LABELS)
        for stage, gib in zip(order, parts[name], strict=True)
    ]
    bars = stacked(data("rows"), order, for_page)
    layers, datasets = [bars], {"rows": rows}
    if limit is not None:
        datasets["limit"] = [{"limit": limit.limit, "words": f"allowed: {limit.limit:.1f} GiB"}]
        line = data("limit")
        layers.append(line.mark_rule(strokeDash=[6, 4], color=FAINT, strokeWidth=1.5).encode(y="limit:Q"))
        text = line.mark_text(align="left", baseline="bottom", dx=2, dy=-4, color=FAINT)
        layers.append(text.encode(y="limit:Q", x=alt.value(0), text="words:N"))
    if of.ranks is not None and of.ranks.room:
        datasets["room"] = rooms(of.ranks)
        layers.append(ticks(data("room"), order))
    title = "Memory of each pipeline stage against the limit"
    return Drawing(sized(alt.layer(*layers), for_page, title, height=260), datasets)


def rooms(of: Ranks) -> list[dict[str, Any]]:
    """What a plan may use on each stage, where pools differ in it."""
    return [
        {"stage": name, "limit": room, "words": f"{room:.1f}"}
        for name, room in zip(of.names, of.room, strict=True)
        if room is not None
    ]


def ticks(chart: Any, order: list[str]) -> Any:
    """A line over each bar at what its stage may use."""
    alt = extra("altair")
    return chart.mark_tick(color=FAINT, thickness=2, size=TICK).encode(
        x=alt.X("stage:N", sort=order), y="limit:Q", tooltip=tooltip(stage="stage", words="GiB allowed")
    )


def stacked(chart: Any, order: list[str], for_page: bool) -> Any:
    """One bar a stage."""
    alt = extra("altair")
    return chart.mark_bar(**({} if len(order) > 3 else {"size": 64})).encode(
        x=alt.X("stage:N", sort=order, title="pipeline stage", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("gib:Q", stack="zero", title="GiB of each GPU at the peak"),
        color=colored("part", {LABELS[name]: color for name, color in MEMORY_COLORS.items()}, for_page),
        order="order:Q",
        tooltip=tooltip(stage="stage", part="category", words="GiB"),
    )
