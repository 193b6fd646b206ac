"""Colours, type and sizes that all charts share.

The hues are Okabe and Ito's, which people with any common colour blindness tell apart (Wong 2011, "Points of
view: color blindness", Nature Methods 8, 441); shades of one hue belong together.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from planner.report.extras import extra

BLUE, ORANGE, GREEN, PINK, SKY, RED, YELLOW, GREY = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#9A9A9A",
)  # fmt: skip
SERIES = (BLUE, ORANGE, GREEN, PINK, SKY, RED)
"""For things without an order, such as GPU types."""
PART_COLORS = {
    "gemm": BLUE,
    "attention": "#3D94C7",
    "elementwise": SKY,
    "head": "#9AD0EF",
    "host": "#C6E3F4",
    "recompute": PINK,
    "tp": RED,
    "cp": "#E5814A",
    "ep": ORANGE,
    "p2p": "#F3BF57",
    "data_parallel": YELLOW,
    "optimizer": GREEN,
    "fixed": "#6FC6AE",
    "bubble": GREY,
    "idle": GREY,
    "stragglers": "#C4C4C4",
    "assumed": BLUE,
}
"""Computing is blue, repeating it pink, communication red to yellow, the step's end green, waiting grey."""
MEMORY_COLORS = {
    "weights": BLUE,
    "gradients": SKY,
    "optimizer": GREEN,
    "activations": ORANGE,
    "buffers": RED,
    "overhead": GREY,
}
INK, FAINT, LINE = "#1b1f24", "#5b6470", "#d9dde2"
WIDTH, HEIGHT = 720, 300
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"


class Drawing(NamedTuple):
    """A chart and the rows of its named data, which join it once it is a specification."""

    chart: Any
    rows: dict[str, list[dict[str, Any]]]


def data(name: str) -> Any:
    """An Altair chart of named rows."""
    alt = extra("altair")

    return alt.Chart(alt.NamedData(name=name))


def sized(chart: Any, for_page: bool, title: str, height: int = HEIGHT) -> Any:
    """The chart at its size; with its title where nothing around it says what it shows."""
    if for_page:
        return chart.properties(width="container", height=height)
    return chart.properties(width=WIDTH, height=height, title=title)


def themed(drawing: Drawing, for_page: bool) -> dict[str, Any]:
    """A drawing as a specification; outside the page it brings its own background and colours of text."""
    config: dict[str, Any] = {
        "font": FONT,
        "view": {"stroke": None},
        "axis": {
            "labelFontSize": 12,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "labelColor": FAINT,
            "titleColor": FAINT,
            "gridColor": LINE,
            "domainColor": LINE,
            "tickColor": LINE,
            "labelLimit": 260,
        },
        "legend": {"labelFontSize": 12, "titleFontSize": 12, "labelColor": INK, "titleColor": FAINT},
        "title": {"anchor": "start", "fontSize": 14, "color": INK, "subtitleColor": FAINT, "offset": 12},
        "text": {"fontSize": 12, "color": INK},
        "background": "transparent" if for_page else "white",
        "padding": 2 if for_page else 16,
    }
    return drawing.chart.to_dict() | {"datasets": drawing.rows, "config": config}


def colored(field: str, colors: dict[str, str], for_page: bool) -> Any:
    """The colour channel of a field, in the order of its values.

    Its legend is below the chart; in the page it is HTML instead, which wraps on narrow screens.
    """
    alt = extra("altair")
    scale = alt.Scale(domain=list(colors), range=list(colors.values()))
    legend = None if for_page else alt.Legend(orient="bottom", columns=4, title=None)
    return alt.Color(f"{field}:N", scale=scale, legend=legend, title=None)


def tooltip(**titles: str) -> list[Any]:
    """What hovering shows: fields by their titles; numbers as they are formatted in their rows."""
    alt = extra("altair")
    return [alt.Tooltip(f"{field}:N", title=title) for field, title in titles.items()]
