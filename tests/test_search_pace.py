"""How many rows a search looks at together."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from planner.search import Effort, branch

LEVELS = [branch.UNIFORM] * 200 + [branch.LOOSE] * 100


class Rows(SimpleNamespace):
    """What `branch.resolve` reads of rows."""

    def __len__(self) -> int:
        return len(self.level)


class Row300(SimpleNamespace):
    """A table of 300 rows, the last hundred of them with loose bounds, and a target that picks none."""

    share = 4

    def __init__(self) -> None:
        level = np.array(LEVELS)
        none = np.zeros(len(level), dtype=bool)
        super().__init__(rows=Rows(level=level, exact=none, plain=np.full(len(level), np.nan)), tightened=[])

    def tighten_rows(self, index: Any) -> None:
        assert len(index)
        self.tightened += index.tolist()
        self.rows.level[index] = branch.UNIFORM

    def look_at_plain(self, index: Any) -> None:
        self.rows.plain[index] = 1.0

    def front(self, _: Any, index: Any, __: float, sizes: tuple[int, ...]) -> list[Any]:
        return [index, *(index[:size] for size in sizes)]

    def achieved(self, index: Any) -> None:
        pass

    def picks(self, first: Any) -> Any:
        return first[:0]


def test_more_rows_than_are_tightened_together_may_be_looked_at() -> None:
    """Rows are looked at twice as many each time: 256 are more than the 128 that get tighter bounds at once."""
    table: Any = Row300()
    branch.resolve(table, table, np.inf, Effort())
    assert table.tightened == list(range(200, 300))
    assert np.isfinite(table.rows.plain).all()
