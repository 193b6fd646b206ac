"""`planner catalogue`: the GPUs, models and software profiles that are known by name, with their sources."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from planner.cli.failures import reported
from planner.cli.model import flat, shown
from planner.cli.output import TableFormat, print_json, print_table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

DETAILS = ("aliases", "sources", "reserved_usd", "on_demand_usd", "spot_usd", "tdp_w", "top_k")
"""Facts of a row that the table has no room for."""
TITLES = {
    "gpus": "GPUs: dense peaks, one-way bandwidths a GPU, typical reserved price",
    "models": "Models: parameters with embeddings, and those a token meets",
    "profiles": "Software profiles: what a framework of one age does with the hardware",
}


class Kind(StrEnum):
    """What can be listed."""

    gpus = "gpus"
    models = "models"
    profiles = "profiles"


@reported
def catalogue(
    kind: Annotated[Kind | None, typer.Argument(help="What to list; everything if left out.")] = None,
    name: Annotated[str | None, typer.Argument(help="One of them, with every fact in SI units.")] = None,
    format: Annotated[TableFormat, typer.Option("--format", "-f", help="What to print.")] = TableFormat.table,
) -> None:
    """List what a problem file can name, and where each fact comes from."""
    if kind is not None and name is not None:
        _print_one(kind, name, format)
        return
    listed = {each: rows(each) for each in ([kind] if kind else Kind)}
    if format is TableFormat.json:
        print_json(listed[kind] if kind else {each.value: found for each, found in listed.items()})
        return
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = []
    for each, found in listed.items():
        parts += [Text(TITLES[each], style="bold"), table_of(found), Text()]
    if kind:
        parts += [Text("Sources", style="bold"), sources_of(listed[kind])]
    print_table(Group(*parts))


def rows(kind: Kind) -> list[dict[str, Any]]:
    """What is known of a kind, a mapping each."""
    from planner import facts

    return {Kind.gpus: facts.gpu_rows, Kind.models: facts.model_rows, Kind.profiles: facts.profile_rows}[
        kind
    ]()


def _print_one(kind: Kind, name: str, format: TableFormat) -> None:
    """Every fact of one."""
    from planner import facts

    read = {Kind.gpus: facts.gpu_facts, Kind.models: facts.card_facts, Kind.profiles: facts.profile_facts}
    found = read[kind](name)
    if format is TableFormat.json:
        print_json(found)
        return
    print_table(pairs((key, shown(value)) for key, value in flat(found)))


def pairs(lines: Any) -> Table:
    """Two columns, of which the second is folded."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(overflow="fold")
    grid.add_column(overflow="fold")
    for key, value in lines:
        grid.add_row(key, value)
    return grid


def table_of(found: list[dict[str, Any]]) -> Table:
    """The facts that fit a terminal, a row each."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    columns = [key for key in found[0] if key not in DETAILS]
    for key in columns:
        text = isinstance(found[0][key], str)
        table.add_column(key.replace("_", " "), justify="left" if text else "right", overflow="fold")
    for row in found:
        table.add_row(*(_text(row[key]) for key in columns))
    return table


def sources_of(found: list[dict[str, Any]]) -> Table:
    """Where the facts of each come from."""
    return pairs((row["name"], "; ".join(" ".join(each.split()) for each in row["sources"])) for row in found)


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    return f"{value:,.4g}" if value < 1e4 else f"{value:,}"
