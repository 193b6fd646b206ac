"""`planner frontier`: every plan that no other beats in days and dollars, and in a third axis if asked."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from planner.cli.failures import reported
from planner.cli.output import (
    Format,
    console,
    print_table,
    tell_what_is_left_out,
    usable_folder,
    write_whole,
)
from planner.cli.progress import progress
from planner.cli.solve import INFEASIBLE, ProblemFile, Quiet, Settings, TimeLimit, seconds_of
from planner.english import counted

if TYPE_CHECKING:
    from rich.console import RenderableType

    from planner.frontier import Frontier
    from planner.solution import Plan


class Axis(StrEnum):
    """What may be weighed beside days and dollars."""

    gpus = "gpus"
    energy = "energy"
    carbon = "carbon"
    headroom = "headroom"


COLUMNS = {
    "mwh": ("MWh", 0),
    "tonnes_co2": ("t CO2", 1),
    "memory_percent": ("free %", 0),
}
"""Of axes that have no column in every table: its title, and the decimals of a value."""


@reported
def frontier(
    problem: ProblemFile,
    format: Annotated[Format, typer.Option("--format", "-f", help="What to print.")] = Format.table,
    set: Settings = None,
    axis: Annotated[
        Axis | None,
        typer.Option(help="A third axis: also plans that take less of this, or leave more memory free."),
    ] = None,
    step: Annotated[
        int | None,
        typer.Option(min=1, max=50, help="Percentage points in which --axis headroom is told apart [5]."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="Also write frontier.json and .yaml here."),
    ] = None,
    time_limit: TimeLimit = None,
    quiet: Quiet = False,
) -> None:
    """Every plan that no other beats in days and dollars (and --axis), with proof, and the knee of the curve.

    Exit codes: 0 found, 2 invalid input, 3 proved infeasible, 4 time limit without a plan.
    """
    from planner.errors import InvalidInput
    from planner.overrides import parse_setting
    from planner.problem import load_problem

    limit = None if time_limit is None else seconds_of(time_limit)
    job = load_problem(problem, [parse_setting(text) for text in set or ()])
    if axis is not None:
        tell_what_is_left_out(job)
    folder = None if output is None else usable_folder(output)
    if step is not None and axis is not Axis.headroom:
        accepted = "--axis headroom with it: it says how finely headroom is told apart"
        raise InvalidInput(file="--step", found=f"{step} without --axis headroom", accepted=accepted)
    from planner.frontier import STEP
    from planner.frontier import frontier as find

    with progress(quiet) as report:
        third: Any = None if axis is None else axis.value
        found = find(job, report, job.time_limit if limit is None else limit, third, step or STEP)
    if format is Format.table:
        print_table(frontier_table(found))
    else:
        typer.echo(found.to_json() if format is Format.json else found.to_yaml(), nl=False)
    if folder is not None:
        write_whole(folder / "frontier.json", found.to_json())
        write_whole(folder / "frontier.yaml", found.to_yaml())
    if found.status == "infeasible":
        raise typer.Exit(INFEASIBLE)


def beaten_by_none(number: int) -> str:
    """1 plan that no other beats."""
    return f"{counted(number, 'plan')} that no other beats"


def frontier_table(found: Frontier) -> RenderableType:
    """The curve, the plans on it and what proves them."""
    from rich.console import Group
    from rich.text import Text

    from planner.cli.grid import sentences
    from planner.cli.table import conflict_facts

    name = str(found.problem.get("name") or "frontier")
    if not found.points:
        assert found.conflict is not None
        told = Text(f"{name}: no plan is within the limits", style="bold")
        return Group(told, conflict_facts(found.conflict), sentences(found.notes))
    proof = found.proof
    valid = "uncounted" if proof.valid is None else f"{proof.valid:,} valid"
    words = (
        "no other plan belongs here" if found.status == "optimal" else "the time ran out: others may belong"
    )
    parts: list[Any] = [Text(f"{name}: {beaten_by_none(len(found.points))}, {words}", style="bold")]
    if len(found.points) > 1:
        parts += [
            Text(),
            Text(curve([of[:2] for of in found.values], found.knee)),
        ]
    parts += [Text(), plan_rows(found)]
    if found.knee_text:
        parts.append(Text(found.knee_text))
    parts.append(
        Text(f"Proof: {valid} candidates, {proof.solved:,} stage assignments solved, {proof.seconds:.1f} s.")
    )
    return Group(*parts)


def plan_rows(found: Frontier) -> RenderableType:
    """One line a plan."""
    from rich.table import Table

    from planner.knee import number

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("")
    third = COLUMNS.get(found.axes[-1])
    for title in ("days", "dollars", "GPUs", "MFU", "GiB", *([] if third is None else [third[0]])):
        table.add_column(title, justify="right")
    table.add_column("plan", overflow="fold")
    for place, point in enumerate(found.points):
        d, e = point.decisions, point.estimate
        table.add_row(
            "*" if place == found.knee else "",
            f"{e.days:.1f}",
            f"${e.dollars:,.0f}",
            d.machines.replace(" x ", " "),
            f"{100 * e.mfu:.1f} %",
            f"{e.memory_gib.total:.1f}",
            *([] if third is None else [number(shown_value(found, place), third[1])]),
            layout(point),
        )
    return table


def shown_value(found: Frontier, place: int) -> float:
    """What a point takes of the third axis; of memory, what it leaves."""
    value = found.values[place][-1]
    return 100 - value if found.axes[-1] == "memory_percent" else value


def layout(point: Plan) -> str:
    """A plan's layout on one line."""
    d = point.decisions
    sizes = [(name.upper(), getattr(d, name)) for name in ("tp", "cp", "pp", "vpp", "dp", "ep", "etp")]
    words = [f"{name}{size}" for name, size in sizes if size > 1]
    words += [f"MB{d.micro_batch}", f"GA{d.num_microbatches}", f"ZeRO{d.zero}"]
    words += ["within a node"] if d.zero_scope == "node" else []
    words += ["EP overlap"] if d.ep_overlap else []
    return " ".join(words + ([] if d.recompute == "none" else [f"recompute {d.recompute}"]))


def curve(points: Sequence[tuple[float, ...]], knee: int | None) -> str:
    """The plans in a grid of characters: days to the right, dollars upwards.

    `*` the knee, `o` what no other plan beats in days and dollars, `.` what is there for the third axis.
    """
    wide, high = max(min(console().width, 100) - 14, 20), 10
    days, dollars = ([point[axis] for point in points] for axis in (0, 1))
    grid = [[" "] * wide for _ in range(high)]

    def place(value: float, values: list[float], cells: int) -> int:
        spread = max(values) - min(values)
        return 0 if spread == 0 else round((value - min(values)) / spread * (cells - 1))

    for index, (day, cost) in enumerate(points):
        row = high - 1 - place(cost, dollars, high)
        column = place(day, days, wide)
        beaten = any(d <= day and c <= cost and (d, c) != (day, cost) for d, c in points)
        mark = "*" if index == knee else "." if beaten else "o"
        grid[row][column] = max(mark, grid[row][column], key=" .o*".index)
    marks = {0: f"${max(dollars):,.0f}", high - 1: f"${min(dollars):,.0f}"}
    lines = [f"{marks.get(i, ''):>11} |{''.join(row).rstrip()}" for i, row in enumerate(grid)]
    first, last = f"{min(days):.1f}", f"{max(days):.1f} days"
    axis = f"{'':>11} +{'-' * wide}"
    return "\n".join([*lines, axis, f"{'':>13}{first}{last:>{max(wide - len(first), 1)}}"])
