"""What a stage assignment may recompute, as cases that bounds take one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.pipeline import chunk_sizes
from costmodel.run import Column

Array = NDArray[Any]
MOST_CASES = 12
"""Numbers of uniformly recomputed layers that are looked at one by one; more of them are one looser case."""


@dataclass(frozen=True, slots=True)
class Recompute:
    """How many of a rank's layers are recomputed: (rows, ranks) or numbers.

    At least `least` (or all, if it holds fewer); memory may profit from `most`, or if `more` from as
    many as it takes.
    """

    least: Column
    most: Column
    more: bool
    total: Column = 0
    """Layers that all ranks together recompute at least: (rows,) or a number."""


def recompute_cases(recompute: str, uniform: bool, layers: int, pp: Array, vpp: Array) -> list[Recompute]:
    """Cases that together cover what a stage assignment may recompute.

    Rows are alike: all without a pipeline, all 1F1B, or all interleaved (`schedule_kind`).
    """
    if recompute == "none":
        return [Recompute(0, 0, False)]
    if recompute == "all":
        return [Recompute(layers, layers, False, layers)]
    if not uniform or pp[0] == 1:
        # One stage recomputes as many layers as it takes either way.
        return [Recompute(0, 0, True)]
    if vpp[0] == 1:
        most = min(-(-layers // int(pp.min())) + 2, MOST_CASES)
        cases = [Recompute(q, q, False, pp * min(q, 1)) for q in range(most)]
        return [*cases, Recompute(most, most, True, pp)]
    return _interleaved_cases(layers, pp, vpp)


def _interleaved_cases(layers: int, pp: Array, vpp: Array) -> list[Recompute]:
    """Uniform recompute of q layers a virtual stage, up to all that one holds."""
    most = int(chunk_sizes(layers, pp, vpp).larger.max())
    return [_of_chunks(layers, pp, vpp, np.asarray(q)) for q in range(most + 1)]


def _of_chunks(layers: int, pp: Array, vpp: Array, each: Array) -> Recompute:
    """Of interleaved rows that recompute so many layers of each virtual stage, or all it has."""
    rank, p, v, q = np.arange(int(pp.max())), pp[:, None], vpp[:, None], each[..., None]
    of = chunk_sizes(layers, p, v)
    # Of a rank whose chunks are whole: at the ends fewer.
    again = np.where(q > of.smaller, of.held, v * q)
    ends = ((of.smaller, of.at_first), (of.larger, of.at_last))
    first, last = (np.minimum(q, size) - np.minimum(q, size - without) for size, without in ends)
    least = again - first * (rank == 0) - last * (rank == p - 1)
    total = (p * again - np.minimum(first + last, of.short))[:, 0]
    every = q >= of.larger
    least, most = (np.where(every, layers, value) for value in (least, again))
    return Recompute(least, most, False, np.where(every[..., 0], layers, total))


def uniform_case(layers: int, pp: int, vpp: int, each: Array) -> Recompute:
    """Uniform recompute of one candidate, a row for each number of layers that a virtual stage recomputes."""
    if vpp > 1:
        return _of_chunks(layers, np.full(len(each), pp), np.full(len(each), vpp), each)
    # The least of it in all is recomputed where one stage holds all layers that the others can spare.
    total = np.where(each > 0, pp - 1 + np.minimum(each, layers - pp + 1), 0)
    return Recompute(each[:, None], each[:, None], False, total)


def schedule_kind(pp: Array, vpp: Array) -> Array:
    """0 without a pipeline, 1 for 1F1B, 2 interleaved."""
    return np.where(pp == 1, 0, np.where(vpp == 1, 1, 2))
