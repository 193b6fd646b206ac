"""What a plan's run loses, keeps and draws, and when it ends: beside the time of its step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from costmodel.energy import Energy
from costmodel.goodput.finish import USUAL
from costmodel.goodput.goodput import Goodput
from costmodel.money import dollars
from costmodel.storage.demand import Demand, Outrun, outrun
from costmodel.units import DAY, GB, HOUR, TB
from planner import solution
from planner.chance import length_quantile, length_spread
from planner.confidence import Band
from planner.economics import asks_for_energy
from planner.instance import Instance, Pool
from planner.running import losses_of
from planner.search.rows import Plan
from planner.site import Site

TAILS = (0.1, 0.9)


@dataclass(frozen=True, slots=True)
class Outlook:
    """One plan's run. Seconds, bytes, USD."""

    instance: Instance
    pool: Pool
    num_gpus: int
    dp: int
    steps: float
    step: float
    losses: Goodput

    @classmethod
    def of(cls, instance: Instance, plan: Plan) -> Outlook:
        """The outlook of a plan of an instance."""
        row, pool = plan.row, instance.pools[plan.of("pool")]
        num_gpus, dp = int(row.num_gpus[0]), plan.of("dp")
        batch = plan.of("micro_batch") * plan.of("m_high") * dp
        steps = instance.tokens / (batch * instance.seq_len)
        return cls(instance, pool, num_gpus, dp, steps, plan.step, losses_of(pool, num_gpus, dp))

    @property
    def seconds(self) -> float:
        """By the clock on the wall."""
        return float(self.losses.wall_seconds(self.steps, self.step))

    @property
    def spare_nodes(self) -> int:
        return int(self.losses.spare_nodes)

    @property
    def stops(self) -> bool:
        """Whether anything stops the run."""
        return self.pool.site is not None and self.pool.site.reliability is not None

    def ideal(self) -> dict[str, float]:
        """Days and dollars if nothing ever stopped the run, and the share of its time that stops leave."""
        days, paid = self.steps * self.step / DAY, self.pool.committed / DAY
        cost = float(dollars(self.num_gpus, days, self.pool.price, paid))
        return {"ideal_days": days, "ideal_dollars": cost, "goodput": float(self.losses.share)}

    def spread(self) -> float:
        """Standard deviation of the logarithm of the run's length that failures make."""
        work = self.steps * (self.step + float(self.losses.evaluation))
        return length_spread(self.pool.site, self.num_gpus, self.losses, work)

    def ends_within(self, share: float, band: Band | None) -> float:
        """Days within which such a share of runs ends (chance.length_quantile)."""
        return self.seconds / DAY * length_quantile(share, band, self.spread())

    def figures(self, band: Band | None) -> dict[str, Any]:
        """What a solution's estimate says beside the step."""
        if not self.stops and band is None:
            return self.ideal() | self.described()
        finish = {f"{share:.0%}": self.ends_within(share, band) for share in USUAL}
        between = None if band is None else tuple(self.ends_within(share, band) for share in TAILS)
        return {
            **self.ideal(),
            "interval_80_days": between,
            "finish_days": finish,
            "losses": self.lost() if self.stops else None,
            **self.described(),
        }

    def lost(self) -> solution.Losses:
        """What stops the run, and how often it saves."""
        of, site = self.losses, self.pool.site
        assert site is not None
        return solution.Losses(
            mtbf_hours=float(of.mtbf) / HOUR,
            stops=self.seconds / float(of.mtbf),
            restart_minutes=float(of.restart) / 60,
            checkpoint_gb=site.checkpoint / GB,
            checkpoint_minutes=float(of.interval) / 60,
            checkpoint_steps=int(of.interval_steps(self.step)),
            stall_s=float(of.saving.stall),
            write_s=float(of.saving.write),
            spare_nodes=self.spare_nodes,
            shares={name: float(value) for name, value in of.shares.items()},
        )

    def described(self) -> dict[str, Any]:
        """Energy and storage, where the problem says anything of them."""
        site, found = self.pool.site, {}
        if site is not None and (site.metered or asks_for_energy(self.instance)):
            of = self.energy(site)
            found["energy"] = solution.Meter(
                mwh=float(of.kwh) / 1e3, tonnes_co2=float(of.tonnes), dollars=float(of.dollars)
            )
        if site is not None and site.stored:
            found["storage"] = kept(self.demand(site))
        return found

    def energy(self, site: Site) -> Energy:
        """Electricity of the run."""
        return site.energy(self.num_gpus, self.seconds, self.losses)

    def demand(self, site: Site) -> Demand:
        """What the run asks of storage."""
        batch = self.instance.tokens / self.steps
        return site.demand(
            self.losses,
            tokens=self.instance.tokens,
            vocab=self.instance.architecture.vocab,
            num_gpus=self.num_gpus,
            wall_seconds=self.seconds,
            batch_tokens=batch,
            step_time=self.step,
        )

    def advice(self) -> list[str]:
        """What the described storage is too slow for, a sentence each."""
        site = self.pool.site
        if site is None or not site.stored:
            return []
        storage = site.storage.resolved(self.num_gpus / site.gpu.gpus_per_node)
        return [
            self._slow(each) for each in outrun(self.demand(site), storage) if each.limit in ("write", "read")
        ]

    def _slow(self, of: Outrun) -> str:
        speeds = f"{of.needed / GB:.3g} GB/s; the storage {of.limit}s {of.described / GB:.3g} GB/s."
        if of.limit == "read":
            return f"Loading data, or restarting in the asked time, reads {speeds}"
        wished, interval = float(self.losses.wished) / 60, float(self.losses.interval) / 60
        longer = f" Checkpoints are {interval:.3g} min apart instead of {wished:.3g}."
        return f"Checkpoints at their best interval write {speeds}" + (longer if interval > wished else "")


def kept(demand: Demand) -> solution.Kept:
    """What a run asks of storage, as a solution says it."""
    return solution.Kept(
        data_tb=float(demand.data) / TB,
        checkpoints_tb=float(demand.checkpoints) / TB,
        logs_tb=float(demand.logs) / TB,
        total_tb=float(demand.capacity) / TB,
        write_gb_s=float(demand.write) / GB,
        read_gb_s=max(float(demand.read), float(demand.restart_read)) / GB,
    )
