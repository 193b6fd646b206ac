"""Progress on stderr: one line that changes on a terminal, a line a step elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(quiet: bool) -> Iterator[Callable[[str], None]]:
    """A function to call with what is being done now."""
    if quiet:
        yield lambda text: None
    elif sys.stderr.isatty():
        from rich.console import Console

        with Console(stderr=True).status("reading") as status:
            yield lambda text: status.update(text)
    else:
        yield lambda text: print(text, file=sys.stderr, flush=True)  # noqa: T201
