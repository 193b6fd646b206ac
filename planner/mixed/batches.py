"""Numbers of micro-batches that a problem allows: by themselves, and by the global batch that they make."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.instance import Instance
from planner.space.layouts import batch_spans, clipped, microbatch_spans

Array = NDArray[Any]


def numbers_permitted(instance: Instance) -> Array:
    """All numbers of micro-batches that the problem's narrowing lets through, smallest first."""
    known = instance.derived.get("numbers_permitted")
    if known is None:
        every = np.arange(1, instance.max_batch + 1)
        known = every[instance.narrowing.permitted("num_microbatches", every)]
        instance.derived["numbers_permitted"] = known
    return known


def numbers_of_batch(instance: Instance, sequences: int) -> Array:
    """Those with which so many sequences a micro-batch, of all replicas together, make an allowed batch."""
    known: dict[int, Array] = instance.derived.setdefault("numbers_of_batch", {})
    if sequences not in known:
        m = numbers_permitted(instance)
        m = m[batch_allowed(instance, m * sequences)]
        known[sequences] = m
    return known[sequences]


def batch_allowed(instance: Instance, batch: Array) -> Array:
    """Which global batches, in sequences, the problem allows."""
    inside = (batch >= instance.min_batch) & (batch <= instance.max_batch)
    return inside & instance.narrowing.permitted("global_batch", batch)


def most_of_batch(instance: Instance, sequences: Array, fewest: Array, most: Array) -> Array:
    """(rows,) the largest number from `fewest` to `most` that makes an allowed batch, 0 if none does."""
    found = np.zeros(len(sequences), dtype=np.int64)
    for numbers, batches in product(microbatch_spans(instance), batch_spans(instance)):
        first, last = clipped(fewest, most, sequences, numbers, batches)
        found = np.where(first <= last, np.maximum(found, last.astype(np.int64)), found)
    return found


def makes_a_batch(instance: Instance, sequences: Array, same: bool) -> Array:
    """Whether rows of so many sequences a micro-batch have any numbers that make an allowed batch.

    Where pools may run different numbers (not `same`) it is asked of the least and the largest batch only.
    """
    if same:
        unlimited = np.full(len(sequences), np.inf)
        return most_of_batch(instance, sequences, np.ones_like(sequences), unlimited) > 0
    numbers = numbers_permitted(instance)
    if not len(numbers):
        return np.zeros(len(sequences), dtype=bool)
    low, high = numbers[0] * sequences, numbers[-1] * sequences
    return (low <= instance.max_batch) & (high >= instance.min_batch)
