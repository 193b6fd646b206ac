"""Where what-ifs are answered: here, in processes of this machine, or on a Dask cluster that is there."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from multiprocessing.connection import wait as wait_for
from typing import Any, TypeVar

from planner.errors import InvalidInput

T = TypeVar("T")
R = TypeVar("R")
DASK = "dask://"
AHEAD = 2
"""Pieces of work that are handed out for each worker, so that none waits for the next."""
CONNECTED_WITHIN = 10.0
"""Seconds within which a scheduler has to answer."""


class Here(Executor):
    """Does the work where it is asked for, at once."""

    def submit(self, fn: Callable[..., R], /, *args: Any, **kwargs: Any) -> Future[R]:
        future: Future[R] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def executor(address: str | None, jobs: int) -> Iterator[tuple[Executor, int]]:
    """An executor and its number of workers. Leaving it early ends its work. Raises `InvalidInput`."""
    if address is not None:
        with dask(address) as found:
            yield found
    elif jobs == 1:
        yield Here(), 1
    else:
        # Spawned: threads of the parent (CP-SAT, the progress bar) do not survive a fork.
        pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _as_worker)
        try:
            yield pool, jobs
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _as_worker() -> None:
    """Leaves Ctrl-C to the parent, and ends with it even if it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def follow(sentinel: int) -> None:
        wait_for([sentinel])
        os._exit(1)

    if parent is not None:
        threading.Thread(target=follow, args=(parent.sentinel,), daemon=True).start()


@contextmanager
def dask(address: str) -> Iterator[tuple[Executor, int]]:
    """Workers of the Dask cluster whose scheduler listens at `dask://host:port`. Raises `InvalidInput`."""
    source = f"--executor {address}"
    host = address.removeprefix(DASK)
    if not address.startswith(DASK) or not host.rpartition(":")[2].isdecimal():
        raise InvalidInput(
            file=source, found="is no executor", accepted="dask://HOST:PORT of a Dask scheduler"
        )
    try:
        import distributed
    except ImportError:
        accepted = "pip install 'planner[cluster]', here and on the workers"
        raise InvalidInput(file=source, found="needs dask.distributed", accepted=accepted) from None
    try:
        client = distributed.Client(f"tcp://{host}", timeout=CONNECTED_WITHIN, set_as_default=False)
    except (OSError, TimeoutError):
        accepted = "the address that `dask scheduler` prints"
        raise InvalidInput(file=source, found="no scheduler answers there", accepted=accepted) from None
    with client:
        number = sum(dict(client.nthreads()).values())  # pyright: ignore[reportArgumentType, reportCallIssue]
        if not number:
            accepted = f"workers: dask worker tcp://{host}"
            raise InvalidInput(file=source, found="the cluster has no workers", accepted=accepted)
        yield client.get_executor(pure=False), number


def as_completed(
    work: Callable[[T], R], pieces: Sequence[T], pool: Executor, workers: int
) -> Iterator[tuple[T, R | BaseException]]:
    """Results as they come, with few pieces in flight; what a worker raises is a result too."""
    left, running = iter(pieces), dict[Future[R], T]()
    while True:
        while len(running) < AHEAD * workers and (piece := next(left, None)) is not None:
            future = pool.submit(work, piece)
            running[future] = piece
            if future.done():
                break
        if not running:
            return
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            piece = running.pop(future)
            yield piece, future.exception() or future.result()
