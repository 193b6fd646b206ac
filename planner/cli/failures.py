"""From exceptions to one message and an exit code."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from errno import ENOSPC
from functools import wraps
from typing import ParamSpec, TypeVar

import typer

from planner.errors import PlannerError

P = ParamSpec("P")
R = TypeVar("R")

UNEXPECTED = 1

show_traceback: ContextVar[bool] = ContextVar("show_traceback", default=False)
"""Set by `planner --debug`."""


def reported(verb: Callable[P, R]) -> Callable[P, R]:
    """The verb with its errors said on stderr instead of thrown at the user.

    What the planner says on purpose exits with the error's own code; anything else is a defect: one
    line, exit 1, and the way to its traceback.
    """

    @wraps(verb)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return verb(*args, **kwargs)
        except PlannerError as error:
            typer.echo(f"planner: {error}", err=True)
            raise typer.Exit(error.exit_code) from None
        except (typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno == ENOSPC:
                typer.echo(f"planner: the output cannot be written: {error.strerror}", err=True)
                raise typer.Exit(UNEXPECTED) from None
            if show_traceback.get():
                raise
            what = " ".join(f"{type(error).__name__}: {error}".split())
            typer.echo(f"planner: unexpected: {what}", err=True)
            typer.echo("  `planner --debug ...` shows the traceback; please report it", err=True)
            raise typer.Exit(UNEXPECTED) from None

    return run
