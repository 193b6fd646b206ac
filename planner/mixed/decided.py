"""What rows of a search on two pools decide, from their nodes down to their numbers of micro-batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.mixed.arrangement import Arrangement
from planner.mixed.layouts import MixedRows
from planner.mixing import Form

Array = NDArray[Any]
KEYS = ("tp", "cp", "ep", "etp", "micro_batch", "family", "variant")


@dataclass(frozen=True, slots=True)
class Decided:
    """Rows of one arrangement, or some of them; what they do not decide yet is None."""

    of: Arrangement
    num_gpus: Array
    """(2, all rows)"""
    key: Array | None = None
    rows: MixedRows | None = None
    num_microbatches: Array | None = None
    """(2, all rows)"""
    index: Array | None = None
    """Which of the rows these are; columns are cut when they are asked for."""

    def __len__(self) -> int:
        return self.num_gpus.shape[1] if self.index is None else len(self.index)

    def take(self, index: Array) -> Decided:
        """Some rows."""
        return replace(self, index=index if self.index is None else self.index[index])

    def _cut(self, column: Array) -> Array:
        return column if self.index is None else column[..., self.index]

    @property
    def form(self) -> Form:
        return self.of.form

    @property
    def pools(self) -> tuple[int, int]:
        """Indices of the instance's pools; of stages, the first holds the first ranks."""
        return self.of.pools

    def nodes_of(self, entry: int) -> Array:
        """(rows,) nodes of a pool of the problem's hardware; 0 where it is neither of the two."""
        found = np.zeros(len(self), dtype=np.int64)
        for pool, gpus in zip(self.of.both, self._cut(self.num_gpus), strict=True):
            found += (gpus // pool.fabric.gpus_per_node) * (pool.entry == entry)
        return found

    def column(self, name: str) -> Array | None:
        """(rows,) a decision by its name in a solution; None where it is still open.

        `family` is that of recompute, `split` the first pool's ranks, `dp_1` and `num_microbatches_1` are
        those of the second pool, and `num_microbatches` of the first.
        """
        if name == "vpp" and self.form == "stages":
            return np.ones(len(self), dtype=np.int64)
        found = self._column(name)
        return None if found is None else self._cut(found)

    def _column(self, name: str) -> Array | None:
        rows, m = self.rows, self.num_microbatches
        if name == "num_gpus":
            return self.num_gpus.sum(axis=0)
        if name in KEYS:
            return None if self.key is None else getattr(self.of.keys, name)[self.key]
        if name == "global_batch":
            return None if rows is None or m is None else rows.sequences(self.of, m)
        if name in ("num_microbatches", "num_microbatches_1"):
            return None if m is None else m[int(name.endswith("_1"))]
        if rows is None or (name == "vpp" and not rows.vpp.all()):
            return None
        own = {"dp": lambda: rows.replicas(self.of), "dp_0": lambda: rows.dp[0], "dp_1": lambda: rows.dp[1]}
        return own[name]() if name in own else getattr(rows, name)


MixedMask = Callable[[Decided], "Array | bool"]
"""Which rows count; where they do not decide yet what a mask asks for, it lets them through."""
