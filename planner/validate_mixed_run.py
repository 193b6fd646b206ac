"""A returned plan's run on two pools, from the problem's sections: for the validator."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costmodel.energy import run_energy
from costmodel.goodput import goodput
from costmodel.goodput.checkpoint import saving
from costmodel.goodput.failures import stop_rate, swap_rate
from costmodel.goodput.interval import expected_seconds, optimal_interval
from costmodel.goodput.restart import load_seconds, restart_seconds
from costmodel.goodput.spares import spares_for, waiting_share
from costmodel.money import bill
from costmodel.storage.data import text_bytes, token_id_bytes
from costmodel.storage.logs import usual_log_bytes
from costmodel.storage.retention import kept_bytes
from costmodel.units import DAY
from hardware.site import site_storage
from planner.pool import Pool
from planner.problem import Problem
from planner.site import Site
from planner.solution import Decisions
from planner.validate_run import Lasting, site_of_pool

Pools = tuple[Pool, Pool]


@dataclass(frozen=True, slots=True)
class Share:
    """What a run has of one pool."""

    site: Site
    num_gpus: int
    nodes: int

    @property
    def in_repair(self) -> float:
        """Nodes of the pool that are in repair at a time, on average."""
        r = self.site.reliability
        return 0.0 if r is None else float(swap_rate(r.failures, self.num_gpus, self.node)) * r.repair

    @property
    def node(self) -> int:
        """GPUs of a node."""
        return self.num_gpus // self.nodes

    @property
    def spares(self) -> int:
        """Spare nodes of the pool: no other pool's node can take the place of one of its own."""
        r = self.site.reliability
        if r is None or not r.repair:
            return 0
        return int(spares_for(self.in_repair, r.swap_probability)) if r.spares is None else r.spares

    @property
    def stops(self) -> float:
        """Unplanned stops a second."""
        r = self.site.reliability
        return 0.0 if r is None else float(stop_rate(r.failures, self.num_gpus, self.node))

    @property
    def up(self) -> float:
        """Share of the time that no node of the pool is missed."""
        return 1 - float(waiting_share(self.spares, self.in_repair)) if self.in_repair else 1.0

    def dollars(self, seconds: float) -> float:
        """What the pool is paid for such a run, or for its own committed window."""
        return float(bill(self.site.tariff, self.num_gpus, seconds / DAY, self.spares * self.node).total)

    def kwh(self, seconds: float, standing: float) -> float:
        """Electricity at the meter of a run that stands still for so many of its seconds."""
        power = self.site.power
        used = run_energy(
            power.watts(self.site.gpu),
            num_nodes=self.nodes,
            training=seconds - standing,
            standing=standing,
            spare_nodes=self.spares,
            pue=power.pue,
            grams_per_kwh=power.carbon,
        )
        return float(used.kwh)


def shares_of(problem: Problem, pools: Pools, d: Decisions) -> tuple[Share, Share]:
    """What the run has of each pool."""
    first, second = (
        Share(site_of_pool(problem, pool), part.num_gpus, part.nodes)
        for pool, part in zip(pools, d.parts, strict=True)
    )
    return first, second


def lasts_on_both(problem: Problem, shares: tuple[Share, Share], d: Decisions, step: float) -> Lasting:
    """The whole run: what stops any part stops all of it; rent and electricity of both add up."""
    site, training = shares[0].site, problem.training
    steps = training.tokens / (d.global_batch * training.seq_len)
    seconds, standing, kept_up = _by_the_clock(shares, d, steps, step)
    kwh = sum(share.kwh(seconds, standing) for share in shares)
    nodes = sum(share.nodes for share in shares)
    return Lasting(
        seconds=seconds,
        ideal=steps * step,
        goodput=kept_up,
        dollars=sum(share.dollars(seconds) for share in shares),
        nodes=nodes + sum(share.spares for share in shares),
        kwh=kwh,
        tonnes=kwh * site.power.carbon / 1e6,
        kept=_kept(problem, site, sum(share.num_gpus for share in shares), seconds),
        room=float(np.asarray(site.storage.resolved(nodes).capacity)),
    )


def _by_the_clock(
    shares: tuple[Share, Share], d: Decisions, steps: float, step: float
) -> tuple[float, float, float]:
    """Seconds of the run, how many of them it stands still, and the share of a started run that is not lost.

    Stops of both pools add up; the run goes on while neither misses a node; all nodes share the storage.
    """
    site, r = shares[0].site, shares[0].site.reliability
    if r is None:
        return steps * step, 0.0, 1.0
    stall, write, again = _checkpoints(site, r, shares, d)
    restart, mtbf = r.detection + again, 1 / sum(share.stops for share in shares)
    interval = float(optimal_interval(stall, mtbf, write)) if r.interval is None else r.interval
    slowdown = float(expected_seconds(interval, stall, write, restart, mtbf))
    planned = 1.0
    for share in shares:
        rate = share.site.reliability.failures.planned if share.site.reliability else 0.0
        planned += share.num_gpus * rate * (stall + write + again)
    up = shares[0].up * shares[1].up
    evaluation = r.evaluation / r.evaluation_steps
    kept_up = up / (slowdown * planned)
    seconds = steps * (step + evaluation) / kept_up + again
    training = up / planned * float(np.exp(-restart / mtbf))
    return seconds, seconds * (1 - training), kept_up


def _checkpoints(
    site: Site, r: goodput.Reliability, shares: tuple[Share, Share], d: Decisions
) -> tuple[float, float, float]:
    """Seconds that a checkpoint stops training, that it is written after that, and that a new start takes."""
    nodes, gpus = sum(share.nodes for share in shares), sum(share.num_gpus for share in shares)
    storage, size = site.storage.resolved(nodes), site.checkpoint
    save = saving(
        size,
        storage,
        num_gpus=gpus,
        gpus_per_node=gpus / nodes,
        mode=r.mode,
        writers=r.writers,
        replicas=d.dp,
        copy_rate=r.copy_rate,
        overhead=r.checkpoint_overhead,
    )
    weights = size * r.weights_share
    load = load_seconds(size, storage, num_nodes=nodes, weight_bytes=weights, copies=d.dp)
    return float(save.stall), float(save.write), float(restart_seconds(0.0, r.relaunch, load, r.warm_up))


def _kept(problem: Problem, site: Site, num_gpus: int, seconds: float) -> float:
    """Bytes on storage: the data set, checkpoints, logs."""
    facts, tokens = site_storage().data, problem.training.tokens
    text = text_bytes(tokens, facts.text_bytes_per_token, facts.overhead)
    ids = tokens * token_id_bytes(problem.model.architecture.vocab)
    checkpoints = kept_bytes(site.checkpoint, site.storage.retention().count(seconds))
    return float(text + ids + checkpoints + usual_log_bytes(num_gpus, seconds / DAY))
