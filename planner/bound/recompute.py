"""What a stage assignment may recompute, as cases that bounds take one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.pipeline import chunk_range
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
    rank, last = np.arange(int(pp.max())), pp[:, None] - 1
    end, base = (np.asarray(value) for value in chunk_range(layers, (pp * vpp)[:, None])[:2])
    ends = (rank == 0).astype(int) + (rank == last)
    cases = []
    for q in range(int(base.max()) + 2):
        # A stage at an end may hold fewer than q layers.
        least = np.where(q > base, layers, vpp[:, None] * q - ends * (q > end))
        most = np.where(q > base, layers, vpp[:, None] * q)
        total = np.where(q > base[:, 0], layers, np.where(rank <= last, least, 0).sum(axis=-1))
        cases.append(Recompute(least, most, False, total))
    return cases


def uniform_case(layers: int, pp: int, vpp: int, each: Array) -> Recompute:
    """Uniform recompute of one candidate, a row for each number of layers that a virtual stage recomputes."""
    q, ranks = each[:, None], np.arange(pp)
    if vpp == 1:
        # The least of it in all is recomputed where one stage holds all layers that the others can spare.
        total = np.where(each > 0, pp - 1 + np.minimum(each, layers - pp + 1), 0)
        return Recompute(q, q, False, total)
    end, base = (int(value) for value in chunk_range(layers, pp * vpp)[:2])
    ends = (ranks == 0).astype(int) + (ranks == pp - 1)
    # A stage at an end may hold fewer than q layers.
    least = np.where(q > base, layers, vpp * q - ends * (q > end))
    most = np.where(q > base, layers, vpp * q) + 0 * least
    return Recompute(least, most, False, np.where(each > base, layers, least.sum(axis=-1)))


def schedule_kind(pp: Array, vpp: Array) -> Array:
    """0 without a pipeline, 1 for 1F1B, 2 interleaved."""
    return np.where(pp == 1, 0, np.where(vpp == 1, 1, 2))
