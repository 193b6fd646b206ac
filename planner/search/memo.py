"""Columns of numbers that are found once for each row, whichever table asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(slots=True)
class Memo:
    """Columns of numbers by the identity of a row."""

    codes: Array
    values: Array
    """(columns, rows)."""

    @classmethod
    def of(cls, columns: int) -> Memo:
        return cls(np.empty(0, dtype=np.int64), np.empty((columns, 0)))

    def get(self, codes: Array, find: Callable[[Array], Array]) -> Array:
        """(columns, rows): what is known, and what `find` says of the positions that are not."""
        place = np.searchsorted(self.codes, codes)
        if not len(self.codes) or (self.codes[np.minimum(place, len(self.codes) - 1)] != codes).any():
            missing = np.flatnonzero(~np.isin(codes, self.codes))
            _, first = np.unique(codes[missing], return_index=True)
            missing = missing[np.sort(first)]
            self._keep(codes[missing], find(missing))
            place = np.searchsorted(self.codes, codes)
        return self.values[:, place]

    def _keep(self, codes: Array, values: Array) -> None:
        every = np.concatenate([self.codes, codes])
        order = np.argsort(every, kind="stable")
        self.codes, self.values = every[order], np.concatenate([self.values, values], axis=1)[:, order]
