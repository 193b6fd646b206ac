"""A sweep from its what-ifs to the lines in its folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Executor
from dataclasses import dataclass
from typing import Any

from planner import __version__
from planner.answer import catalogue_hash
from planner.errors import PlannerError
from planner.sweep.answer import Line, answers, head
from planner.sweep.executors import as_completed, executor
from planner.sweep.plan import Base, Chunk, chunks, effects, ordered, shard
from planner.sweep.points import Point
from planner.sweep.store import RETRIED, Store

Told = Callable[[int], None]
"""Called with the number of what-ifs that were just answered."""


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be answered, and where."""

    base: Base
    points: tuple[Point, ...]
    shard: tuple[int, int] | None = None
    """(i, n): the i-th of n parts, from 1."""
    jobs: int = 1
    address: str | None = None
    """Of a Dask scheduler; processes of this machine if none."""


@dataclass(frozen=True, slots=True)
class Done:
    """What came out."""

    lines: tuple[Line, ...]
    """Of all what-ifs of the sweep that are answered, in its order, other shards' too."""
    asked: int
    """What-ifs that were to be answered now."""
    before: int
    """Of these, what an earlier run had answered."""

    @property
    def by_status(self) -> dict[str, int]:
        return dict(sorted(Counter(line["status"] for line in self.lines).items()))


def sweep(
    work: Work, store: Store, told: Callable[[int, int], Told] = lambda total, done: lambda more: None
) -> Done:
    """Answers every what-if that has no line yet, and appends its line when it is there.

    `told` is called with the number of what-ifs and how many have lines already, and returns what is called
    as more of them get theirs. Raises `InvalidInput`, before anything is answered.
    """
    found = effects(work.base, work.points)
    classes = ordered(work.points, found)
    mine = classes if work.shard is None else shard(classes, *work.shard)
    store.agree(manifest(work.base))
    known = {key for key, line in store.lines().items() if line["status"] not in RETRIED}
    open_points = [[point for point in points if point.id not in known] for points in mine]
    asked, left = sum(map(len, mine)), sum(map(len, open_points))
    tell = told(asked, asked - left)
    if left:
        with store, executor(work.address, min(work.jobs, left)) as (pool, workers):
            _answer(chunks(work.base, open_points, found.counts, workers), store, pool, workers, tell)
    written = store.lines()
    lines = (written[point.id] for point in work.points if point.id in written)
    return Done(tuple(lines), asked, asked - left)


def manifest(base: Base) -> dict[str, Any]:
    """What lines depend on beside their overrides."""
    return {
        "problem": base.changed([]).problem_hash,
        "planner": __version__,
        "catalogue": catalogue_hash(),
    }


def _answer(work: Sequence[Chunk], store: Store, pool: Executor, workers: int, tell: Told) -> None:
    try:
        for chunk, lines in as_completed(answers, work, pool, workers):
            if isinstance(lines, BrokenExecutor):
                raise lines
            if isinstance(lines, BaseException):
                lines = [lost(point, lines) for point in chunk.points]
            store.append(lines)
            tell(len(lines))
    except BrokenExecutor:
        found = "a worker process died; out of memory? With fewer --jobs"
        raise PlannerError(f"{found} the same command goes on from what is in {store.folder}") from None


def lost(point: Point, error: BaseException) -> Line:
    """The line of a what-if whose worker did not come back."""
    return head(point) | {"status": "failed", "error": f"{type(error).__name__}: {error}", "seconds": 0.0}
