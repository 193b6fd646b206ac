"""What runs lose, cost and draw on each number of nodes: written down once, looked up for columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.goodput.goodput import Goodput, no_losses
from costmodel.money import dollars
from costmodel.run import Column
from costmodel.units import DAY
from planner.instance import Instance, Pool, Term
from planner.site import Site
from planner.space.columns import Groups

Array = NDArray[Any]
FOREVER = 1e12
"""Seconds that no run takes: storage that lasts so long is no limit."""
HALVINGS = 90
"""Of that time, until neighbouring numbers are reached."""


@dataclass(frozen=True, slots=True)
class Running:
    """Columns by pool and number of nodes (1 and up), one pool after the other."""

    before: Array
    """(pools,) the row of a pool's one node, less one."""
    node: Array
    """(pools,) GPUs a node."""
    slowdown: Array
    """Wall-clock seconds for each second of steps and evaluations; the least of any number of replicas."""
    startup: Array
    """Seconds before the first step, and after the last one where a phase ends."""
    evaluation: Array
    """Seconds of evaluation for each step."""
    rent: Array
    """USD a second, spare nodes included."""
    committed: Array
    """Seconds that are paid for even if the run ends sooner."""
    draw: Array
    """kWh a second."""
    emission: Array
    """Tonnes of CO2 a second."""
    room: Array
    """Seconds after which the storage is full; inf where it never is, below 0 where the data do not fit."""
    by_replicas: tuple[bool, ...]
    """Pools where losses depend on the replicas as well, as these write, or read, for themselves."""

    @classmethod
    def of(cls, instance: Instance) -> Running:
        """Of an instance's pools; computed at the first call."""
        if "running" not in instance.derived:
            instance.derived["running"] = cls._written_down(instance)
        return instance.derived["running"]

    @classmethod
    def _written_down(cls, instance: Instance) -> Running:
        sizes = [max(pool.max_nodes, 1) for pool in instance.pools]
        parts = [_columns(instance, pool, size) for pool, size in zip(instance.pools, sizes, strict=True)]
        return cls(
            before=np.cumsum([0, *sizes[:-1]]) - 1,
            node=np.array([pool.fabric.gpus_per_node for pool in instance.pools]),
            by_replicas=tuple(by_replicas(pool.site) for pool in instance.pools),
            **{name: np.concatenate([part[name] for part in parts]) for name in parts[0]},
        )

    def place(self, pool: Array, num_gpus: Array) -> Array:
        """Rows of plans."""
        return self.before[pool] + num_gpus // self.node[pool]

    @property
    def last(self) -> Array:
        """(pools,) the row of a pool's most nodes."""
        return np.append(self.before[1:], len(self.slowdown) - 1)

    @property
    def num_gpus(self) -> Array:
        """GPUs of each row."""
        ends = zip(self.before, self.last, self.node, strict=True)
        return np.concatenate([node * np.arange(1, last - before + 1) for before, last, node in ends])

    def per_gpu_second(self) -> dict[Term, Array]:
        """What a run takes at least for each GPU-second of its steps: seconds, dollars, kWh, tonnes."""
        of: dict[Term, Array] = {"time": self.slowdown / self.num_gpus}
        rates: dict[Term, Array] = {"cost": self.rent, "energy": self.draw, "carbon": self.emission}
        for term, rate in rates.items():
            of[term] = of["time"] * rate
        return of

    def at_least(self, column: Array, pool: Array, num_gpus: Array) -> Array:
        """The least value of a column over so many GPUs or more of a pool."""
        floor = column.copy()
        for before, last in zip(self.before, self.last, strict=True):
            part = floor[before + 1 : last + 1]
            part[:] = np.minimum.accumulate(part[::-1])[::-1]
        nodes = np.maximum(-(-num_gpus // self.node[pool]), 1)
        return floor[np.minimum(self.before[pool] + nodes, self.last[pool])]

    def losses(self, instance: Instance, rows: Groups, place: Array) -> dict[str, Array]:
        """slowdown, startup, draw and emission of plans."""
        names = ("slowdown", "startup", "draw", "emission")
        columns = {name: getattr(self, name)[place] for name in names}
        for index in np.flatnonzero(self.by_replicas):
            of = np.flatnonzero(rows.pool == index)
            pairs = np.stack([rows.num_gpus[of], rows.dp[of]])
            (num_gpus, dp), which = np.unique(pairs, axis=1, return_inverse=True)
            own = _losses(instance, instance.pools[index], num_gpus, dp)
            for name in names:
                columns[name][of] = own[name][which.reshape(-1)]
        return columns


def by_replicas(site: Site | None) -> bool:
    """Whether losses depend on the replicas too, as these write, or read, for themselves."""
    if site is None or site.reliability is None:
        return False
    return site.reliability.writers == "replica" or site.reliability.weights_share > 0


def _columns(instance: Instance, pool: Pool, most: int) -> dict[str, Array]:
    """The columns of one pool, from 1 to `most` nodes."""
    num_gpus = np.arange(1, most + 1) * pool.fabric.gpus_per_node
    lost = losses_of(pool, num_gpus)
    columns = _losses(instance, pool, num_gpus, np.ones_like(num_gpus), lost)
    paid = num_gpus + lost.spare_nodes * pool.fabric.gpus_per_node
    return columns | {
        "evaluation": np.full(most, lost.evaluation),
        "rent": np.asarray(dollars(paid, 1 / DAY, pool.price)),
        "committed": np.full(most, pool.committed),
        "room": room_of(instance, pool.site, num_gpus / pool.fabric.gpus_per_node, num_gpus, lost),
    }


def losses_of(pool: Pool, num_gpus: Column, replicas: Column = 1) -> Goodput:
    """What plans on a pool lose."""
    return no_losses(num_gpus) if pool.site is None else pool.site.losses(num_gpus, replicas)


def save_seconds(lost: Goodput) -> Array:
    """Seconds until a checkpoint is written that training waits for."""
    return np.asarray(lost.saving.stall + lost.saving.write)


def _losses(
    instance: Instance, pool: Pool, num_gpus: Array, replicas: Array, lost: Goodput | None = None
) -> dict[str, Array]:
    lost = losses_of(pool, num_gpus, replicas) if lost is None else lost
    nothing = np.zeros(len(num_gpus))
    ends = save_seconds(lost) if instance.saves else 0.0
    columns = {"slowdown": lost.slowdown + nothing, "startup": lost.startup + ends + nothing}
    if pool.site is None:
        return columns | {"draw": nothing, "emission": nothing}
    a_second = pool.site.energy(num_gpus, 1.0, lost)
    return columns | {"draw": a_second.kwh + nothing, "emission": a_second.tonnes + nothing}


def room_of(instance: Instance, site: Site | None, nodes: Array, num_gpus: Array, lost: Goodput) -> Array:
    """Seconds until what runs keep outgrows the storage, by bisection: it only grows."""
    low = np.full(len(num_gpus), -1.0)
    room = np.inf if site is None else site.storage.resolved(nodes).capacity
    if site is None or not np.isfinite(room).any():
        return low + np.inf

    def fits(seconds: Array) -> Array:
        return kept_by(instance, site, num_gpus, lost, seconds) <= room

    high, none = np.full(len(num_gpus), FOREVER), np.zeros(len(num_gpus))
    low, forever = np.where(fits(none), 0.0, low), fits(high)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        some = fits(middle)
        low, high = np.where(some & (low >= 0), middle, low), np.where(some, high, middle)
    return np.where(forever, np.inf, low)


def kept_by(instance: Instance, site: Site, num_gpus: Array, lost: Goodput, seconds: Array) -> Array:
    """Bytes that are kept during runs of so many seconds."""
    demand = site.demand(
        lost,
        tokens=instance.tokens,
        vocab=instance.architecture.vocab,
        num_gpus=num_gpus,
        wall_seconds=seconds,
        batch_tokens=1.0,
        step_time=1.0,
    )
    return demand.capacity + 0.0 * num_gpus
