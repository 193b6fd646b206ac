"""The report as one HTML file that needs nothing else: text, charts, their library, data, sliders."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from html import escape
from importlib.resources import files
from typing import Any

from planner.report.charts import drawn
from planner.report.data import ReportData
from planner.report.library import library
from planner.report.sections import charted, choice, head, told


def page(data: ReportData, progress: Callable[[str], None] = lambda text: None) -> str:
    """The page. Raises `InvalidInput` where the drawing libraries are not installed."""
    charts = drawn(data, for_page=True)
    parts = {
        "title": escape(f"{head.name(data)}: training plan"),
        "css": _asset("page.css"),
        "body": body(data, set(charts)),
        "data": as_script(embedded(data)),
        "charts": as_script(charts),
        "library": library(progress),
        "js": _asset("page.js"),
    }
    return filled(_asset("page.html"), parts)


def body(data: ReportData, charts: set[str]) -> str:
    """All sections for which there is anything to say."""
    made: Iterable[str] = (
        head.head(data),
        choice.what_if(data, charts),
        charted.step(data, charts),
        charted.memory(data, charts),
        charted.timeline(data, charts),
        charted.sensitivity(data, charts),
        told.reasons(data),
        told.together(data),
        told.others(data),
        told.proof(data),
        told.assumptions(data),
    )
    return "\n".join(part for part in made if part)


def embedded(data: ReportData) -> dict[str, Any]:
    """What the sliders choose from, and the solution as its file has it."""
    instance = data.instance
    prices = {pool.entry: pool.price for pool in instance.pools}
    return {
        "solution": data.solution.model_dump(mode="json"),
        "rule": {
            "objective": [list(term) for term in instance.objective],
            "lexicographic": instance.lexicographic,
            "prices": [prices.get(entry, 0.0) for entry in range(max(prices, default=-1) + 1)],
        },
        "complete": data.found.complete and instance.limits.chance is None,
        "reported": data.chosen,
        "candidates": [
            {
                "pool": one.entry,
                "gpus": one.plan.decisions.num_gpus,
                "seconds": one.seconds,
                "rent": one.rent,
                "committed": one.committed,
                "margin": one.margin,
                "draw": one.draw,
                "emission": one.emission,
                "exact": one.exact,
                **choice.candidate_words(one),
            }
            for one in data.found.candidates
        ],
    }


def as_script(value: Any) -> str:
    """JSON that nothing in it can end the script element of."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def filled(template: str, parts: dict[str, str]) -> str:
    """The template with its places filled, each once; what is filled in is not looked at again."""
    out, rest = [], template
    for name, text in parts.items():
        before, found, rest = rest.partition(f"@{name}@")
        assert found, f"the template has no place for {name}"
        out += [before, text]
    return "".join([*out, rest])


def _asset(name: str) -> str:
    return files("planner.report").joinpath(name).read_text(encoding="utf-8")
