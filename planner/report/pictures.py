"""Charts as SVG or PNG, drawn without a browser."""

from __future__ import annotations

from typing import Any, Literal

from planner.report.charts import drawn
from planner.report.data import ReportData
from planner.report.extras import extra

SCALE = 2.0
"""Pixels of a PNG for each of the drawing's."""


def specifications(data: ReportData) -> dict[str, dict[str, Any]]:
    """The charts that stand by themselves, with titles, legends and a background, by name."""
    return drawn(data, for_page=False)


def picture(spec: dict[str, Any], form: Literal["svg", "png"] | str) -> str | bytes:
    """One chart as a file's content."""
    convert, version = extra("vl_convert"), spec["$schema"].rsplit("/v", 1)[1].split(".json")[0]
    version = ".".join(version.split(".")[:2])
    if form == "svg":
        return convert.vegalite_to_svg(spec, version) + "\n"
    return convert.vegalite_to_png(spec, version, scale=SCALE)
