"""`planner model`: what a model card says, and the parameters that follow."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from planner.cli.failures import reported
from planner.cli.output import TableFormat, print_json, print_table


@reported
def model(
    name: Annotated[
        str, typer.Argument(help="A model card (`planner catalogue models`).", show_default=False)
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
    for key, value in facts.items():
        grid.add_row(
            key, f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
        )
    print_table(grid)


def model_facts(name: str) -> dict[str, Any]:
    """Parameters first, then the architecture as the card has it. Raises `InvalidInput`."""
    from costmodel.parameters import (
        active_parameters,
        embedding_parameters,
        head_parameters,
        total_parameters,
    )
    from planner.errors import InvalidInput, Refused
    from planner.model import Model

    try:
        architecture = Model.spelled(name).architecture
    except Refused as refused:
        raise InvalidInput(
            file="model", found=refused.found, accepted=refused.accepted, suggestion=refused.hint
        ) from None
    shapes = architecture.model_dump(mode="json", exclude_none=True)
    counted = {
        "parameters": total_parameters(architecture),
        "active_parameters": active_parameters(architecture),
        "embedding_parameters": embedding_parameters(architecture),
        "head_parameters": head_parameters(architecture),
    }
    return {"name": shapes.pop("name")} | counted | shapes
