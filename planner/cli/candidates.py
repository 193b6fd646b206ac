"""`planner candidates`: every plan within the limits that has the plainest stage split."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from planner.cli.failures import reported
from planner.cli.output import print_table, tell_what_is_left_out
from planner.cli.solve import Settings

if TYPE_CHECKING:
    from rich.table import Table

    from planner.instance import Instance

BEST = 20
"""Rows of the table unless --limit says otherwise."""


class CandidatesFormat(StrEnum):
    """How candidates are printed."""

    jsonl = "jsonl"
    table = "table"


@reported
def candidates(
    problem: Annotated[Path, typer.Argument(help="Problem file (YAML).", show_default=False)],
    format: Annotated[
        CandidatesFormat,
        typer.Option("--format", "-f", help="All as JSON lines, or the best as a table."),
    ] = CandidatesFormat.jsonl,
    set: Settings = None,
    limit: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help=f"Lines, or rows of the table (then {BEST} unless given)."),
    ] = None,
) -> None:
    """List every candidate within the limits, with the plainest stage split: to check an optimum against.

    Exit codes: 0 listed (there may be none), 2 invalid input.
    """
    from planner.listing import best_records
    from planner.overrides import parse_setting
    from planner.problem import load_problem
    from planner.resolve import instance_of

    job = load_problem(problem, [parse_setting(text) for text in set or ()])
    tell_what_is_left_out(job)
    instance = instance_of(job)
    if format is CandidatesFormat.table:
        print_table(table_of(best_records(instance, limit or BEST)))
        return
    try:
        for text in lines(instance, limit):
            sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has seen enough (`| head`); nothing may be flushed into the closed pipe at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def lines(instance: Instance, limit: int | None) -> Iterator[str]:
    """JSON lines, at most `limit` of them, in the order in which they are found."""
    import numpy as np

    from planner.listing import listed, records

    left = limit
    for block in listed(instance):
        some = block if left is None else block.take(np.arange(min(left, len(block))))
        for record in records(instance, some):
            yield json.dumps(record) + "\n"
        if left is not None:
            left -= len(some)
            if left == 0:
                return


def table_of(rows: list[dict[str, Any]]) -> Table:
    """A line a candidate."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("GPUs", "layout", "batch", "recompute"):
        table.add_column(heading, overflow="fold")
    for heading in ("step", "days", "cost", "memory"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*cells(row))
    return table


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    """A candidate in a line of text each."""
    from planner.cli.words import dollars, layout_words, seconds, zero_words
    from planner.solution import Decisions

    decisions = Decisions.model_validate(row["decisions"])
    return (
        f"{decisions.num_gpus} x {decisions.gpu}",
        f"{layout_words(decisions)} {zero_words(decisions)}",
        f"{decisions.micro_batch} x {decisions.num_microbatches} x {decisions.dp}",
        decisions.recompute,
        seconds(row["step_time_s"]),
        f"{row['days']:.1f}",
        dollars(row["dollars"]),
        f"{row['memory_gib']:.1f} GiB",
    )
