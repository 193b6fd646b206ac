"""`planner catalogue`: the GPUs, models and software profiles that are known by name."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from planner.cli.failures import reported
from planner.cli.output import TableFormat, print_json, print_table


class Kind(StrEnum):
    """What can be listed."""

    gpus = "gpus"
    models = "models"
    profiles = "profiles"


@reported
def catalogue(
    kind: Annotated[Kind, typer.Argument(help="What to list.", show_default=False)],
    format: Annotated[TableFormat, typer.Option("--format", "-f", help="What to print.")] = TableFormat.table,
) -> None:
    """List what a problem file can name."""
    rows = {Kind.gpus: gpu_rows, Kind.models: model_rows, Kind.profiles: profile_rows}[kind]()
    if format is TableFormat.json:
        print_json(rows)
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for key, value in rows[0].items():
        table.add_column(
            key.replace("_", " "), justify="left" if isinstance(value, str) else "right", overflow="fold"
        )
    for row in rows:
        table.add_row(*(_text(value) for value in row.values()))
    print_table(table)


def _text(value: Any) -> str:
    return (
        "-"
        if value is None
        else value
        if isinstance(value, str)
        else f"{value:,.4g}"
        if value < 1e4
        else f"{value:,}"
    )


def gpu_rows() -> list[dict[str, Any]]:
    """The facts of each GPU that decide most."""
    from hardware.catalogue import accelerator_names, load_accelerator

    rows: list[dict[str, Any]] = []
    for gpu in map(load_accelerator, accelerator_names()):
        fp8 = gpu.peak_flops.get("fp8")
        rows.append(
            {
                "name": gpu.name,
                "bf16_tflops": gpu.peak_flops["bf16"] / 1e12,
                "fp8_tflops": None if fp8 is None else fp8 / 1e12,
                "memory_gb": gpu.memory.nominal / 1e9,
                "hbm_tb_s": gpu.memory.bandwidth / 1e12,
                "link_gb_s": gpu.link.one_way / 1e9,
                "domain": gpu.link.domain,
                "nic_gbit_s": gpu.network.nic * 8 / 1e9,
                "usd_per_gpu_hour": gpu.prices.reserved.typical,
            }
        )
    return rows


def model_rows() -> list[dict[str, Any]]:
    """The size and shape of each model card."""
    from costmodel.cards import card_names, load_card
    from costmodel.parameters import active_parameters, total_parameters

    return [
        {
            "name": name,
            "parameters": total_parameters(card),
            "active_parameters": active_parameters(card),
            "layers": card.layers,
            "hidden": card.hidden,
            "experts": card.moe.experts if card.moe else None,
        }
        for name, card in ((name, load_card(name)) for name in card_names())
    ]


def profile_rows() -> list[dict[str, Any]]:
    """The software profiles."""
    from costmodel.stack import load_stack, stack_names

    stacks = [load_stack(name) for name in stack_names()]
    return [{"name": stack.name, "family": stack.family, "title": stack.title} for stack in stacks]
