"""What a run on two pools loses, draws and keeps, and when it ends: beside the time of its step."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from costmodel.energy import Energy
from costmodel.money import dollars
from costmodel.units import DAY
from planner.instance import Instance, Pool
from planner.mixed.losses import PairLosses, failures_of_both, nodes_of
from planner.mixed.plan import MixedPlan
from planner.outlook import Outlook
from planner.site import Site


@dataclass(frozen=True, slots=True)
class PairOutlook(Outlook):
    """The outlook of a plan on two pools. `pool` is the first one, with the failures of both."""

    pools: tuple[Pool, Pool] | None = None
    gpus: tuple[int, int] = (0, 0)
    each: PairLosses | None = None

    @classmethod
    def of_pair(cls, instance: Instance, plan: MixedPlan) -> PairOutlook:
        """The outlook of a plan of an instance."""
        pools = instance.pools[plan.pools[0]], instance.pools[plan.pools[1]]
        gpus = np.array(plan.num_gpus)[:, None]
        lost = PairLosses.of(pools, gpus, plan.replicas).take(0)
        steps = instance.tokens / (plan.global_batch * instance.seq_len)
        spares = int(lost.spare_nodes.sum())
        losses = replace(lost.together, spare_nodes=np.asarray(spares))
        pool = replace(pools[0], site=_site_of_both(pools, gpus))
        total = sum(plan.num_gpus)
        return cls(
            instance=instance,
            pool=pool,
            num_gpus=total,
            dp=plan.replicas,
            steps=steps,
            step=plan.step,
            losses=losses,
            pools=pools,
            gpus=plan.num_gpus,
            each=lost,
        )

    def ideal(self) -> dict[str, float]:
        """Days and dollars if nothing ever stopped the run, and the share of its time that stops leave."""
        assert self.pools is not None
        days = self.steps * self.step / DAY
        cost = sum(
            float(dollars(n, days, pool.price, pool.committed / DAY))
            for n, pool in zip(self.gpus, self.pools, strict=True)
        )
        return {"ideal_days": days, "ideal_dollars": cost, "goodput": float(self.losses.share)}

    def energy(self, site: Site) -> Energy:
        """Electricity of both pools."""
        assert self.pools is not None
        assert self.each is not None
        found = [
            pool.site.energy(n, self.seconds, self.each.of_part(index))
            for index, (n, pool) in enumerate(zip(self.gpus, self.pools, strict=True))
            if pool.site is not None
        ]
        parts = [[float(getattr(of, name)) for of in found] for name in ("kwh", "tonnes", "dollars")]
        return Energy(*(np.asarray(sum(values)) for values in parts))


def _site_of_both(pools: tuple[Pool, Pool], gpus: np.ndarray) -> Site | None:
    """The first pool's site with the failures of both."""
    first, second = (pool.site for pool in pools)
    if first is None or second is None or first.reliability is None or second.reliability is None:
        return first
    failures = failures_of_both(
        (first.reliability.failures, second.reliability.failures), gpus, nodes_of(pools, gpus)
    )
    flat = {name: float(np.asarray(getattr(failures, name)).reshape(-1)[0]) for name in failures.__slots__}
    return replace(first, reliability=replace(first.reliability, failures=replace(failures, **flat)))
