"""`planner estimate`: step time, MFU and memory of runs that are fully specified."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from planner.cli.failures import reported
from planner.cli.output import TableFormat, print_json, print_table

if TYPE_CHECKING:
    from rich.table import Table

COLUMNS = ("run", "step", "80 %", "tokens/s/GPU", "TFLOP/s", "MFU", "memory", "evidence")


@reported
def estimate(
    runs: Annotated[
        Path, typer.Argument(help="Runs file (YAML): one run, or `runs:` with a list.", show_default=False)
    ],
    format: Annotated[TableFormat, typer.Option("--format", "-f", help="What to print.")] = TableFormat.table,
) -> None:
    """Predict runs: nothing is searched. A run that cannot be used is reported in its place.

    Exit codes: 0 estimated, 2 invalid file.
    """
    from planner.estimates import reported as estimates
    from planner.runs import read_runs

    results = estimates(read_runs(runs))
    if format is TableFormat.json:
        print_json(results)
        return
    print_table(_table(results))
    for result in results:
        for warning in result.get("warnings", ()):
            typer.echo(f"{result['id']}: {warning}", err=True)


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
