"""A tornado: how far the answer moves when one quantity is 10 % other."""

from __future__ import annotations

from typing import Any

from planner.report.charts.theme import BLUE, FAINT, ORANGE, Drawing, colored, data, sized, tooltip
from planner.report.data import ReportData
from planner.report.extras import extra
from planner.solution import End, Swing

ROW = 30
LOW, HIGH = "10 % less", "10 % more"
HOVER = {"name": "quantity", "to": "is", "days": "days", "dollars": "cost", "plan": "plan", "how": "how"}
"""Fields that hovering shows, by title."""


def measured(of: ReportData) -> tuple[str, str]:
    """What bars measure, and its title: what the objective asks first."""
    if of.instance.objective[0][0] == "time":
        return "days", "days of the run"
    return "dollars", "dollars of the run"


def row(swing: Swing, side: str, end: End, usual: float, field: str) -> dict[str, Any]:
    """One end of a bar; where nothing fits there is only a word."""
    value = getattr(end, field)
    return {
        "name": swing.name,
        "side": side,
        "to": end.to,
        "usual": usual,
        "value": value,
        "plan": end.plan,
        "days": "none" if end.days is None else f"{end.days:.1f}",
        "dollars": "none" if end.dollars is None else f"${end.dollars:,.0f}",
        "how": swing.how,
    }


def rows_of(of: ReportData, field: str, usual: float) -> list[dict[str, Any]]:
    """Both ends of every quantity that moves what is measured, widest first."""
    rows = [
        row(swing, side, end, usual, field)
        for swing in of.swings
        for side, end in ((LOW, swing.low), (HIGH, swing.high))
    ]
    moved = {each["name"] for each in rows if each["value"] != usual}
    return [each for each in rows if each["name"] in moved]


def chart(of: ReportData, for_page: bool) -> Drawing | None:
    """Bars from the answer as it is to the answer at either end, widest first."""
    if of.plan is None:
        return None
    alt, (field, title) = extra("altair"), measured(of)
    usual = getattr(of.plan.estimate, field)
    rows = rows_of(of, field, usual)
    if not rows:
        return None
    order = list(dict.fromkeys(each["name"] for each in rows))
    y = alt.Y("name:N", sort=order, title=None, axis=alt.Axis(grid=False, ticks=False, domain=False))
    axis = alt.Axis(tickCount=6, **({"format": "$,.3~s"} if field == "dollars" else {}))
    bars = (
        data("rows")
        .mark_bar(height=alt.RelativeBandSize(0.62), minBandSize=2)
        .encode(
            y=y,
            x=alt.X("usual:Q", title=title, scale=alt.Scale(zero=False), axis=axis),
            x2="value:Q",
            color=colored("side", {LOW: BLUE, HIGH: ORANGE}, for_page),
            tooltip=tooltip(**HOVER),
        )
    )
    text = data("none").mark_text(align="left", dx=6, color=FAINT)
    text = text.encode(y=y, x="usual:Q", text="words:N", tooltip=tooltip(**HOVER))
    layers = alt.layer(bars, data("usual").mark_rule(color=FAINT).encode(x="usual:Q"), text)
    datasets = {
        "rows": [each for each in rows if each["value"] is not None],
        "usual": [{"usual": usual}],
        "none": none_words([each for each in rows if each["value"] is None]),
    }
    title = "What 10 % less or more would change"
    return Drawing(sized(layers, for_page, title, ROW * len(order)), datasets)


def none_words(none: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One word a quantity of which an end has no plan."""
    sides: dict[str, list[dict[str, Any]]] = {}
    for each in none:
        sides.setdefault(each["name"], []).append(each)
    return [
        of[0] | {"words": f"no plan with {' or '.join(each['side'] for each in of)}"} for of in sides.values()
    ]
