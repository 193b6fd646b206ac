"""The command line: one file a verb. Data goes to stdout, progress and complaints to stderr."""

from __future__ import annotations


def main() -> None:
    """Entry point of the `planner` command."""
    from planner.cli.app import app

    app()


__all__ = ["main"]
