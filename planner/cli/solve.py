"""`planner solve`: the best plan for a problem, with proof."""

from __future__ import annotations

from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.failures import reported
from planner.cli.output import Format, print_table, usable_folder, write_whole
from planner.cli.progress import progress

if TYPE_CHECKING:
    from planner.solution import Solution

INFEASIBLE = 3

Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", "-s", metavar="KEY.PATH=VALUE", help="Change a value of the problem; lists by index."
    ),
]
ProblemFile = Annotated[Path, typer.Argument(help="Problem file (YAML).", show_default=False)]
TimeLimit = Annotated[
    str | None, typer.Option(metavar="DURATION", help="Stop searching after this long: 60 s, 5 min.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]


@reported
def solve(
    problem: ProblemFile,
    format: Annotated[Format, typer.Option("--format", "-f", help="What to print.")] = Format.table,
    set: Settings = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="Also write solution.json and .yaml here."),
    ] = None,
    time_limit: TimeLimit = None,
    explore: Annotated[
        bool,
        typer.Option(
            "--explore",
            help="Also solve for other limits, prices, hardware: `planner report` then shows them at once.",
        ),
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Find the cheapest (or fastest) plan within the limits, and prove it.

    Exit codes: 0 solved, 2 invalid input, 3 proved infeasible, 4 time limit without a plan.
    """
    from planner.overrides import parse_setting
    from planner.problem import load_problem

    limit = None if time_limit is None else seconds_of(time_limit)
    job = load_problem(problem, [parse_setting(text) for text in set or ()])
    folder = None if output is None else usable_folder(output)
    from planner.solve import solve as find

    limit = job.time_limit if limit is None else limit
    started = monotonic()
    with progress(quiet) as report:
        solution = find(job, progress=report, time_limit=limit)
        if explore:
            from planner.report.data import explore as explored

            left = None if limit is None else max(limit - (monotonic() - started), 0.0)
            solution = explored(solution, report, left)
    show(solution, format)
    if folder is not None:
        write_whole(folder / "solution.json", solution.to_json())
        write_whole(folder / "solution.yaml", solution.to_yaml())
    if solution.status == "infeasible":
        raise typer.Exit(INFEASIBLE)


def show(solution: Solution, format: Format) -> None:
    """The solution on stdout."""
    if format is Format.json:
        typer.echo(solution.to_json(), nl=False)
    elif format is Format.yaml:
        typer.echo(solution.to_yaml(), nl=False)
    else:
        from planner.cli.table import solution_table

        print_table(solution_table(solution))


def seconds_of(text: str) -> float:
    """A duration; a bare number is seconds here."""
    from planner import units
    from planner.errors import Refused

    try:
        return units.duration(f"{text} s" if text.replace(".", "", 1).isdecimal() else text)
    except Refused as refused:
        raise refused.of("--time-limit") from None
