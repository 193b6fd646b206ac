"""What a run lasts, costs, draws and keeps, one run at a time: the oracle's own arithmetic.

Written from `docs/goodput.md` with plain numbers and loops: rates added up part by part, the interval
between checkpoints found by trying, spare nodes counted up one at a time. Facts of the site come from
`hardware/data/site`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, exp, expm1, floor, inf, sqrt
from typing import Any

from hardware.site import site_reliability, site_storage
from planner.instance import Instance, Pool

DAY = 86400.0


@dataclass(frozen=True, slots=True)
class Lasting:
    """One run. Seconds, USD, kWh, tonnes, bytes."""

    seconds: float
    dollars: float
    kwh: float = 0.0
    tonnes: float = 0.0
    kept: float = 0.0
    room: float = inf
    spares: int = 0
    save: float = 0.0
    """Seconds until a checkpoint is written that training waits for."""
    start: float = 0.0
    """Seconds before the first step, in `seconds`."""
    goodput: float = 1.0
    """Of the time after that, the share in which the run trains or evaluates."""


def blocked(places: int, load: float) -> float:
    """Erlang's loss formula as its sums: a^n/n! over all that is up to n."""
    terms = [1.0]
    for k in range(1, places + 1):
        terms.append(terms[-1] * load / k)
    return terms[-1] / sum(terms)


def stops(pool: Pool, nodes: float, num_gpus: float) -> tuple[float, float]:
    """Unplanned stops a second, and those that take a node out."""
    assert pool.site is not None
    assert pool.site.reliability is not None
    f, causes = pool.site.reliability.failures, site_reliability().causes
    rates = {
        "gpu": num_gpus * f.gpu,
        "software": num_gpus * f.software,
        "node": nodes * f.node,
        "switch": num_gpus / f.gpus_per_switch * f.switch,
    }
    taken = nodes * f.spot
    return sum(rates.values()) + taken, taken + sum(r for name, r in rates.items() if causes[name].takes_node)


def spares(pool: Pool, nodes: float, num_gpus: float) -> int:
    """Spare nodes beside so many that train."""
    if pool.site is None or pool.site.reliability is None or not pool.site.reliability.repair:
        return 0
    r, count = pool.site.reliability, 0
    if r.spares is not None:
        return r.spares
    load = stops(pool, nodes, num_gpus)[1] * r.repair
    while blocked(count, load) > 1 - r.swap_probability:
        count += 1
    return count


def expected(interval: float, stall: float, write: float, restart: float, mtbf: float) -> float:
    """Wall-clock seconds a second of training."""
    return mtbf * exp((restart + write) / mtbf) * expm1(max(interval + stall, write) / mtbf) / interval


def best_interval(stall: float, write: float, restart: float, mtbf: float) -> float:
    """The best interval, by golden-section search between where a write ends and far beyond Young's."""
    low, high = max(write - stall, 1e-6), max(write - stall, 1e-6) + 20 * sqrt(2 * stall * mtbf) + 1e-6
    golden = (sqrt(5) - 1) / 2
    for _ in range(200):
        a, b = high - golden * (high - low), low + golden * (high - low)
        if expected(a, stall, write, restart, mtbf) <= expected(b, stall, write, restart, mtbf):
            high = b
        else:
            low = a
    return (low + high) / 2


def lasting(instance: Instance, layout: Any, step: float) -> Lasting:
    """The run of a layout (pool, num_gpus, dp, batch) with such a step."""
    pool = instance.pools[layout.pool]
    steps = instance.tokens / (layout.batch * instance.seq_len)
    site, gpus = pool.site, layout.num_gpus
    nodes = gpus / pool.fabric.gpus_per_node
    ready = spares(pool, nodes, gpus)
    seconds, standing, save, start, goodput = steps * step, 0.0, 0.0, 0.0, 1.0
    if site is not None and site.reliability is not None:
        seconds, standing, save, start, goodput = _with_losses(pool, layout, nodes, steps, step, ready)
    paid = max(seconds, pool.committed) / 3600
    dollars = (gpus + ready * pool.fabric.gpus_per_node) * paid * pool.price
    if site is None:
        return Lasting(seconds, dollars)
    watts = site.power.watts(site.gpu)
    work = watts.training * (1 - standing) + watts.idle * standing
    kwh = (nodes * work + ready * watts.idle) * seconds * site.power.pue / 3.6e6
    return Lasting(
        seconds,
        dollars,
        kwh,
        kwh * site.power.carbon / 1e6,
        _kept(instance, pool, gpus, seconds),
        float(site.storage.resolved(nodes).capacity),
        ready,
        save,
        start,
        goodput,
    )


def _with_losses(
    pool: Pool, layout: Any, nodes: float, steps: float, step: float, ready: int
) -> tuple[float, float, float, float, float]:
    """Seconds by the clock, the share of them that the run stands still, what save and start take, goodput."""
    site, gpus = pool.site, layout.num_gpus
    assert site is not None
    assert site.reliability is not None
    r, store, size = site.reliability, site.storage.resolved(nodes), site.checkpoint
    ranks = {"all": gpus, "replica": max(gpus / layout.dp, 1), "one": 1}[r.writers]
    writing = min(float(store.write), ceil(ranks / pool.fabric.gpus_per_node) * float(store.node_write))
    stall = r.checkpoint_overhead + (size / writing if r.mode == "sync" else size / ranks / r.copy_rate)
    write = 0.0 if r.mode == "sync" else size / writing
    reading = min(float(store.read), nodes * float(store.node_read))
    load = size * (1 + (layout.dp - 1) * r.weights_share) / reading
    again = r.relaunch + load + r.warm_up
    restart, mtbf = r.detection + again, 1 / stops(pool, nodes, gpus)[0]
    interval = r.interval or best_interval(stall, write, restart, mtbf)
    slow = expected(interval, stall, write, restart, mtbf)
    planned = 1 + gpus * r.failures.planned * (stall + write + again)
    waiting = blocked(ready + 1, stops(pool, nodes, gpus)[1] * r.repair) if r.repair else 0.0
    evaluating = 0.0 if r.evaluation_steps == inf else r.evaluation / r.evaluation_steps
    seconds = steps * (step + evaluating) * slow * planned / (1 - waiting) + again
    up = (1 - waiting) / planned
    standing = waiting + (1 - waiting - up) + up * (1 - exp(-restart / mtbf))
    return seconds, standing, stall + write, again, up / slow


def _kept(instance: Instance, pool: Pool, gpus: int, seconds: float) -> float:
    """Bytes on storage: text and token ids, checkpoints, logs and time series."""
    site, facts = pool.site, site_storage()
    assert site is not None
    ids = 2 if instance.architecture.vocab <= facts.data.small_vocab else 4
    data = instance.tokens * (facts.data.text_bytes_per_token * facts.data.overhead + ids)
    keep = site.storage.keep
    often = 0 if keep.every is None else floor(seconds / keep.every)
    checkpoints = site.checkpoint * (keep.recent + often + keep.milestones + 1)
    logs = facts.logs.gpu_day * gpus * seconds / DAY
    samples = facts.logs.series_per_gpu * gpus * seconds / facts.logs.series_interval
    return data + checkpoints + logs + samples * facts.logs.sample_bytes
