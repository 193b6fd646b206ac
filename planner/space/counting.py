"""How many candidates there are: the raw material of the proof's counts."""

from __future__ import annotations

import numpy as np

from planner.instance import Instance
from planner.space.columns import Array, LayerKeys, Pipelines
from planner.space.layouts import Layouts, Multiplicity, microbatch_range

Places = dict[tuple[int, int], Layouts]
"""Layouts by pool and tp x cp."""


class Counter:
    """Candidates of layer keys and of pipelines.

    Keys that share pool, tp*cp, ep*etp and the micro-batch share their layouts: those are counted once, as
    running totals over layouts in the order of (pp, dp).
    """

    def __init__(self, instance: Instance, layouts: Places) -> None:
        self.instance, self.layouts = instance, layouts
        self.many = Multiplicity.of(instance)
        self._number: dict[tuple[int, ...], np.ndarray] = {}

    def _schedules(self, pool: int, ranks: int, experts: int, micro_batch: int) -> Array:
        """Values of vpp and of the number of micro-batches, by layout."""
        of = (pool, ranks, micro_batch)
        layout = self.layouts[pool, ranks]
        if of not in self._number:
            low, high = microbatch_range(self.instance, np.array(micro_batch), layout.dp)
            self._number[of] = self.many.schedules(layout.pp, low, high) * (low <= high)
        return self._number[of] * ((ranks * layout.dp) % experts == 0)

    def keys(self, keys: LayerKeys, at_least: Array) -> tuple[Array, Array]:
        """Valid candidates of each layer key, and of these the ones on fewer than `at_least` GPUs."""
        valid, few = np.zeros(len(keys), dtype=np.int64), np.zeros(len(keys), dtype=np.int64)
        for of, rows in classes(keys):
            layout = self.layouts[of[0], of[1]]
            number, order = self._schedules(*of[:4]), np.argsort(layout.num_gpus, kind="stable")
            each = (number * self.many.stages(layout.pp, of[4] * layout.dp))[order]
            total = np.concatenate([[0], np.cumsum(each)])
            modes = self.many.modes[keys.family[rows]]
            valid[rows] = total[-1] * modes
            few[rows] = total[np.searchsorted(layout.num_gpus[order], at_least[rows])] * modes
        return valid, few

    def pipelines(self, rows: Pipelines, at_least: Array) -> Array:
        """Valid candidates of each pipeline on `at_least` GPUs or more."""
        number = np.zeros(len(rows), dtype=np.int64)
        for of, some in classes(rows):
            layout = self.layouts[of[0], of[1]]
            schedules, pp = self._schedules(*of[:4]), rows.pp[some]
            # Without ranks to shard over there is no stage but 0.
            lone = of[4] * layout.dp == 1
            for zero in (0, 1):
                each = schedules * (~lone if zero else 1)
                total = np.concatenate([[0], np.cumsum(each)])
                least = -(-at_least[some] // (of[1] * pp))
                # Layouts of one pp lie together, by dp: those with `least` replicas or more are the last ones.
                code = layout.pp * (1 << 40) + layout.dp
                first = np.searchsorted(code, pp * (1 << 40) + least)
                this = np.flatnonzero(np.minimum(rows.zero[some], 1) == zero)
                number[some[this]] = (total[layout.start[pp + 1]] - total[first])[this]
        return number * self.many.modes[rows.family]


def classes(keys: LayerKeys) -> list[tuple[tuple[int, ...], Array]]:
    """Rows by (pool, tp*cp, ep*etp, micro_batch, cp)."""
    columns = (keys.pool, keys.tp * keys.cp, keys.ep * keys.etp, keys.micro_batch, keys.cp)
    found: dict[tuple[int, ...], list[int]] = {}
    for row, of in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        found.setdefault(of, []).append(row)
    return [(of, np.array(rows)) for of, rows in found.items()]
