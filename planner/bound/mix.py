"""The layers of a model as bounds see them: how many of each kind, and which come first."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.architecture import Architecture
from costmodel.pipeline import chunk_sizes
from costmodel.run import Column
from planner.frameworks.rules import even_stages
from planner.instance import Instance

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class LayerMix:
    """Layers of each kind of one model."""

    totals: Array
    """(kinds,)"""
    lead: int
    """Layers of the rarer kind that come before all others, if none of them comes later; else 0."""
    even: bool = False
    """Whether all stages have to hold the same number of layers."""

    @property
    def layers(self) -> int:
        return int(self.totals.sum())

    @property
    def kind(self) -> int:
        """The most numerous kind."""
        return int(np.argmax(self.totals))

    @classmethod
    def of(cls, architecture: Architecture, even: bool = False) -> LayerMix:
        return _mix(architecture, even)  # pyright: ignore[reportArgumentType]  # frozen pydantic models hash

    def least_at_ends(self, pp: Column, chunks: Column) -> Array:
        """Fewest layers beside embedding or head: one; interleaved all of a rank but what the ends lack.

        `chunks` of a rank, or fewer (`level_chunks`): the last one then counts with more than it holds.
        """
        stages = np.asarray(pp)
        if self.even:
            return np.asarray(self.layers // stages)
        of = chunk_sizes(self.layers, stages, np.asarray(chunks))
        return np.where(np.asarray(chunks) > 1, of.held - of.at_last, 1)


def layer_mix(instance: Instance) -> LayerMix:
    """The layers of an instance's model."""
    return LayerMix.of(instance.architecture, even_stages(instance))


@cache
def _mix(architecture: Architecture, even: bool) -> LayerMix:
    pattern, kinds = architecture.pattern(), architecture.kinds
    totals = np.array([pattern.count(kind) for kind in kinds])
    usual = kinds[int(np.argmax(totals))]
    lead = next(i for i, kind in enumerate(pattern) if kind == usual)
    return LayerMix(totals, lead if lead == len(pattern) - pattern.count(usual) else 0, even)
