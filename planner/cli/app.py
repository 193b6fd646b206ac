"""The application: its verbs and the options that come before them."""

from __future__ import annotations

from typing import Annotated

import typer

from planner import __version__
from planner.cli import (
    calibrate,
    candidates,
    catalogue,
    compare,
    estimate,
    explain,
    export,
    failures,
    frontier,
    model,
    new,
    report,
    schema,
    solve,
    sweep,
)

app = typer.Typer(
    name="planner",
    help="Plan LLM training: GPUs, parallelism, days and dollars, with proof.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"planner {__version__}")
        raise typer.Exit()


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an unexpected error.")
    ] = False,
) -> None:
    """Plan LLM training: GPUs, parallelism, days and dollars, with proof."""
    failures.show_traceback.set(debug)


app.command("solve")(solve.solve)
app.command("sweep")(sweep.sweep)
app.command("frontier")(frontier.frontier)
app.command("explain")(explain.explain)
app.command("compare")(compare.compare)
app.command("candidates")(candidates.candidates)
app.command("estimate")(estimate.estimate)
app.command("report")(report.report)
app.command("export")(export.export)
app.command("calibrate")(calibrate.calibrate)
app.command("model")(model.model)
app.command("new")(new.new)
app.command("catalogue")(catalogue.catalogue)
app.command("schema")(schema.schema)
