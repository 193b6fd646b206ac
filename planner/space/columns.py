"""Rows of decisions: one numpy column a decision."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from planner.space.recompute import FAMILIES, HIDDEN

Array = NDArray[Any]
Rows = TypeVar("Rows", bound="LayerKeys")

FULL, NODE = range(2)
"""Indices of `narrowing.ZERO_SCOPES`."""


@dataclass(frozen=True, slots=True)
class LayerKeys:
    """What fixes the cost of a layer. `pool` indexes the instance's pools."""

    pool: Array
    family: Array
    """How layers are executed (`space.recompute`)."""
    variant: Array
    """Which variant of the family; OPEN where it is not decided yet."""
    tp: Array
    cp: Array
    ep: Array
    etp: Array
    micro_batch: Array
    modes: Array
    """Candidates that a row stands for beside schedules and ZeRO stages: recompute modes, open variants."""

    def __len__(self) -> int:
        return len(self.tp)

    def take(self: Rows, index: Array | slice) -> Rows:
        return type(self)(**{f.name: getattr(self, f.name)[index] for f in fields(self)})

    @property
    def hidden(self) -> Array:
        """Whether the experts' traffic overlaps with compute."""
        return self.family >= HIDDEN

    @classmethod
    def concatenate(cls: type[Rows], parts: list[Rows]) -> Rows:
        return cls(**{f.name: np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls)})

    @classmethod
    def empty(cls: type[Rows]) -> Rows:
        return cls(**{f.name: np.empty(0, dtype=np.int64) for f in fields(cls)})


@dataclass(frozen=True, slots=True)
class Pipelines(LayerKeys):
    """Layer keys with a pipeline and a ZeRO stage."""

    key: Array
    """Row of the layer key in the search's `KeyBook`."""
    pp: Array
    zero: Array
    filled: Array
    """1 where the pipeline fills: pp micro-batches or more. With fewer of them less is kept in flight, and
    the bubble takes as long as the work or longer."""


@dataclass(frozen=True, slots=True)
class Groups(Pipelines):
    """Layouts, one a row."""

    pipeline: Array
    """Row of the pipeline that the search found it under."""
    dp: Array
    zero_scope: Array
    """FULL or NODE."""
    m_low: Array
    m_high: Array

    @property
    def num_gpus(self) -> Array:
        return self.tp * self.cp * self.pp * self.dp


@dataclass(frozen=True, slots=True)
class Candidates(Groups):
    """Layouts with their schedule."""

    vpp: Array


def values_of(column: Array) -> list[int]:
    """The distinct values of a column of small counts, ascending; quicker than numpy's `unique`."""
    return np.flatnonzero(np.bincount(column)).tolist() if len(column) else []


def families(rows: LayerKeys) -> list[tuple[int, int, Array]]:
    """(pool, family, indices) of rows that can be priced together."""
    code = rows.pool * FAMILIES + rows.family
    return [(*divmod(value, FAMILIES), np.flatnonzero(code == value)) for value in values_of(code)]
