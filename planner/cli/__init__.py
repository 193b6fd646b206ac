"""The command line: one file a verb. Data goes to stdout, progress and complaints to stderr."""

from __future__ import annotations


def main() -> None:
    """Entry point of the `planner` command."""
    import gc

    # A search allocates much and leaves no cycles behind: looking for them takes a twentieth of the time.
    gc.set_threshold(100_000, 20, 20)
    from planner.cli.app import app

    app()


__all__ = ["main"]
