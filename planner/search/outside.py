"""What limits rule out as the search writes candidates down, counted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.instance import Instance
from planner.required import step_requirement
from planner.space.columns import Groups
from planner.space.layouts import Multiplicity

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Outside:
    """Candidates of rows whose bound was outside a limit when they were looked at."""

    many: Multiplicity
    by_limit: dict[str, int] = field(default_factory=dict)

    def count(self, groups: Groups, which: Array, limit: str) -> None:
        """Counts some groups that break a limit."""
        if which.any():
            number = int(self.many.of_rows(groups.take(np.flatnonzero(which))).sum())
            self._add(limit, number)

    def count_shorter(self, instance: Instance, before: Groups, after: Groups) -> None:
        """Counts the numbers of micro-batches that rows have lost to a required step."""
        of = step_requirement(instance)
        if of is not None:
            self._add(of.text, int((self.many.of_rows(before) - self.many.of_rows(after)).sum()))

    def _add(self, limit: str, number: int) -> None:
        if number:
            self.by_limit[limit] = self.by_limit.get(limit, 0) + number
