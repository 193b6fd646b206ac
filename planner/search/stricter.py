"""The search of an instance with other links and no more memory, from what memory leaves in another one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.layer import LayerCost
from planner.instance import Instance
from planner.keybook import KeyBook
from planner.search.goal import Goal
from planner.search.pipelines import PipelineTable, gpu_seconds
from planner.search.table import Table
from planner.space.columns import families
from planner.space.counting import Counter
from planner.space.recompute import family_variants, recompute_families

Array = NDArray[Any]
ROUNDING = 1 - 1e-9


def stricter(table: Table, instance: Instance, goal: Goal) -> Table:
    """A search of the same layer keys and layouts, where times are other ones and no GPU has more memory.

    What has no room in `table` has none here, and if everything that a rank spends time on takes r times as
    long, the least time within the same memory is r times as long: r times it bounds what takes longer still.
    """
    book = KeyBook.of(instance, recompute_families(instance))
    assert (book.keys.family == table.book.keys.family).all(), "other layer keys"
    before, ratio = table.pipelines, cost_ratio(table.book, book) * ROUNDING
    part = PipelineTable.of_rows(book, before.rows)
    each = ratio[part.rows.key]
    part.slowest[:] = np.maximum(part.slowest, each * before.slowest)
    part.extra[:] = each * before.extra
    part.gpu_seconds[:] = gpu_seconds(book, part.rows, part.slowest, part.extra)
    # What had room is looked at again, if it is ever wanted.
    part.known[:] = np.isinf(before.slowest)
    part.by_node[np.isinf(before.by_node)] = np.inf
    result = Table.on(book, goal, part, table.layouts, Counter(instance, table.layouts))
    result.listed[:] = table.listed
    return result


def cost_ratio(before: KeyBook, after: KeyBook) -> Array:
    """(keys,) the least that any part of a layer key's cost is of what it was."""
    ratio = np.full(len(before.keys), np.inf)
    for pool, family, index in families(before.keys):
        # Where the variant is open any may be the best one there.
        for variant in family_variants(before.instance, family):
            old, new = (parts_of(book.cost_of_keys(index, pool, family, variant)) for book in (before, after))
            grown = np.divide(new, old, out=np.full(old.shape, np.inf), where=old > 0)
            ratio[index] = np.minimum(ratio[index], grown.min(axis=-1))
    return np.where(np.isfinite(ratio), ratio, 1.0)


def parts_of(cost: LayerCost) -> Array:
    """(keys, parts) what stages are put together from."""
    return np.concatenate([cost.total, cost.forward, cost.first[:, None], cost.last[:, None]], axis=-1)
