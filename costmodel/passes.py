"""Forward and backward seconds, side by side."""

from __future__ import annotations

from typing import NamedTuple

from costmodel.run import Column


class Passes(NamedTuple):
    """Seconds of the forward and of the backward pass of one layer and micro-batch."""

    forward: Column
    backward: Column

    @property
    def both(self) -> Column:
        return self.forward + self.backward


def together(*parts: Passes) -> Passes:
    """One after another."""
    return Passes(sum(p.forward for p in parts), sum(p.backward for p in parts))
