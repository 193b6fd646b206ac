"""`planner report`: a solution as a page with charts, its charts as files, a trace of one step."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.export import read
from planner.cli.failures import reported
from planner.cli.progress import progress
from planner.cli.solve import seconds_of
from planner.files import usable_folder, write_whole

if TYPE_CHECKING:
    from planner.report import ReportData


class Picture(StrEnum):
    """What charts are written as."""

    svg = "svg"
    png = "png"


@reported
def report(
    solution: Annotated[
        Path, typer.Argument(help="What `planner solve` wrote (JSON or YAML).", show_default=False)
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="The page (HTML).", show_default=False),
    ] = None,
    charts: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Also write each chart as a file here.", show_default=False),
    ] = None,
    format: Annotated[
        Picture, typer.Option("--format", "-f", help="What charts are written as.")
    ] = Picture.svg,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Also write a trace of one step, for Perfetto.", show_default=False
        ),
    ] = None,
    time_limit: Annotated[
        str,
        typer.Option(metavar="DURATION", help="Stop looking for alternatives after this long: 10 s, 5 min."),
    ] = "1.5 s",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")] = False,
) -> None:
    """Write a solution as one page that opens offline, with charts and sliders.

    Prints the path of each file. Needs `pip install 'planner[report]'`.

    Exit codes: 0 written, 2 invalid input.
    """
    from planner.errors import InvalidInput
    from planner.report.data import report_data

    if output is None and charts is None and trace is None:
        accepted = "--output FILE, --charts DIR or --trace FILE"
        raise InvalidInput(file="planner report", found="nothing to write", accepted=accepted)
    limit, answer, drawing = seconds_of(time_limit), read(solution), output is not None or charts is not None
    if drawing:
        need_libraries()
    with progress(quiet) as said:
        data = report_data(answer, said, limit, drawing, solution)
        if output is not None:
            from planner.report.page import page

            write_whole(output, page(data, said))
    if output is not None:
        typer.echo(str(output))
    if charts is not None:
        write_charts(data, usable_folder(charts), format)
    if trace is not None:
        write_trace(data, trace)


def need_libraries() -> None:
    """Raises `InvalidInput` before anything is computed where charts cannot be drawn."""
    from planner.report.extras import PACKAGES, extra

    for module in PACKAGES:
        extra(module)


def write_charts(data: ReportData, folder: Path, format: Picture) -> None:
    """Every chart that the solution has data for, as a file."""
    from planner.report.pictures import picture, specifications

    for name, spec in specifications(data).items():
        path = folder / f"{name}.{format.value}"
        write_whole(path, picture(spec, format.value))
        typer.echo(str(path))


def write_trace(data: ReportData, path: Path) -> None:
    """The trace of one step."""
    from planner.errors import InvalidInput
    from planner.report.trace import trace

    if data.ranks is None:
        found = "there is no plan" if data.plan is None else "the time of its steps is agreed, not modelled"
        raise InvalidInput(file="--trace", found=found, accepted="a solution with a plan of the cost model")
    write_whole(path, trace(data.ranks, str(data.solution.problem.get("name") or "plan")))
    typer.echo(str(path))
