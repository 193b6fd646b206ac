"""`planner export`: the launch files of a plan."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.failures import reported
from planner.cli.output import usable_folder, write_whole

if TYPE_CHECKING:
    from planner.solution import Solution


class Launcher(StrEnum):
    """What starts the ranks."""

    megatron = "megatron"
    bridge = "bridge"
    torchtitan = "torchtitan"
    deepspeed = "deepspeed"
    accelerate = "accelerate"
    nanotron = "nanotron"


class Target(StrEnum):
    """What files are written for."""

    megatron = "megatron"
    bridge = "bridge"
    torchtitan = "torchtitan"
    deepspeed = "deepspeed"
    accelerate = "accelerate"
    nanotron = "nanotron"
    slurm = "slurm"


@reported
def export(
    solution: Annotated[
        Path, typer.Argument(help="What `planner solve` wrote (JSON or YAML).", show_default=False)
    ],
    to: Annotated[
        Target, typer.Option("--to", "-t", help="Framework, or Slurm around one.", show_default=False)
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Folder for the files.", show_default=False)
    ],
    plan: Annotated[
        int, typer.Option("--plan", "-p", metavar="N", help="Which plan, best first; or which phase.")
    ] = 1,
    launcher: Annotated[
        Launcher | None,
        typer.Option(help="What the Slurm script starts: megatron unless given.", show_default=False),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that are there.")] = False,
) -> None:
    """Write the launch files of a plan, and refuse what a framework cannot launch.

    Prints the path of each file. Exit codes: 0 written, 2 invalid input or a plan the target cannot launch.
    """
    from planner.errors import InvalidInput
    from planner.export import export as files_of
    from planner.export import foreign, job_of

    if launcher is not None and to is not Target.slurm:
        raise InvalidInput(
            file="--launcher", found=f"given with --to {to.value}", accepted="only with --to slurm"
        )
    started = launcher or Launcher.megatron
    job = job_of(read(solution), plan, solution)
    files = files_of(job, to.value, started.value)
    folder = usable_folder(output)
    if not force:
        refuse_to_overwrite([folder / name for name in files])
    for name, text in files.items():
        write_whole(folder / name, text)
        typer.echo(str(folder / name))
    if warning := foreign(job, to.value, started.value):
        typer.echo(f"planner: {warning}", err=True)


def read(path: Path) -> Solution:
    """The solution in a file. Raises `InvalidInput`."""
    import yaml
    from pydantic import ValidationError

    from planner.complaints import invalid_input
    from planner.errors import InvalidInput
    from planner.solution import Solution
    from planner.yaml_file import read_text

    accepted = "a solution as `planner solve --format json|yaml` or `--output` writes it"
    text = read_text(path, accepted)
    try:
        return Solution.from_text(text)
    except ValidationError as error:
        raise invalid_input(error, str(path)) from None
    except (yaml.YAMLError, RecursionError):
        raise InvalidInput(file=str(path), found="not valid YAML or JSON", accepted=accepted) from None


def refuse_to_overwrite(paths: list[Path]) -> None:
    """Raises `InvalidInput` where one of the files exists already; nothing has been written then."""
    from planner.errors import InvalidInput

    there = [path for path in paths if path.exists()]
    if there:
        raise InvalidInput(
            file=str(there[0]),
            found="exists already",
            accepted="an empty folder, or --force to overwrite",
            others=[path.name for path in there[1:]],
        )
