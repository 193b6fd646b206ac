"""The application: its verbs and the options that come before them."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from planner import __version__
from planner.cli import failures

VERBS = (
    "solve",
    "sweep",
    "frontier",
    "explain",
    "compare",
    "candidates",
    "estimate",
    "report",
    "export",
    "calibrate",
    "model",
    "new",
    "catalogue",
    "schema",
)
"""In the order of the help; each is the function of its name in the module of its name."""


class Verbs(TyperGroup):
    """Verbs that are read when they are asked for, so that a start costs no other verb than its own."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Every verb, read or not."""
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The verb of a name. What no verb is called is compared with all of them by typer."""
        for name in (cmd_name,) if cmd_name in VERBS else VERBS:
            if name not in self.commands:
                self.commands[name] = verb(name)
        return super().get_command(ctx, cmd_name)


SETTINGS: dict[str, Any] = {
    "add_completion": False,
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
app = typer.Typer(
    name="planner",
    cls=Verbs,
    help="Plan LLM training: GPUs, parallelism, days and dollars, with proof.",
    no_args_is_help=True,
    **SETTINGS,
)


def verb(name: str) -> Any:
    """A verb as a command of its own."""
    alone = typer.Typer(**SETTINGS)
    alone.command(name)(getattr(import_module(f"planner.cli.{name}"), name))
    return get_command(alone)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"planner {__version__}")
        raise typer.Exit()


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an unexpected error.")
    ] = False,
) -> None:
    """Plan LLM training: GPUs, parallelism, days and dollars, with proof."""
    failures.show_traceback.set(debug)
