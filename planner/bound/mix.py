"""The layers of a model as bounds see them: how many of each kind, and which come first."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.architecture import Architecture


@dataclass(frozen=True, slots=True)
class LayerMix:
    """Layers of each kind of one model."""

    totals: NDArray[Any]
    """(kinds,)"""
    lead: int
    """Layers of the rarer kind that come before all others, if none of them comes later; else 0."""

    @property
    def layers(self) -> int:
        return int(self.totals.sum())

    @property
    def kind(self) -> int:
        """The most numerous kind."""
        return int(np.argmax(self.totals))

    @classmethod
    def of(cls, architecture: Architecture) -> LayerMix:
        return _mix(architecture)  # pyright: ignore[reportArgumentType]  # frozen pydantic models hash


@cache
def _mix(architecture: Architecture) -> LayerMix:
    pattern, kinds = architecture.pattern(), architecture.kinds
    totals = np.array([pattern.count(kind) for kind in kinds])
    usual = kinds[int(np.argmax(totals))]
    lead = next(i for i, kind in enumerate(pattern) if kind == usual)
    return LayerMix(totals, lead if lead == len(pattern) - pattern.count(usual) else 0)
