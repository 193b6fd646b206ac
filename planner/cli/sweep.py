"""`planner sweep`: many what-ifs of one problem, a JSON line each."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from planner.cli.failures import UNEXPECTED, reported
from planner.cli.output import print_json, print_table
from planner.cli.signals import INTERRUPTED, TERMINATED, Terminated, terminated
from planner.cli.solve import Settings
from planner.english import counted

if TYPE_CHECKING:
    from rich.console import RenderableType

    from planner.sweep.plan import Base
    from planner.sweep.points import Point
    from planner.sweep.run import Done
    from planner.sweep.summary import Summary


class SweepFormat(StrEnum):
    """How the summary is printed."""

    table = "table"
    json = "json"
    none = "none"


@reported
def sweep(
    problem: Annotated[Path, typer.Argument(help="Problem file (YAML).", show_default=False)],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="DIR", help="Folder of the lines; a sweep that stopped goes on."
        ),
    ],
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY.PATH=VALUES",
            help="Values of a key: a,b,c or LO:HI:NUM, evenly spaced. Several keys make a grid.",
        ),
    ] = None,
    paired: Annotated[
        bool, typer.Option("--paired", help="First values together, second values together, ...: no grid.")
    ] = False,
    scenarios: Annotated[bool, typer.Option("--scenarios", help="Every scenario of the problem.")] = False,
    scenario: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this scenario; may be repeated.")
    ] = None,
    set: Settings = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", "-j", min=1, metavar="N", help="Processes; all cores unless given."),
    ] = None,
    executor: Annotated[
        str | None,
        typer.Option(metavar="dask://HOST:PORT", help="Run on the Dask cluster of this scheduler."),
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option(metavar="I/N", help="Only the I-th of N parts (from 1), in a file of its own."),
    ] = None,
    format: Annotated[SweepFormat, typer.Option("--format", "-f", help="The summary on stdout.")] = (
        SweepFormat.table
    ),
    parquet: Annotated[
        bool, typer.Option("--parquet", help="Also write results.parquet (needs planner[data]).")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")] = False,
) -> None:
    """Solve many what-ifs: a grid over keys of the problem, its scenarios, or both.

    Each answer is a line of DIR/results*.jsonl as soon as it is there; run again, the sweep goes on where it
    stopped. Exit codes: 0 all answered (feasible or not), 1 some failed, 2 invalid input, 130 stopped (by
    SIGTERM: 143).
    """
    from planner.sweep.executors import cores
    from planner.sweep.parquet import polars, write_parquet
    from planner.sweep.run import Work
    from planner.sweep.run import sweep as run
    from planner.sweep.store import Store

    if parquet:
        polars()
    base, points = asked(problem, set or [], vary or [], paired, scenarios, scenario or [])
    part = None if shard is None else part_of(shard)
    work = Work(base, tuple(points), part, jobs or cores(), executor)
    try:
        with terminated(), bar(quiet) as told:
            done = run(work, Store(output, part), told)
    except KeyboardInterrupt as stop:
        typer.echo(f"planner: stopped; the same command goes on from what is in {output}", err=True)
        raise typer.Exit(TERMINATED if isinstance(stop, Terminated) else INTERRUPTED) from None
    if parquet:
        write_parquet(output, done.lines)
    show(done, len(points), format)
    if done.by_status.get("failed"):
        raise typer.Exit(UNEXPECTED)


def asked(
    problem: Path, set: list[str], vary: list[str], paired: bool, scenarios: bool, names: list[str]
) -> tuple[Base, list[Point]]:
    """The problem and its what-ifs. Raises `InvalidInput`."""
    from planner.errors import InvalidInput
    from planner.overrides import apply, parse_setting
    from planner.problem import load_problem
    from planner.sweep.plan import Base, whole_where_asked
    from planner.sweep.points import ACCEPTED, chosen_scenarios, parse_vary, points
    from planner.yaml_file import read_mapping

    if not vary and not scenarios and not names:
        raise InvalidInput(
            file="sweep", found="nothing varies", accepted=f"--vary {ACCEPTED}; or --scenarios"
        )
    settings = [parse_setting(text) for text in set]
    plain = load_problem(problem, settings)
    known = plain.scenarios
    data = apply({"name": problem.stem} | read_mapping(problem), settings) | {"scenarios": {}}
    base = Base(data, str(problem), problem.parent.resolve())
    varied = [whole_where_asked(base, parse_vary(text)) for text in vary]
    chosen = chosen_scenarios(known, names) if scenarios or names else None
    return base, points(varied, chosen, paired)


def part_of(text: str) -> tuple[int, int]:
    """`3/16`. Raises `InvalidInput`."""
    from planner.errors import InvalidInput

    index, slash, number = text.partition("/")
    if slash and index.isdecimal() and number.isdecimal() and 1 <= int(index) <= int(number):
        return int(index), int(number)
    raise InvalidInput(file=f"--shard {text}", found="is no part", accepted="I/N with I from 1 to N: 3/16")


@contextmanager
def bar(quiet: bool) -> Iterator[Callable[[int, int], Callable[[int], None]]]:
    """A bar on stderr with rate and remaining time, where stderr is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda total, done: lambda more: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:

        def told(total: int, done: int) -> Callable[[int], None]:
            task = shown.add_task("", total=total, completed=done, rate="")

            def more(number: int) -> None:
                speed = shown.tasks[0].speed
                shown.update(task, advance=number, rate=f"{speed:,.1f}/s" if speed else "")

            return more

        yield told


