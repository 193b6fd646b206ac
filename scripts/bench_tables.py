"""The figures of `scripts/bench_search.py` as tables of `docs/search.md`."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from planner.files import write_whole

Figures = dict[str, Any]
BEGIN, END = "<!-- bench: begin (scripts/bench_search.py) -->\n", "<!-- bench: end -->"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "search.md"


def tables(found: dict[str, dict[str, Figures]]) -> str:
    """The figures as Markdown."""
    of_problems = {name: parts for name, parts in found.items() if "solve" in parts}
    growth = {name: parts["search"] for name, parts in found.items() if list(parts) == ["search"]}
    lines = [
        "| problem | lattice | valid candidates | search, CPU-s (clock) | with reasons, CPU-s (clock) "
        "| stage assignments | peak MB, search | peak MB, with reasons |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, parts in of_problems.items():
        of, whole = parts["search"], parts["solve"]
        lines.append(
            f"| {name} | {of['lattice']:.2g} | {of['valid']:,} | {seconds(of)} | {seconds(whole)} "
            f"| {of['stage_assignments']} | {of['peak_mb']:.0f} | {whole['peak_mb']:.0f} |"
        )
    lines += ["", *(frontier_line(name, parts) for name, parts in of_problems.items() if "frontier" in parts)]
    lines += [
        "",
        "| two pools at once | pairs of node counts | layouts written down | search, CPU-s (clock) "
        "| stage assignments | peak MB |",
        "|---|---|---|---|---|---|",
        *(pairs_line(name, parts["pairs"]) for name, parts in found.items() if "pairs" in parts),
    ]
    lines += [
        "",
        "| growth | valid candidates | search, CPU-s (clock) | pipelines, layouts, candidates written down "
        "| one pass over these, ms | one pass over all valid ones, s | their columns, MB | peak MB (before) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, of in growth.items():
        written = ", ".join(f"{of['written'][name]:,}" for name in ("pipelines", "layouts", "candidates"))
        lines.append(
            f"| {name} | {of['valid']:.1e} | {seconds(of)} | {written} | {1e3 * of['pass_seconds']:.1f} "
            f"| {of['all_seconds']:,.1f} | {of['pass_mb']:.1f} | {of['peak_mb']:.0f} ({of['peak_mb_before']:.0f}) |"
        )
    return "\n".join(lines) + "\n"


def seconds(of: Figures) -> str:
    """CPU-seconds, and those by the clock."""
    return f"{of['cpu_seconds']:.2f} ({of['seconds']:.2f})"


def frontier_line(name: str, parts: dict[str, Figures]) -> str:
    """What the frontier takes beside one solve and one search."""
    of, solved, searched = parts["frontier"], parts["solve"], parts["search"]
    ratios = [of["cpu_seconds"] / each["cpu_seconds"] for each in (solved, searched)]
    return (
        f"The frontier of {name}, {of['points']} plans: {seconds(of)} s, {ratios[0]:.1f} times a solve with reasons and "
        f"{ratios[1]:.1f} times a search; {of['peak_mb']:.0f} MB."
    )


def pairs_line(name: str, of: Figures) -> str:
    """What the best plan on two pools takes."""
    return (
        f"| {name} | {of['node_pairs']:,} | {of['layouts']:,} | {seconds(of)} | {of['solved']} "
        f"| {of['peak_mb']:.0f} |"
    )


def machine() -> str:
    """Date, cores and processor."""
    model = "unknown processor"
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = names[0].split(":")[1].strip() if names else model
    load = os.getloadavg()[0]
    return f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores ({model}), load {load:.1f} from this and other work"


def write(text: str) -> None:
    """Replaces the block of measured figures on the page."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    write_whole(PAGE, before + BEGIN + "\n" + text + "\n" + END + rest.split(END, 1)[1])
