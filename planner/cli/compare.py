"""`planner compare`: two plans side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.failures import reported
from planner.cli.output import TableFormat, print_table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from planner.comparison import Comparison, Figure, Part

Plan = typer.Argument(
    help="Solution, runs file or launch script; FILE@WHICH for one of several.", show_default=False
)


@reported
def compare(
    a: Annotated[str, Plan],
    b: Annotated[str, Plan],
    format: Annotated[TableFormat, typer.Option("--format", "-f", help="What to print.")] = TableFormat.table,
    tokens: Annotated[
        str | None, typer.Option(metavar="TOKENS", help="Tokens to compare over, if no solution says it: 3T.")
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(metavar="NAME", help="GPU type, which launch files do not say.")
    ] = None,
    gpus: Annotated[
        int | None, typer.Option(min=1, help="Number of GPUs, where a launch file does not say.")
    ] = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="Number of nodes, instead of --gpus.")] = None,
    model: Annotated[
        str | None, typer.Option(metavar="CARD|config.json", help="The model, where a file does not say.")
    ] = None,
) -> None:
    """Lay two plans side by side: what they decide otherwise, what each takes, and where the time goes.

    A plan is that of a solution file (FILE@H20 for its runner-up), a run of a runs file (FILE@ID), or a
    launch script. Exit codes: 0 compared, 2 invalid input.
    """
    from planner.cli.estimate import given
    from planner.compare import compared
    from planner.sides import read_side

    facts = given(gpu, gpus, nodes, model, None, None)
    found = compared(read_side(a, facts), read_side(b, facts), None if tokens is None else tokens_of(tokens))
    if format is TableFormat.json:
        typer.echo(found.model_dump_json(indent=2))
        return
    print_table(comparison_table(found))


def tokens_of(text: str) -> float:
    """A number of tokens. Raises InvalidInput."""
    from planner import units
    from planner.errors import Refused

    try:
        return float(units.tokens(text))
    except Refused as refused:
        raise refused.of("--tokens") from None


def comparison_table(found: Comparison) -> RenderableType:
    """The verdict, then decisions, figures and parts, then notes."""
    from rich.console import Group
    from rich.text import Text

    from planner.cli.explanation_table import section
    from planner.cli.grid import sentences
    from planner.reason_words import label, part_name
    from planner.switches import spoken

    decisions = [
        (label(each.decision), str(spoken(each.a)), str(spoken(each.b)), "") for each in found.decisions
    ]
    figures = [figure_row(each) for each in found.figures]
    parts = [part_row(part_name(each.part), each) for each in found.parts if each.a_s or each.b_s]
    over = f"difference, {found.unit}"
    return Group(
        Text(found.text, style="bold"),
        Text(f"\nA  {found.a.name}, {found.a.file}\nB  {found.b.name}, {found.b.file}"),
        section("Decisions that differ", grid(("", "A", "B", ""), decisions) if decisions else Text("none")),
        section("What each takes", grid(("", "A", "B", "difference"), figures)),
        section("Where the time goes, a step", grid(("", "A", "B", over), parts)),
        *([section("Notes", sentences(found.notes))] if found.notes else []),
    )


def grid(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> RenderableType:
    """Rows with a label and three columns."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for place, head in enumerate(heads):
        table.add_column(head, justify="right" if place else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def figure_row(of: Figure) -> tuple[str, ...]:
    """A figure in the words of its unit."""
    form = {"USD": "{:,.0f}", "%": "{:.1f}", "tokens/s": "{:,.0f}", "s": "{:.3f}"}.get(of.unit, "{:,.1f}")
    name = "MFU" if of.name == "mfu" else of.name.replace("_", " ")
    size = form.format(abs(of.difference))
    # What rounds to nothing has no sign.
    sign = "" if not size.strip("0.,") else "+" if of.difference > 0 else "-"
    values = [form.format(value) for value in (of.a, of.b)]
    unit = "points" if of.unit == "%" else of.unit
    return (
        name,
        *(f"{value} {of.unit}" for value in values),
        f"{sign}{size} {unit}",
    )


def part_row(name: str, of: Part) -> tuple[str, ...]:
    """Seconds of both, and what the difference makes."""
    from planner.cli.words import seconds

    digits = 2 if abs(of.difference) < 100 else 0
    difference = f"{of.difference:+,.{digits}f}"
    return (name, seconds(of.a_s), seconds(of.b_s), "0" if not difference.strip("+-0.") else difference)
