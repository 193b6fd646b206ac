"""The command line: one file a verb. Data goes to stdout, progress and complaints to stderr."""

from __future__ import annotations


def main() -> None:
    """Entry point of the `planner` command."""
    import atexit
    import gc
    import os
    import sys

    # A search allocates much and leaves no cycles behind: looking for them takes a twentieth of the time,
    # and as much again for a last look at everything there is when the process ends.
    gc.set_threshold(250_000, 20, 20)
    atexit.register(gc.freeze)
    # Looking for plugins of pydantic takes longer the more packages are installed; none is of use here.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # Products of matrices are few and small here: threads for them take longer to start than they save.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Closed by whoever started this: what is said then goes nowhere.
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    from planner.cli.app import app

    app()


__all__ = ["main"]