def show(done: Done, total: int, format: SweepFormat) -> None:
    """The summary on stdout."""
    from dataclasses import asdict

    from planner.sweep.summary import summary

    found = summary(done.lines)
    if format is SweepFormat.json:
        print_json({"what_ifs": total, "answered": len(done.lines)} | asdict(found))
    elif format is SweepFormat.table:
        print_table(summary_table(found, len(done.lines), total))


def summary_table(found: Summary, answered: int, total: int) -> RenderableType:
    """How many of each status, the cheapest plans, the fastest one, and what was wrong with others."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    status = ", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in found.by_status.items())
    parts: list[RenderableType] = [
        Text(f"{answered:,} of {counted(total, 'what-if')}: {status or 'none'}", style="bold")
    ]
    if found.cheapest:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for heading in ("first what-if", "GPUs", "layout"):
            table.add_column(heading, overflow="fold")
        for heading in ("days", "cost", "MFU", "what-ifs"):
            table.add_column(heading, justify="right", no_wrap=True)
        for each in found.cheapest:
            table.add_row(*cells(each.line), f"{each.what_ifs:,}")
        parts += [Text(), Text("Cheapest", style="bold cyan"), table]
    if found.fastest is not None:
        words = what_if(found.fastest.line), *cells(found.fastest.line)[3:5]
        parts += [Text(), Text("Fastest", style="bold cyan"), Text("{}: {} days, {}".format(*words))]
    if found.faults:
        faults = [Text(f"{number:,} x {' '.join(text.split())}") for text, number in found.faults]
        parts += [Text(), Text("Without an answer", style="bold cyan"), *faults]
    return Group(*parts)


def what_if(line: dict[str, Any]) -> str:
    """What a line changes, in words."""
    changes = [f"{key}={value}" for key, value in line["overrides"].items()]
    return f"{line['scenario']}: {', '.join(changes)}" if line["scenario"] else ", ".join(changes)


def cells(line: dict[str, Any]) -> tuple[str, ...]:
    """A line in the words of the table."""
    from planner.cli.words import dollars, layout_words, share
    from planner.solution import Decisions

    decisions, estimate = Decisions.model_validate(line["decisions"]), line["estimate"]
    return (
        what_if(line),
        decisions.machines,
        layout_words(decisions),
        f"{estimate['days']:.1f}",
        dollars(estimate["dollars"]),
        share(estimate["mfu"]),
    )
