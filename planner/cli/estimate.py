"""`planner estimate`: step time, MFU and memory of runs and launch files, what is wrong, what is better."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from planner.cli.failures import reported
from planner.cli.output import TableFormat, print_json, print_table
from planner.cli.progress import progress

if TYPE_CHECKING:
    from rich.table import Table

    from planner.importers import Given
    from planner.importers.report import Search

COLUMNS = ("run", "step", "80 %", "tokens/s/GPU", "TFLOP/s", "MFU", "memory", "evidence")
SEARCH_SECONDS = 30.0
"""How long a better plan is looked for unless `--time-limit` says otherwise."""
NOTHING_ESTIMATED = 2


@reported
def estimate(
    file: Annotated[
        Path,
        typer.Argument(
            help="Runs file (YAML), script that starts training, DeepSpeed JSON, torchtitan TOML or recipe.",
            show_default=False,
        ),
    ],
    format: Annotated[TableFormat, typer.Option("--format", "-f", help="What to print.")] = TableFormat.table,
    gpu: Annotated[
        str | None, typer.Option(metavar="NAME", help="GPU type, which launch files do not say.")
    ] = None,
    gpus: Annotated[
        int | None, typer.Option(min=1, help="Number of GPUs, where the file does not say.")
    ] = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="Number of nodes, instead of --gpus.")] = None,
    model: Annotated[
        str | None, typer.Option(metavar="CARD|config.json", help="The model, where the file does not say.")
    ] = None,
    set: Annotated[
        list[str] | None,
        typer.Option(
            "--set", "-s", metavar="KEY=VALUE", help="A key of the run (as in a runs file) instead."
        ),
    ] = None,
    var: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A variable that the script takes from its environment."),
    ] = None,
    better: Annotated[
        bool | None,
        typer.Option(
            "--better/--no-better",
            help="Look for a better plan on the same GPUs. [default: for launch files]",
            show_default=False,
        ),
    ] = None,
    time_limit: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Stop looking after this long. [default: 30 s]")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")] = False,
) -> None:
    """Predict what is run today: step time, memory, what is wrong with it, and a better plan.

    Nothing is searched for runs files unless --better is given. A run that cannot be used is reported in
    its place. Exit codes: 0 estimated, 2 invalid file or nothing in it that can be estimated.
    """
    from planner.importers import is_launch_file

    facts = given(gpu, gpus, nodes, model, set, var)
    if not is_launch_file(file) and not better:
        no_facts(file, facts)
        ended(_runs(file, format))
        return
    with progress(quiet) as say:
        search = None if better is False else searching(say, time_limit)
        results = launch_results(file, facts, search)
    if format is TableFormat.json:
        print_json(results)
    else:
        from planner.cli.launches import launches_table

        print_table(launches_table(results))
    ended(results)


def ended(results: list[dict[str, Any]]) -> None:
    """Exits as the results say."""
    if all("error" in result for result in results):
        raise typer.Exit(NOTHING_ESTIMATED)


def given(
    gpu: str | None,
    gpus: int | None,
    nodes: int | None,
    model: str | None,
    settings: list[str] | None,
    variables: list[str] | None,
) -> Given:
    """The options as facts beside the file. Raises InvalidInput."""
    from planner.errors import InvalidInput
    from planner.importers import Given
    from planner.overrides import parse_setting

    if gpus is not None and nodes is not None:
        raise InvalidInput(file="--gpus and --nodes", found="both are given", accepted="one of them")
    known: dict[str, str] = {}
    for text in variables or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            accepted = "NAME=VALUE, as in the environment of the script"
            raise InvalidInput(file=f"--var {text}", found="is not an assignment", accepted=accepted)
        known[name] = value
    return Given(gpu, gpus, nodes, model, tuple(parse_setting(text) for text in settings or ()), known)


def no_facts(file: Path, facts: Given) -> None:
    """A runs file says everything itself. Raises InvalidInput where options say it too."""
    from planner.errors import InvalidInput

    options = {
        "--gpu": facts.gpu,
        "--gpus": facts.gpus,
        "--nodes": facts.nodes,
        "--model": facts.model,
        "-s": facts.settings,
        "--var": facts.variables,
    }
    used = [name for name, value in options.items() if value]
    if used:
        accepted = "these options with a launch file; a runs file says it in its keys"
        raise InvalidInput(file=f"{', '.join(used)} with {file}", found="a runs file", accepted=accepted)


def searching(say: Any, time_limit: str | None) -> Search:
    """A search for a better plan within the time limit."""
    from planner.cli.solve import seconds_of
    from planner.importers.better import better

    limit = SEARCH_SECONDS if time_limit is None else seconds_of(time_limit)
    return lambda described: better(described, limit, say)


def launch_results(file: Path, facts: Given, search: Search | None) -> list[dict[str, Any]]:
    """One object a launch, or a run of a runs file."""
    from planner.importers import is_launch_file, read_launches
    from planner.importers.report import report
    from planner.importers.runs_file import read_as_launches

    if is_launch_file(file):
        launches = read_launches(file, facts)
    else:
        no_facts(file, facts)
        launches = read_as_launches(file)
    return [report(each, search, file.parent) for each in launches]


def _runs(file: Path, format: TableFormat) -> list[dict[str, Any]]:
    from planner.estimates import reported as estimates
    from planner.runs import read_runs

    results = estimates(read_runs(file))
    if format is TableFormat.json:
        print_json(results)
        return results
    print_table(_table(results))
    for result in results:
        for warning in result.get("warnings", ()):
            typer.echo(f"{result['id']}: {warning}", err=True)
    return results


def _table(results: list[dict[str, Any]]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in COLUMNS:
        table.add_column(name, justify="left" if name in ("run", "evidence") else "right")
    for result in results:
        table.add_row(*_row(result))
    return table


def _row(result: dict[str, Any]) -> list[str]:
    if "error" in result:
        return [result["id"], f"refused: {result['error']}"]
    low, high = result["interval_80"]
    memory = f"{result['memory_gib']['total']:.1f} GiB" + ("" if result["fits"] else " does not fit")
    return [
        result["id"],
        f"{result['step_time_s']:.4g} s",
        f"{low:.4g}-{high:.4g} s",
        f"{result['tokens_per_s_per_gpu']:,.0f}",
        f"{result['model_tflops_per_gpu']:.0f}",
        f"{result['mfu']:.1%}",
        memory,
        result["evidence"],
    ]
