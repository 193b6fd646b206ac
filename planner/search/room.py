"""Which limit leaves candidates no room: their GPUs' memory with its headroom, or what is required of it.

Where `memory_gib <= x` is required, the search looks for room within x. What finds none is looked at once
more, by the same bound, within all that its GPUs have: only without room there it is their memory that lacks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.instance import Instance
from planner.keybook import KeyBook
from planner.required import memory_requirement
from planner.search.pipelines import PipelineTable
from planner.space.columns import Pipelines
from planner.space.counting import Places

Array = NDArray[Any]
MEMORY = "memory"
"""What the limit by the GPUs' own memory is called."""
Full = Callable[[KeyBook], Array]
"""Which of some rows have no room."""


def own_memory(book: KeyBook) -> KeyBook | None:
    """The layer keys with all the memory that their GPUs have; None where they have it anyway."""
    of = book.instance
    return None if of.limits.most_memory is None else replace(book, instance=_not_required(of))


def _not_required(instance: Instance) -> Instance:
    """The instance without its requirement on memory; put together once."""
    name = "without a requirement on memory"
    if name not in instance.derived:
        instance.derived[name] = replace(instance, limits=replace(instance.limits, most_memory=None))
    return instance.derived[name]


def short_of(book: KeyBook, full: Array, look: Full) -> dict[str, Array]:
    """Rows without room by the limit that leaves them none; `look` asks the same of those alone."""
    own, required = own_memory(book), memory_requirement(book.instance)
    if own is None or required is None:
        return {MEMORY: full}
    either, index = full.copy(), np.flatnonzero(full)
    either[index] = look(own) if len(index) else False
    return {MEMORY: either, required.text: full & ~either}


def full_pipelines(book: KeyBook, rows: Pipelines, layouts: Places) -> Array:
    """Pipelines of which no layout has room."""
    table = PipelineTable.of_rows(book, rows)
    table.fit(book, np.arange(len(rows)), layouts)
    return np.isinf(table.slowest)


def full_by_node(book: KeyBook, rows: Pipelines, layouts: Places) -> Array:
    """Pipelines of which no layout has room whose states are shared within nodes."""
    table = PipelineTable.of_rows(book, rows)
    table.fit_by_node(book, np.arange(len(rows)), layouts)
    return np.isinf(table.by_node)
