"""`planner model`: what a model card or a config.json says, and the parameters that follow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from planner.cli.failures import reported
from planner.cli.output import TableFormat, print_json, print_table


@reported
def model(
    name: Annotated[
        str,
        typer.Argument(
            help="A model card (`planner catalogue models`), or a path to a Hugging Face config.json.",
            show_default=False,
        ),
    ],
    format: Annotated[TableFormat, typer.Option("--format", "-f", help="What to print.")] = TableFormat.table,
) -> None:
    """Print the parameters and shapes of a model."""
    facts = model_facts(name)
    if format is TableFormat.json:
        print_json(facts)
        return
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for key, value in flat(facts):
        grid.add_row(key, shown(value))
    print_table(grid)


def flat(facts: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Keys by dotted path; parts that are not there are left out."""
    for key, value in facts.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{above}{key}.")
        elif value not in (None, "", []):
            yield f"{above}{key}", value


def shown(value: Any) -> str:
    """A fact in a table: thousands grouped, lists on a line, yes and no."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(shown, value))
    if isinstance(value, float):
        return f"{value:.10g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def model_facts(name: str) -> dict[str, Any]:
    """Parameters first, then the architecture as the card or the file has it. Raises `InvalidInput`."""
    from planner.config_file import looks_like_path, read_config
    from planner.errors import Refused
    from planner.model import Model

    if looks_like_path(name):
        config = read_config(name)
        return facts_of(config.architecture) | {"notes": list(config.notes)}
    try:
        return facts_of(Model.spelled(name).architecture)
    except Refused as refused:
        raise refused.of("model") from None


def facts_of(architecture: Any) -> dict[str, Any]:
    """The counts that follow from an architecture, and its shapes."""
    from costmodel.parameters import (
        active_parameters,
        embedding_parameters,
        head_parameters,
        mtp_parameters,
        total_parameters,
    )

    shapes = architecture.model_dump(mode="json", exclude_none=True)
    counted = {
        "parameters": total_parameters(architecture),
        "active_parameters": active_parameters(architecture),
        "embedding_parameters": embedding_parameters(architecture),
        "head_parameters": head_parameters(architecture),
        "mtp_parameters": mtp_parameters(architecture),
    }
    return {"name": shapes.pop("name")} | counted | shapes
