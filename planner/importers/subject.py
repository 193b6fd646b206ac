"""A launch that can be estimated, and its estimate with single keys changed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costmodel.estimate import Estimate, estimate
from costmodel.memory.overhead import memory_limit
from planner.importers.launch import Launch
from planner.runs import DescribedRun, describe


@dataclass(frozen=True, slots=True)
class Subject:
    """A launch that can be estimated."""

    launch: Launch
    described: DescribedRun
    estimate: Estimate
    """With the bytes that the device holds, however the framework tells them."""
    folder: Path = Path()
    """Where files that the run names lie."""

    @property
    def limit(self) -> float:
        """Bytes up to which a plan counts as fitting."""
        return memory_limit(self.described.run.gpu, self.described.run.stack.memory)

    def variant(self, **changes: Any) -> Estimate | None:
        """The launch with some keys changed; nothing where that cannot be."""
        changed = describe(self.launch.written | changes, folder=self.folder)
        return predicted(changed) if isinstance(changed, DescribedRun) else None


def predicted(described: DescribedRun) -> Estimate | None:
    """The estimate of a run; nothing where the model refuses it."""
    try:
        return estimate(described.run, described.layers, described.recomputed)
    except ValueError:
        return None
