"""`planner calibrate`: a cluster's own numbers from benchmarks and measured steps."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from planner.cli.failures import reported
from planner.cli.output import print_json, print_table, write_whole

if TYPE_CHECKING:
    from rich.table import Table

    from hardware.accelerator import Accelerator
    from planner.calibrate.outcome import Outcome

UNIFORM = 0.03
"""Ratios this near to 1 are as expected."""


class CalibrationFormat(StrEnum):
    """How a calibration is printed."""

    table = "table"
    json = "json"
    yaml = "yaml"


@reported
def calibrate(
    gpu: Annotated[
        str, typer.Option("--gpu", help="GPU of the catalogue that the cluster has.", show_default=False)
    ],
    nccl: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="Output of nccl-tests; may be repeated.")
    ] = None,
    gemm: Annotated[
        list[Path] | None, typer.Option(metavar="CSV", help="Measured GEMMs: m, n, k, dtype, time or tflops.")
    ] = None,
    steps: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Training log of Megatron-LM with a --run each, or CSV of runs."),
    ] = None,
    run: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE[#ID]", help="The run of a log, as for `planner estimate`."),
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(metavar="BANDWIDTH", help="Line rate a GPU has to itself: 400 Gbit/s; the usual one."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the calibration here.")
    ] = None,
    format: Annotated[
        CalibrationFormat, typer.Option("--format", "-f", help="What to print.")
    ] = CalibrationFormat.table,
) -> None:
    """Fit a cluster's links, kernels and rates to what was measured on it.

    Use it as `planner solve ... -s hardware.0.calibration=FILE`, or as `calibration: FILE` in a run.
    Exit codes: 0 calibrated, 2 invalid input.
    """
    from planner.calibrate.assemble import Inputs, known_gpu
    from planner.calibrate.assemble import calibrate as fit

    chip = known_gpu(gpu)
    if network is not None:
        chip = _with_network(chip, network)
    outcome = fit(chip, Inputs(nccl or (), gemm or (), steps or (), run or ()))
    if output is not None:
        write_whole(output, calibration_text(outcome))
    if format is CalibrationFormat.json:
        print_json(as_data(outcome))
    elif format is CalibrationFormat.yaml:
        typer.echo(calibration_text(outcome), nl=False)
    else:
        _print(outcome)
    if output is not None:
        typer.echo(f"{output}: use with -s hardware.0.calibration={output}", err=True)


def _with_network(gpu: Accelerator, text: str) -> Accelerator:
    """The GPU with the line rate of this cluster's network."""
    from planner import units
    from planner.errors import Refused

    try:
        rate = units.bandwidth(text)
    except Refused as refused:
        raise refused.of("--network") from None
    nic = rate * gpu.gpus_per_node / gpu.network.nics_per_node
    return gpu.model_copy(update={"network": gpu.network.model_copy(update={"nic": nic})})


def calibration_text(outcome: Outcome) -> str:
    """The file: a comment on its use, and the overlay."""
    import yaml

    from planner import __version__

    head = (
        f"# Calibration of a cluster, written by planner {__version__}. Units are SI. Use it with\n"
        "#     planner solve PROBLEM.yaml -s hardware.0.calibration=THIS_FILE\n"
    )
    return head + yaml.safe_dump(outcome.overlay, sort_keys=False, width=110)


def as_data(outcome: Outcome) -> dict[str, Any]:
    """Everything, for programs."""
    from dataclasses import asdict

    return {
        "calibration": outcome.overlay,
        "deviations": [asdict(each) for each in outcome.deviations],
        "fits": [asdict(each) for each in outcome.fits],
        "notes": outcome.notes,
    }


def _print(outcome: Outcome) -> None:
    """Tables: how far from expected, how well fitted, and the factors."""
    typer.echo("Measured against the catalogue and the software profile (time over expected time)\n")
    print_table(_deviation_table(outcome))
    typer.echo("\nMean error of predictions, |log(predicted/measured)|\n")
    print_table(_fit_table(outcome))
    factors = outcome.overlay["calibration"]
    for name in ("step", "compute", "communication"):
        if name in factors:
            typer.echo(f"\n{name}: {factors[name]:.3f} of the expected rate", nl=False)
    for link in ("nvlink", "network"):
        if link in factors:
            kinds = ", ".join(
                f"{kind.replace('_', '-')} {value:.3f}" for kind, value in factors[link].items()
            )
            typer.echo(f"\n{link}: {kinds} of the expected rate", nl=False)
    typer.echo("")
    for note in outcome.notes:
        typer.echo(note)


def _deviation_table(outcome: Outcome) -> Table:
    table = _table("what", "sizes")
    for name in ("points", "measured", "expected", "time", "verdict"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in outcome.deviations:
        table.add_row(
            row.what,
            row.sizes,
            str(row.points),
            row.measured,
            row.expected,
            f"{row.ratio:.2f}x",
            verdict(row.ratio),
        )
    return table


def verdict(ratio: float) -> str:
    """A word or two for a ratio of times."""
    if abs(ratio - 1) <= UNIFORM:
        return "as expected"
    return f"{ratio - 1:.0%} slower" if ratio > 1 else f"{1 - ratio:.0%} less time"


def _fit_table(outcome: Outcome) -> Table:
    table = _table("what")
    for name in ("points", "before", "fitted", "left out"):
        table.add_column(name, justify="right", no_wrap=True)
    for fit in outcome.fits:
        left_out = "-" if fit.left_out is None else f"{fit.left_out:.1%}"
        table.add_row(fit.what, str(fit.points), f"{fit.before:.1%}", f"{fit.after:.1%}", left_out)
    return table


def _table(*columns: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in columns:
        table.add_column(name, overflow="fold")
    return table
