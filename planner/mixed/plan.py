"""A plan on two pools, and its description for the cost model."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from costmodel.mixed import Mixed, Part
from planner.instance import Instance
from planner.mixing import Form
from planner.space.recompute import run_of, variants
from planner.stages.problem import StagePlan


@dataclass(frozen=True, slots=True)
class MixedPlan:
    """Every decision of a plan on two pools, and what it takes."""

    form: Form
    pools: tuple[int, int]
    """Of the instance; of stages, the first one holds the first ranks."""
    tp: int
    cp: int
    ep: int
    etp: int
    micro_batch: int
    pp: int
    vpp: int
    zero: int
    split: int
    """Stages: pipeline ranks on the first pool; replicas: 0."""
    dp: tuple[int, int]
    """Replicas on each pool; of stages, all of them twice."""
    num_microbatches: tuple[int, int]
    """Of a replica of each pool; of stages, the same twice."""
    variant: int
    """Modules that are recomputed (`space.recompute`)."""
    stages: StagePlan
    """By virtual stage."""
    step: float
    seconds: float
    dollars: float

    @property
    def key(self) -> tuple[Any, ...]:
        """Every decision but the stages."""
        open_ones = ("stages", "step", "seconds", "dollars")
        return tuple(getattr(self, f.name) for f in fields(self) if f.name not in open_ones)

    @property
    def ranks(self) -> tuple[range, range]:
        """Pipeline ranks that each pool holds."""
        if self.form == "replicas":
            return range(self.pp), range(self.pp)
        return range(self.split), range(self.split, self.pp)

    @property
    def num_gpus(self) -> tuple[int, int]:
        """GPUs of each pool."""
        first, second = (
            self.tp * self.cp * dp * len(ranks) for dp, ranks in zip(self.dp, self.ranks, strict=True)
        )
        return first, second

    @property
    def replicas(self) -> int:
        """Data-parallel replicas of both pools together."""
        return self.dp[0] if self.form == "stages" else sum(self.dp)

    @property
    def global_batch(self) -> int:
        """Sequences a step."""
        each = [dp * m for dp, m in zip(self.dp, self.num_microbatches, strict=True)]
        return self.micro_batch * (each[0] if self.form == "stages" else sum(each))


def mixed_of(instance: Instance, plan: Any) -> Mixed:
    """The cost model's noun of a plan, or of any row with its decisions (all of them but the stages)."""
    assert instance.mixing is not None
    names = ("tp", "cp", "pp", "vpp", "ep", "etp", "micro_batch", "zero")
    shared: dict[str, Any] = {name: getattr(plan, name) for name in names}
    variant = variants(instance.framework)[plan.variant]
    pools = [instance.pools[pool] for pool in plan.pools]
    parts = [
        Part(run_of(instance, pool, variant, dp=dp, num_microbatches=m, **shared), ranks)
        for pool, dp, m, ranks in zip(pools, plan.dp, plan.num_microbatches, plan.ranks, strict=True)
    ]
    return Mixed((parts[0], parts[1]), instance.mixing.link)
