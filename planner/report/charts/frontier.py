"""Cost against time: the chosen plan, the frontier, and the plans beyond the limits."""

from __future__ import annotations

from typing import Any

from costmodel.units import DAY
from planner.cli.words import decisions_line, dollars, share
from planner.english import enumerated
from planner.report.charts.theme import FAINT, INK, SERIES, Drawing, colored, data, sized, tooltip
from planner.report.data import ReportData
from planner.report.extras import extra

ON_FRONTIER = "datum.state == 'on the frontier'"
UNPROVEN = [2, 3]
"""Dashes of a frontier that the time was too short to prove."""
HOVER = {
    "words": "GPUs",
    "layout": "layout",
    "time": "time",
    "cost": "cost",
    "mfu": "MFU",
    "memory": "memory",
    "stages": "stages",
}
"""Fields that hovering shows, by title."""


def points(of: ReportData) -> list[dict[str, Any]]:
    """One row a candidate, as the page redraws them."""
    frontier = set(of.frontier())
    return [
        {
            "index": index,
            "gpu": of.instance.pools[one.pool].gpu.name,
            "days": one.seconds / DAY,
            "dollars": one.dollars,
            "state": "on the frontier" if index in frontier else "other",
            "chosen": index == of.chosen,
            "words": f"{one.plan.decisions.num_gpus} x {one.plan.decisions.gpu}",
            "layout": decisions_line(one.plan.decisions),
            "time": f"{one.seconds / DAY:.1f} days",
            "cost": dollars(one.dollars),
            "mfu": share(one.plan.estimate.mfu),
            "memory": f"{one.plan.estimate.memory_gib.total:.1f} GiB",
            "stages": "assigned by the search" if one.exact else "plain split",
        }
        for index, one in enumerate(of.found.candidates)
    ]


def limits(of: ReportData) -> list[dict[str, Any]]:
    """Deadline and budget, where there are any."""
    asked = of.instance.limits
    found = []
    if asked.deadline is not None:
        found.append({"days": asked.deadline / DAY, "words": "deadline"})
    if asked.budget is not None:
        found.append({"dollars": asked.budget, "words": "budget"})
    return found


def chart(of: ReportData, for_page: bool) -> Drawing | None:
    """Points in days and dollars, the limits as lines, the chosen plan ringed."""
    rows = points(of)
    if not rows:
        return None
    alt, (x, y) = extra("altair"), axes()
    base = data("points").encode(x=x, y=y)
    line = base.transform_filter(ON_FRONTIER)
    dash: dict[str, Any] = {} if of.found.complete else {"strokeDash": UNPROVEN}
    line = line.mark_line(interpolate="step-after", strokeWidth=1.5, color=FAINT, **dash)
    line = line.properties(name="frontier")
    gpus = dict.fromkeys(pool.gpu.name for pool in of.instance.pools)
    dots = base.mark_point(filled=True, size=70).encode(
        color=colored("gpu", dict(zip(gpus, SERIES, strict=False)), for_page),
        opacity=alt.condition(ON_FRONTIER, alt.value(1.0), alt.value(0.35)),
        tooltip=tooltip(**HOVER),
    )
    layered = alt.layer(line, *limit_lines(), dots, *chosen_marks(base), *unproven_mark(of))
    title = "Cost against time: the plans that no other beats"
    named = {"points": rows, "limits": limits(of), "unproven": [] if of.found.complete else [{}]}
    return Drawing(sized(layered, for_page, title, height=340), named)


def unproven_mark(of: ReportData) -> list[Any]:
    """Says in the chart of which GPUs there may be better plans."""
    if of.found.complete:
        return []
    alt, words = extra("altair"), f"not proven: better plans on {enumerated(of.found.unproven)} may exist"
    text = data("unproven").mark_text(align="left", baseline="bottom", dx=6, dy=-6, color=FAINT, text=words)
    return [text.encode(x=alt.value(0), y=alt.value("height"))]


def axes() -> tuple[Any, Any]:
    """Days and dollars."""
    alt, scale = extra("altair"), {"zero": False, "padding": 12}
    x = alt.X("days:Q", title="days of the run", scale=alt.Scale(**scale))
    money = alt.Axis(format="$,.3~s", tickCount=6)
    return x, alt.Y("dollars:Q", title="dollars of the run", scale=alt.Scale(**scale), axis=money)


def chosen_marks(base: Any) -> list[Any]:
    """A ring around the chosen plan, and its name."""
    chosen = base.transform_filter("datum.chosen")
    ring = chosen.mark_point(size=260, strokeWidth=2.5, filled=False, color=INK)
    text = chosen.mark_text(align="left", dx=14, dy=-12, fontWeight="bold").encode(text="words:N")
    return [ring.encode(tooltip=tooltip(**HOVER)).properties(name="chosen"), text.properties(name="label")]


def limit_lines() -> list[Any]:
    """Dashed lines at deadline and budget, named."""
    alt = extra("altair")
    late = data("limits").transform_filter("isValid(datum.days)")
    dear = data("limits").transform_filter("isValid(datum.dollars)")
    dashed: dict[str, Any] = {"strokeDash": [6, 4], "color": FAINT}
    above = late.mark_text(align="right", dx=-5, color=FAINT, baseline="top")
    beside = dear.mark_text(align="left", dy=-7, color=FAINT)
    return [
        late.mark_rule(**dashed).encode(x="days:Q"),
        dear.mark_rule(**dashed).encode(y="dollars:Q"),
        above.encode(x="days:Q", y=alt.value(0), text="words:N"),
        beside.encode(y="dollars:Q", x=alt.value(2), text="words:N"),
    ]
