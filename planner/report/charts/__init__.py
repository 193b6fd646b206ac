"""The report's charts, a file each: data in, Vega-Lite out. Names are those of the files that are written."""

from __future__ import annotations

from typing import Any

from planner.report.charts import frontier, memory, schedule, sensitivity, time
from planner.report.charts.theme import themed
from planner.report.data import ReportData


def drawn(data: ReportData, for_page: bool) -> dict[str, dict[str, Any]]:
    """Vega-Lite specifications by name, those that the solution has data for.

    In the page they take the width of their column, and legends and colours of text are HTML's and CSS's.
    """
    makers = {
        "frontier": frontier.chart,
        "step-time": time.whole,
        "stage-time": time.by_stage,
        "stage-memory": memory.chart,
        "timeline": schedule.beginning,
        "timeline-end": schedule.end,
        "sensitivity": sensitivity.chart,
    }
    made = {name: make(data, for_page) for name, make in makers.items()}
    return {name: themed(chart, for_page) for name, chart in made.items() if chart is not None}
