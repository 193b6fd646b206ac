"""SIGTERM as an exception, so that what is begun is ended in order, as after Ctrl-C."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED, TERMINATED = 130, 143
"""As the shell says that a program was stopped by Ctrl-C, or by SIGTERM: 128 and the signal's number."""


class Terminated(KeyboardInterrupt):
    """SIGTERM came: what `kill`, a batch system or a container sends first."""


@contextmanager
def terminated() -> Iterator[None]:
    """Within it SIGTERM raises `Terminated` in the main thread."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
