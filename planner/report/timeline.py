"""The pipeline timeline of one step: which pass runs where and when, from the times of the virtual stages.

Every rank runs its passes in the order of the schedule, each as soon as the passes that it needs are done.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Pass(NamedTuple):
    """One forward or backward pass of a micro-batch through a chunk of a rank; seconds."""

    rank: int
    chunk: int
    microbatch: int
    kind: Literal["forward", "backward"]
    start: float
    end: float


class Step(NamedTuple):
    """What a rank does next."""

    chunk: int
    microbatch: int
    forward: bool


def warm_up(rank: int, pp: int, vpp: int, num_microbatches: int) -> int:
    """Forward passes before a rank's first backward pass starts to alternate with them.

    1F1B: p - s - 1. Interleaved: 2(p - s - 1) + (v - 1)p (Narayanan et al. 2021, section 2.2).
    """
    ahead = pp - rank - 1
    passes = ahead if vpp == 1 else 2 * ahead + (vpp - 1) * pp
    return min(passes, num_microbatches * vpp)


def order(rank: int, pp: int, vpp: int, num_microbatches: int) -> Iterator[Step]:
    """A rank's passes in the order of (interleaved) 1F1B.

    Chunks take turns of p micro-batches; backward passes visit the chunks the other way round.
    """
    total, ahead = num_microbatches * vpp, warm_up(rank, pp, vpp, num_microbatches)

    def nth(k: int, forward: bool) -> Step:
        if vpp == 1:
            return Step(0, k, forward)
        rounds, rest = divmod(k, pp * vpp)
        turn = rest // pp
        return Step(turn if forward else vpp - 1 - turn, rounds * pp + rest % pp, forward)

    for k in range(ahead):
        yield nth(k, True)
    for k in range(total):
        if ahead + k < total:
            yield nth(ahead + k, True)
        yield nth(k, False)


def timeline(forward: Array, backward: Array, num_microbatches: int) -> list[Pass]:
    """Every pass of a step, by rank and then by time.

    `forward` and `backward` are (pp, vpp) seconds of one micro-batch in chunk c of rank s, which is the
    virtual stage c*pp + s. Transfers take no time here. Raises ValueError where interleaving does not get
    micro-batches in multiples of pp.
    """
    pp, vpp = forward.shape
    if vpp > 1 and num_microbatches % pp:
        raise ValueError(
            f"interleaved stages take micro-batches in multiples of {pp}, got {num_microbatches}"
        )
    orders = [list(order(rank, pp, vpp, num_microbatches)) for rank in range(pp)]
    seconds = {True: forward.tolist(), False: backward.tolist()}
    done: dict[tuple[int, int, bool], float] = {}
    passes: list[list[Pass]] = [[] for _ in range(pp)]
    waiting = list(range(pp))
    while waiting:
        advanced = [
            rank for rank in waiting if _advance(rank, orders[rank], passes[rank], seconds, done, pp, vpp)
        ]
        assert advanced, "the schedule waits for itself"
        waiting = [rank for rank in waiting if len(passes[rank]) < len(orders[rank])]
    return [each for of in passes for each in of]


def _advance(
    rank: int,
    steps: list[Step],
    passes: list[Pass],
    seconds: dict[bool, list[list[float]]],
    done: dict[tuple[int, int, bool], float],
    pp: int,
    vpp: int,
) -> bool:
    """Runs a rank until it waits for another; whether it ran anything."""
    first = len(passes)
    now = passes[-1].end if passes else 0.0
    for chunk, microbatch, forward in steps[first:]:
        stage = chunk * pp + rank
        ready = done.get(
            _needed(stage, microbatch, forward, pp * vpp), 0.0 if forward and stage == 0 else None
        )
        if ready is None:
            break
        start = max(now, ready)
        now = start + seconds[forward][rank][chunk]
        done[stage, microbatch, forward] = now
        passes.append(Pass(rank, chunk, microbatch, "forward" if forward else "backward", start, now))
    return len(passes) > first


def _needed(stage: int, microbatch: int, forward: bool, stages: int) -> tuple[int, int, bool]:
    """The pass whose result a pass needs: of the stage before, of the stage after, or its own forward."""
    if forward:
        return stage - 1, microbatch, True
    return (stage + 1, microbatch, False) if stage + 1 < stages else (stage, microbatch, True)


def ends(passes: list[Pass]) -> float:
    """When the last pass is done."""
    return max(each.end for each in passes)


def least_end(forward: Array, backward: Array, num_microbatches: int) -> float:
    """No schedule ends sooner: max_s(m*t_s + sum_(j<s) t_j0), t_j0 the first chunk of the ranks before.

    A rank starts when the first micro-batch has come through the ranks before it, and its last backward
    pass still has to go back through them.
    """
    both = forward + backward
    entry = np.cumsum(both[:, 0]) - both[:, 0]
    return float((entry + num_microbatches * both.sum(axis=1)).max())
