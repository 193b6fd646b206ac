"""`planner explain`: why this plan, what would change it, how sure; and answers to `--why`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.failures import reported
from planner.cli.output import TableFormat, print_table
from planner.cli.progress import progress
from planner.cli.solve import Settings, TimeLimit, seconds_of

if TYPE_CHECKING:
    from planner.problem import Problem
    from planner.solution import Solution


class Part(StrEnum):
    """Parts of an explanation."""

    why = "why"
    limits = "limits"
    prices = "prices"
    paying = "paying"
    hardware = "hardware"
    sure = "sure"


@reported
def explain(
    file: Annotated[Path, typer.Argument(help="Solution or problem file.", show_default=False)],
    why: Annotated[
        str | None,
        typer.Option(
            "--why", "-w", metavar="NAME=VALUE,...", help="Ask about decisions: tp=4,pp=8, gpu=H20."
        ),
    ] = None,
    part: Annotated[
        list[Part] | None,
        typer.Option(
            "--part", "-p", help="Only this part; may be repeated. [default: all]", show_default=False
        ),
    ] = None,
    format: Annotated[TableFormat, typer.Option("--format", "-f", help="What to print.")] = TableFormat.table,
    set: Settings = None,
    time_limit: TimeLimit = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")] = False,
) -> None:
    """Say why the plan is as it is, what limits and ways to pay cost, and what other hardware would change.

    Every figure is that of a problem solved again. Exit codes: 0 explained, 2 invalid input, 3 no plan
    within the limits, 4 time limit without a plan.
    """
    limit = None if time_limit is None else seconds_of(time_limit)
    problem, solution = problem_of(file, set or [])
    limit = problem.time_limit if limit is None else limit
    from planner.explained import answer_to, explained

    with progress(quiet) as say:
        if why is not None:
            found = answer_to(problem, why, say, solution, limit)
        else:
            found = explained(problem, say, solution, [str(each) for each in part or Part], limit)
    if format is TableFormat.json:
        typer.echo(found.model_dump_json(indent=2))
        return
    from planner.cli.explanation_table import answer_table, explanation_table
    from planner.explanation import Answer

    print_table(answer_table(found) if isinstance(found, Answer) else explanation_table(found))


def problem_of(file: Path, settings: list[str]) -> tuple[Problem, Solution | None]:
    """The problem of a problem file, or of a solution file with the solution. Raises InvalidInput."""
    from planner.overrides import parse_setting
    from planner.problem import load_problem, parse_problem
    from planner.yaml_file import read_mapping

    overrides = [parse_setting(text) for text in settings]
    data = read_mapping(file)
    if "provenance" not in data or "problem" not in data:
        return load_problem(file, overrides), None
    solution = solution_in(file)
    problem = parse_problem(dict(solution.problem), overrides, file=str(file), folder=file.parent)
    return problem, None if overrides else solution


def solution_in(file: Path) -> Solution:
    """A solution file. Raises InvalidInput where it is none."""
    from pydantic import ValidationError

    from planner.errors import InvalidInput
    from planner.solution import read_solution

    try:
        return read_solution(file)
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(map(str, first["loc"]))
        accepted = "a solution of `planner solve --output`, as it was written"
        raise InvalidInput(file=str(file), path=path, found=first["msg"], accepted=accepted) from None
