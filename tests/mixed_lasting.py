"""What a run on two pools lasts, costs, draws and keeps: `lasting` with what adds up over pools added up.

Any part of either pool stops all of the run; a node is replaced by a spare of its own pool, and the run goes
on when both have one; every pool is paid for its own window at least. Checkpoints are written and read by
all nodes together.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, exp, inf

from lasting import DAY, Lasting, best_interval, blocked, expected, spares, stops

from hardware.site import site_storage
from planner.instance import Instance, Pool


@dataclass(frozen=True, slots=True)
class Share:
    """What a run has of one pool."""

    pool: Pool
    num_gpus: int

    @property
    def nodes(self) -> float:
        return self.num_gpus / self.pool.fabric.gpus_per_node

    @property
    def ready(self) -> int:
        """Spare nodes of the pool."""
        return spares(self.pool, self.nodes, self.num_gpus)

    def dollars(self, seconds: float) -> float:
        paid = max(seconds, self.pool.committed) / 3600
        return (self.num_gpus + self.ready * self.pool.fabric.gpus_per_node) * paid * self.pool.price

    def waits(self) -> float:
        """Share of the time that a node of this pool is missed."""
        assert self.pool.site is not None
        assert self.pool.site.reliability is not None
        repair = self.pool.site.reliability.repair
        load = stops(self.pool, self.nodes, self.num_gpus)[1] * repair
        return blocked(self.ready + 1, load) if repair else 0.0

    def kwh(self, seconds: float, standing: float) -> float:
        """At the meter, of a run that stands still for such a share of the time."""
        site = self.pool.site
        assert site is not None
        watts = site.power.watts(site.gpu)
        work = watts.training * (1 - standing) + watts.idle * standing
        return (self.nodes * work + self.ready * watts.idle) * seconds * site.power.pue / 3.6e6


def mixed_lasting(
    instance: Instance, shares: tuple[Share, Share], dp: int, batch: int, step: float
) -> Lasting:
    """The run on two pools of `dp` replicas and `batch` sequences a step."""
    steps = instance.tokens / (batch * instance.seq_len)
    site = shares[0].pool.site
    seconds, standing, save, goodput = steps * step, 0.0, 0.0, 1.0
    if site is not None and site.reliability is not None:
        seconds, standing, save, goodput = _with_losses(shares, dp, steps, step)
    dollars = sum(share.dollars(seconds) for share in shares)
    if site is None:
        return Lasting(seconds, dollars)
    kwh = sum(share.kwh(seconds, standing) for share in shares)
    return Lasting(
        seconds,
        dollars,
        kwh,
        kwh * site.power.carbon / 1e6,
        _kept(instance, shares, seconds),
        float(site.storage.resolved(sum(share.nodes for share in shares)).capacity),
        sum(share.ready for share in shares),
        save,
        goodput=goodput,
    )


def _with_losses(
    shares: tuple[Share, Share], dp: int, steps: float, step: float
) -> tuple[float, float, float, float]:
    """As `lasting._with_losses`, without the start."""
    gpus, nodes = sum(share.num_gpus for share in shares), sum(share.nodes for share in shares)
    site = shares[0].pool.site
    assert site is not None
    assert site.reliability is not None
    r, store, size = site.reliability, site.storage.resolved(nodes), site.checkpoint
    ranks = {"all": gpus, "replica": max(gpus / dp, 1), "one": 1}[r.writers]
    writing = min(float(store.write), ceil(ranks / (gpus / nodes) - 1e-9) * float(store.node_write))
    stall = r.checkpoint_overhead + (size / writing if r.mode == "sync" else size / ranks / r.copy_rate)
    write = 0.0 if r.mode == "sync" else size / writing
    reading = min(float(store.read), nodes * float(store.node_read))
    again = r.relaunch + size * (1 + (dp - 1) * r.weights_share) / reading + r.warm_up
    restart = r.detection + again
    mtbf = 1 / sum(stops(share.pool, share.nodes, share.num_gpus)[0] for share in shares)
    interval = r.interval or best_interval(stall, write, restart, mtbf)
    slow = expected(interval, stall, write, restart, mtbf)
    planned = 1.0
    for share in shares:
        assert share.pool.site is not None
        assert share.pool.site.reliability is not None
        planned += share.num_gpus * share.pool.site.reliability.failures.planned * (stall + write + again)
    waiting = 1 - (1 - shares[0].waits()) * (1 - shares[1].waits())
    evaluating = 0.0 if r.evaluation_steps == inf else r.evaluation / r.evaluation_steps
    seconds = steps * (step + evaluating) * slow * planned / (1 - waiting) + again
    up = (1 - waiting) / planned
    standing = waiting + (1 - waiting - up) + up * (1 - exp(-restart / mtbf))
    return seconds, standing, stall + write, up / slow


def _kept(instance: Instance, shares: tuple[Share, Share], seconds: float) -> float:
    """As `lasting._kept`."""
    site, facts, gpus = shares[0].pool.site, site_storage(), sum(share.num_gpus for share in shares)
    assert site is not None
    ids = 2 if instance.architecture.vocab <= facts.data.small_vocab else 4
    data = instance.tokens * (facts.data.text_bytes_per_token * facts.data.overhead + ids)
    keep = site.storage.keep
    often = 0 if keep.every is None else int(seconds // keep.every)
    checkpoints = site.checkpoint * (keep.recent + often + keep.milestones + 1)
    logs = facts.logs.gpu_day * gpus * seconds / DAY
    samples = facts.logs.series_per_gpu * gpus * seconds / facts.logs.series_interval
    return data + checkpoints + logs + samples * facts.logs.sample_bytes
