"""What layouts on two pools cost, before layers are laid out: rates of each pool, transfers, end of step."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.records import gather
from costmodel.stage import PerLayer, StageRates
from planner.bound.mix import LayerMix
from planner.bound.quick import per_step_floor

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Around:
    """What a step takes beside the ranks' work: (lines, rows), (2, rows) or (rows,)."""

    steady: Array
    """(lines, rows) exposed transfer a micro-batch."""
    fill: Array
    """(lines, rows)"""
    end: Array
    """(rows,) least exposed data-parallel and optimizer time of the worst rank."""
    fixed: Array
    """(2, rows) of each pool."""
    scale: Array
    """(rows,)"""
    vpp: Array
    """(rows,) chunks of a rank, or the most that they may be."""
    micro_batch: float
    """Seconds a step for each micro-batch."""
    bubble: float

    def take(self, index: Any) -> Around:
        """Of some rows."""
        names = ("steady", "fill", "end", "fixed", "scale", "vpp")
        return replace(self, **{name: getattr(self, name)[..., index] for name in names})

    @classmethod
    def nothing(cls, lines: int, scale: Array, vpp: Array, bubble: float) -> Around:
        """Only bubble and stragglers."""
        none = np.zeros(scale.shape)
        wide = np.broadcast_to(none, (2, *none.shape))
        return cls(wide[:lines], wide[:lines], none, wide, scale, vpp, 0.0, bubble)


@dataclass(frozen=True, slots=True)
class MixedCosts:
    """What rows of one arrangement and recompute family cost, before layers are laid out."""

    one_pipeline: bool
    """Whether a pipeline is over both pools: plans of stages, not of replicas."""
    rates: tuple[StageRates, StageRates]
    """Of each pool; their `fixed` is that of no micro-batch."""
    steady: Array
    """(lines, rows) exposed transfer a micro-batch."""
    fill: Array
    """(lines, rows)"""
    pp: Array
    vpp: Array
    split: Array
    limits: tuple[float, float]
    """Bytes of a GPU of each pool."""
    micro_batch: float
    """Seconds a step for each micro-batch that the optimizer's hooks take."""

    def take(self, index: Any) -> MixedCosts:
        """Of some rows."""
        rates = gather(self.rates[0], index), gather(self.rates[1], index)
        columns = {name: getattr(self, name)[..., index] for name in ("steady", "fill", "pp", "vpp", "split")}
        return replace(self, rates=rates, **columns)

    def around(self, mix: LayerMix) -> Around:
        """What surrounds the ranks' work."""
        first, second = self.rates
        return Around(
            self.steady,
            self.fill,
            self._end(mix),
            np.stack([first.fixed, second.fixed]),
            np.maximum(first.scale, second.scale),
            self.vpp,
            self.micro_batch,
            first.bubble,
        )

    def _end(self, mix: LayerMix) -> Array:
        if not self.one_pipeline:
            each = [per_step_floor(of, mix.totals, self.pp, 1.0) for of in self.rates]
            return np.maximum(each[0], each[1])
        # Whatever lies where: traffic of the quicker pool, hidden behind the busier one.
        first, second = self.rates
        least = {name: of_both(np.minimum, first, second, name) for name in ("reduce", "gather", "optimizer")}
        most = {name: of_both(np.maximum, first, second, name) for name in ("work", "recompute")}
        return per_step_floor(replace(first, **least, **most), mix.totals, self.pp, 1.0)


def of_both(choose: Any, first: StageRates, second: StageRates, name: str) -> Any:
    """A rate of either pool, chosen by `np.minimum` or `np.maximum`, part by part."""
    a, b = getattr(first, name), getattr(second, name)
    if isinstance(a, PerLayer):
        return PerLayer(*(choose(getattr(a, f.name), getattr(b, f.name)) for f in fields(PerLayer)))
    return choose(a, b)
