"""How many candidates there are: the raw material of the proof's counts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from planner.instance import Instance
from planner.space.columns import Array, LayerKeys, Pipelines, values_of
from planner.space.layouts import SHARINGS, Layouts, Multiplicity, fills_nodes, microbatch_range

Places = dict[tuple[int, int], Layouts]
"""Layouts by pool and tp x cp."""


class Counter:
    """Candidates of layer keys and of pipelines.

    Keys that share pool, tp*cp, ep*etp, the micro-batch and overlap share their layouts: those are counted
    once, as running totals over layouts in the order of (pp, dp).
    """

    def __init__(self, instance: Instance, layouts: Places) -> None:
        self.instance, self.layouts = instance, layouts
        self.many = Multiplicity.of(instance)
        self._known: dict[tuple[str | int, ...], Array] = {}

    def _once(self, find: Callable[..., Array], *of: int) -> Array:
        """What a method says of these numbers, found once."""
        key = (find.__name__, *of)
        if key not in self._known:
            self._known[key] = find(*of)
        return self._known[key]

    def _schedules(
        self, pool: int, ranks: int, experts: int, micro_batch: int, chunked: int, filled: int
    ) -> Array:
        """Values of vpp and of the number of micro-batches, by layout.

        Of those that fill it (`filled` = 1), of those that do not (0), or of all (-1).
        """
        layout = self.layouts[pool, ranks]
        if experts > 1:
            fits = (ranks * layout.dp) % experts == 0
            return fits * self._once(self._schedules, pool, ranks, 1, micro_batch, chunked, filled)
        low, high = microbatch_range(self.instance, np.array(micro_batch), layout.dp)
        if filled == 1:
            low = np.maximum(low, layout.pp)
        elif filled == 0:
            high = np.minimum(high, layout.pp - 1)
        number = self.many.schedules(layout.pp, low, high, micro_batch * layout.dp, chunked)
        return number * (low <= high)

    def _nodes(self, pool: int, ranks: int, cp: int) -> Array:
        """Whether layouts without experts can share states within nodes."""
        domain = self.instance.pools[pool].fabric.domain
        return fills_nodes(domain, ranks // cp, cp, 1, self.layouts[pool, ranks].dp)

    def _stages(self, chunked: int, pool: int, hidden: int, ranks: int, cp: int, whole: int) -> Array:
        """Values of the ZeRO stage and its scope, by layout; `whole`: domains hold experts' groups."""
        layout = self.layouts[pool, ranks]
        nodes = self._once(self._nodes, pool, ranks, cp) * whole
        return self.many.stages(chunked, pool, hidden, ranks, layout.pp, cp * layout.dp, nodes)

    def _scopes(self, pool: int, ranks: int, cp: int, whole: int, sharing: int) -> Array:
        """Values of the scope that a pipeline's ZeRO stage (or none) has, by layout."""
        layout = self.layouts[pool, ranks]
        nodes = self._once(self._nodes, pool, ranks, cp) & bool(whole)
        return self.many.scopes(pool, sharing, ranks, layout.pp, cp * layout.dp, nodes)

    def _whole(self, pool: int, experts: int) -> int:
        return int(self.instance.pools[pool].fabric.domain % experts == 0)

    def _by_gpus(self, pool: int, ranks: int) -> Array:
        """Layouts in the order of their GPUs."""
        return np.argsort(self.layouts[pool, ranks].num_gpus, kind="stable")

    def keys(
        self, keys: LayerKeys, at_least: Array, filled: int = -1, check: Callable[[], None] = lambda: None
    ) -> tuple[Array, Array]:
        """Valid candidates of each layer key, and of these the ones on fewer than `at_least` GPUs.

        `filled`: of pipelines that fill (1) or do not (0), or of all. `check`: as in `Ledger.of`.
        """
        valid, few = np.zeros(len(keys), dtype=np.int64), np.zeros(len(keys), dtype=np.int64)
        for of, rows in classes(keys):
            check()
            gpus, total = self.totals_by_gpus(of, filled)
            modes = keys.modes[rows]
            valid[rows] = total[-1] * modes
            few[rows] = total[np.searchsorted(gpus, at_least[rows])] * modes
        return valid, few

    def totals_by_gpus(self, of: tuple[int, ...], filled: int = -1) -> tuple[Array, Array]:
        """GPUs of the layouts of a class, ascending, and candidates on the first 0, 1, 2, ... of them."""
        pool, ranks = of[:2]
        order, each = self._once(self._by_gpus, pool, ranks), self.by_layout(of, filled)
        return self.layouts[pool, ranks].num_gpus[order], np.concatenate([[0], np.cumsum(each[order])])

    def by_layout(self, of: tuple[int, ...], filled: int = -1) -> Array:
        """Candidates of a class on each of its layouts."""
        pool, ranks, experts, micro_batch, cp, hidden = of
        whole, each = self._whole(pool, experts), np.zeros(len(self.layouts[pool, ranks].pp), dtype=np.int64)
        for chunked in values_of(self.many.in_chunks.astype(np.int64)):
            number = self._once(self._schedules, pool, ranks, experts, micro_batch, hidden | chunked, filled)
            each += number * self._once(self._stages, chunked, pool, hidden, ranks, min(cp, 2), whole)
        return each

    def totals_by_pp(self, of: tuple[int, ...], kind: int) -> Array:
        """Candidates of pipelines of a class on the first 0, 1, 2, ... layouts in the order of (pp, dp)."""
        pool, ranks, experts, micro_batch, cp, hidden = of
        (chunked, sharing), filled = divmod(kind // 2, SHARINGS), kind % 2
        number = self._once(self._schedules, pool, ranks, experts, micro_batch, hidden | chunked, filled)
        whole = self._whole(pool, experts)
        each = number * self._once(self._scopes, pool, ranks, min(cp, 2), whole, sharing)
        return np.concatenate([[0], np.cumsum(each)])

    def pipelines(self, rows: Pipelines, at_least: Array, check: Callable[[], None] = lambda: None) -> Array:
        """Valid candidates of each pipeline on `at_least` GPUs or more."""
        number, kind = np.zeros(len(rows), dtype=np.int64), self.many.kinds[rows.zero] * 2 + rows.filled
        for of, some in classes(rows):
            check()
            layout, pp = self.layouts[of[0], of[1]], rows.pp[some]
            # Layouts of one pp lie together, by dp: those with enough replicas are the last ones.
            code = layout.pp * (1 << 40) + layout.dp
            first = np.searchsorted(code, pp * (1 << 40) - (-at_least[some] // (of[1] * pp)))
            last = layout.start[pp + 1]
            for value in values_of(kind[some]):
                this = np.flatnonzero(kind[some] == value)
                total = self.totals_by_pp(of, value)
                number[some[this]] = total[last[this]] - total[first[this]]
        return number * rows.modes


def classes(keys: LayerKeys) -> list[tuple[tuple[int, ...], Array]]:
    """Rows by (pool, tp*cp, ep*etp, micro_batch, cp, hidden)."""
    ranks, experts = keys.tp * keys.cp, keys.ep * keys.etp
    columns = (keys.pool, ranks, experts, keys.micro_batch, keys.cp, keys.hidden)
    if not len(keys):
        return []
    order = np.lexsort(columns)
    changes = np.logical_or.reduce([np.diff(column[order]) != 0 for column in columns])
    parts = np.split(order, np.flatnonzero(changes) + 1)
    return [(tuple(int(column[part[0]]) for column in columns), part) for part in parts]
