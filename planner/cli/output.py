"""How data leaves the program: to stdout in a format, or to files that are whole or not there."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import typer

from planner.files import usable_folder, write_whole

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from planner.problem import Problem

PIPED_WIDTH = 100
"""Columns when stdout is no terminal and COLUMNS is not set."""


class Format(StrEnum):
    """How a solution is printed."""

    table = "table"
    json = "json"
    yaml = "yaml"


class TableFormat(StrEnum):
    """How facts are printed."""

    table = "table"
    json = "json"


def console() -> Console:
    """Stdout for tables: as wide as the terminal, without colour where there is none."""
    from rich.console import Console

    width = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else PIPED_WIDTH
    return Console(file=sys.stdout, width=width, highlight=False, emoji=False, markup=False)


def print_table(table: RenderableType) -> None:
    """A table on stdout; lines carry no trailing blanks when they go to a file or another program."""
    screen = console()
    if screen.is_terminal:
        screen.print(table)
        return
    with screen.capture() as captured:
        screen.print(table)
    typer.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


def tell_what_is_left_out(problem: Problem) -> None:
    """On stderr: that a command does not look at plans on two pools, where the problem asks for them."""
    from planner.mixing import alone_note

    for note in alone_note(problem):
        typer.echo(f"planner: {note}", err=True)


def print_json(data: Any) -> None:
    """Indented JSON on stdout."""
    import json

    typer.echo(json.dumps(data, indent=2, ensure_ascii=False))


__all__ = [
    "Format",
    "TableFormat",
    "console",
    "print_json",
    "print_table",
    "tell_what_is_left_out",
    "usable_folder",
    "write_whole",
]
