"""The same process as the closed form, event by event: many runs at once, a failure of each a turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from numpy.random import Generator  # its import costs as much as all of this package's

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Process:
    """One plan's failures and checkpoints. Seconds."""

    mtbf: float
    interval: float
    stall: float
    write: float
    restart: float
    swap_share: float = 0.0
    """Share of failures that take a node out."""
    repair: float = 0.0
    """Until that node is back, exponential; 0 if it need not be waited for."""
    spares: int = 0

    @property
    def period(self) -> float:
        """From one checkpoint to the next."""
        return max(self.interval + self.stall, self.write)


def simulate(process: Process, work: float, runs: int, seed: int = 0) -> Array:
    """Wall-clock seconds that each of so many runs takes for `work` seconds of training.

    Every turn draws each unfinished run's time to its next failure. A failure in a restart repeats the
    restart; one while training goes back to the last checkpoint that counts.
    """
    random = np.random.default_rng(seed)
    clock, done = np.zeros(runs), np.zeros(runs)
    restart = np.zeros(runs)
    returns = np.zeros((runs, process.spares + 1))
    returns[:, -1] = np.inf
    active = np.arange(runs)
    while active.size:
        up = random.exponential(process.mtbf, active.size) - restart[active]
        left = work - done[active]
        needed = left + np.floor(np.maximum(left - 1e-9, 0) / process.interval) * _pause(process)
        ends = up >= needed
        kept = np.maximum(np.floor((up - process.write) / process.period), 0)
        done[active] += np.where(up > 0, kept * process.interval, 0)
        clock[active] += restart[active] + np.where(ends, needed, up)
        active = active[~ends]
        restart[active] = process.restart
        _swap(process, active, clock, returns, random)
    return clock


def _pause(process: Process) -> float:
    """Seconds training stands still at a checkpoint."""
    return process.period - process.interval


def _swap(process: Process, active: Array, clock: Array, returns: Array, random: Generator) -> None:
    """Runs whose failure took a node out wait for the first node that is free: a spare, or one repaired.

    `returns` holds when the spare nodes are, or were, available; the last place is the failed node's.
    """
    if not process.repair:
        return
    hit = active[random.random(active.size) < process.swap_share]
    returns[hit, -1] = clock[hit] + random.exponential(process.repair, hit.size)
    first = returns[hit].argmin(axis=1)
    clock[hit] = np.maximum(clock[hit], returns[hit, first])
    returns[hit, first] = returns[hit, -1]
    returns[hit, -1] = np.inf
