"""The pipeline timeline of one step: what each stage runs when, at its beginning and at its end."""

from __future__ import annotations

from typing import Any, NamedTuple

from planner.report.charts.theme import BLUE, GREEN, ORANGE, Drawing, colored, data, sized, tooltip
from planner.report.data import ReportData
from planner.report.extras import extra
from planner.report.timeline import Pass, ends

SHOWN = 1400
"""Passes that one drawing shows; a longer step is shown by its beginning and its end."""
LABELS = {"forward": "forward", "backward": "backward", "end": "gradients, optimizer, stragglers"}
COLORS = {"forward": BLUE, "backward": ORANGE, "end": GREEN}

HOVER = {
    "part": "pass",
    "stage": "stage",
    "chunk": "chunk",
    "batch": "micro-batch",
    "from": "starts at (s)",
    "to": "ends at (s)",
}
"""Fields that hovering shows, by title."""
PALER = 0.6
"""How much of its colour the last chunk's pass has lost."""


class Window(NamedTuple):
    """A part of a step."""

    passes: list[Pass]
    start: float
    end: float
    whole: bool


def windows(passes: tuple[Pass, ...]) -> tuple[Window, Window | None]:
    """The beginning and the end of a step, or the whole of it."""
    total = ends(list(passes))
    if len(passes) <= SHOWN:
        return Window(list(passes), 0.0, total, True), None
    until = sorted(each.start for each in passes)[SHOWN - 1]
    since = sorted((each.end for each in passes), reverse=True)[SHOWN - 1]
    first = [each for each in passes if each.start < until]
    last = [each for each in passes if each.end > since]
    return Window(first, 0.0, until, False), Window(last, since, total, False)


def tail(of: ReportData) -> float:
    """Seconds between the end of the pipeline and the end of the step."""
    return sum(of.ranks.tail.values()) if of.ranks else 0.0


def beginning(of: ReportData, for_page: bool) -> Drawing | None:
    """The whole timeline, or how it begins."""
    if not of.passes:
        return None
    window = windows(of.passes)[0]
    title = "One step on the pipeline" if window.whole else "How a step begins on the pipeline"
    return _drawn(of, window, for_page, title, last=window.whole)


def end(of: ReportData, for_page: bool) -> Drawing | None:
    """How it ends, where the whole does not fit one drawing."""
    if not of.passes:
        return None
    window = windows(of.passes)[1]
    return None if window is None else _drawn(of, window, for_page, "How a step ends on the pipeline", True)


def _drawn(of: ReportData, window: Window, for_page: bool, title: str, last: bool) -> Drawing:
    assert of.ranks is not None
    alt, names = extra("altair"), of.ranks.names
    over = window.end + (tail(of) if last else 0.0)
    rows = _rows(window, names)
    if last:
        rows += [_row(name, "end", window.end, over) for name in names]
    seconds = alt.X(
        "from:Q",
        title="seconds since the step began",
        scale=alt.Scale(domain=[window.start, over], nice=False),
        axis=alt.Axis(grid=False),
    )
    kinds = LABELS if last else ("forward", "backward")
    bars = (
        data("rows")
        .mark_bar(height=alt.RelativeBandSize(0.86))
        .encode(
            y=alt.Y("stage:O", sort=list(names), title="stage", scale=alt.Scale(padding=0)),
            x=seconds,
            x2="to:Q",
            color=colored("part", {LABELS[kind]: COLORS[kind] for kind in kinds}, for_page),
            opacity=alt.Opacity("shade:Q", scale=alt.Scale(domain=[0, 1], range=[0, 1]), legend=None),
            tooltip=tooltip(**HOVER),
        )
    )
    return Drawing(sized(bars, for_page, title, height=max(60, min(24 * len(names), 420))), {"rows": rows})


def _rows(window: Window, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """One row a pass; later chunks are paler."""
    last = max(each.chunk for each in window.passes)
    return [
        _row(
            names[each.rank],
            each.kind,
            max(each.start, window.start),
            min(each.end, window.end),
            shade=round(1 - PALER * each.chunk / max(last, 1), 3),
            batch=each.microbatch,
            chunk=each.chunk,
        )
        for each in window.passes
    ]


def _row(stage: str, kind: str, start: float, end: float, shade: float = 1.0, **more: int) -> dict[str, Any]:
    times = {"from": round(start, 6), "to": round(end, 6)}
    return {"stage": stage, "part": LABELS[kind], "shade": shade, **times, **more}
