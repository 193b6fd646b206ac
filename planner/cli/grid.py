"""What answers on the terminal are put together from: titled sections, pairs of name and words, lists."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

INDENT = (0, 0, 0, 2)


def section(title: str, body: RenderableType) -> RenderableType:
    """A part of what is printed, under its title."""
    return Group(Text(), Text(title, style="bold cyan"), Padding(body, INDENT))


def grid(rows: Iterable[tuple[str, str]]) -> Table:
    """Names and what there is to say of each, in two columns."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for label, text in rows:
        grid.add_row(label, text)
    return grid


def sentences(texts: Iterable[str]) -> Table:
    """A list, one sentence or more an entry."""
    return grid(("-", text) for text in texts)
