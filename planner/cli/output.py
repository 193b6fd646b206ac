"""How data leaves the program: to stdout in a format, or to files that are whole or not there."""

from __future__ import annotations

import os
import sys
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from planner.errors import InvalidInput

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

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


def print_json(data: Any) -> None:
    """Indented JSON on stdout."""
    import json

    typer.echo(json.dumps(data, indent=2, ensure_ascii=False))


def usable_folder(folder: Path) -> Path:
    """The folder, made if it is not there. Raises `InvalidInput`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise InvalidInput(file=str(folder), found="is a file", accepted="a folder for the results") from None
    except OSError as error:
        raise InvalidInput(
            file=str(folder), found=f"cannot be made: {error.strerror}", accepted="a folder"
        ) from None
    return folder


def write_whole(path: Path, text: str) -> None:
    """Writes beside the file and renames, so that nobody ever reads half of it."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            Path(name).chmod(0o644)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InvalidInput(
            file=str(path), found=f"cannot be written: {error.strerror}", accepted="a folder you may write to"
        ) from None
