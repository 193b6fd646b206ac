"""Days, dollars and energy of runs on two pools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.money import dollars
from costmodel.units import DAY
from planner.economics import Economy, asks_for_energy
from planner.hfu import again_of, model_flops
from planner.instance import Instance, Pool, Term
from planner.mixed.losses import PairLosses, nodes_of
from planner.required import lasting_enough, longest_runs
from planner.requirements import Requirement
from planner.running import room_of
from planner.space.recompute import ALL, PLAIN

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class PairEconomy(Economy):
    """The economy of rows on two pools.

    `rent` is that of both together, `committed` the shorter of their windows.
    """

    longer_rent: Array | None = None
    """Dollars a second of the pool whose window is longer."""
    longer: Array | None = None
    """Seconds of that window."""

    def total(self, term: Term, seconds: Array) -> Array:
        """What a run of so many seconds takes; each pool is paid for its own window at least."""
        # Not super(): a dataclass with slots is another class than the one that its methods close over.
        spent = Economy.total(self, term, seconds)
        if term != "cost":
            return spent
        return spent + self.longer_rent * np.maximum(self.longer - np.maximum(seconds, self.committed), 0.0)

    def affordable(self, dollars: float) -> Array:
        """The longest run that costs at most so much; 0 where the committed windows alone are dearer.

        Up to the end of the longer window only the other pool is paid by the second.
        """
        both = Economy.affordable(self, dollars)
        assert self.longer is not None
        assert self.longer_rent is not None
        beside = (dollars - self.longer_rent * self.longer) / (self.rent - self.longer_rent)
        return np.where((both > 0) & (both < self.longer), beside, both)


def economy_of(
    instance: Instance, pools: tuple[Pool, Pool], num_gpus: Array, tokens_a_step: Array, replicas: Any = 1
) -> PairEconomy:
    """Of rows with (2, rows) GPUs and so many tokens a step."""
    running = Running.of(instance, pools, num_gpus, replicas)
    return running.economy(instance, pools, tokens_a_step)


@dataclass(frozen=True, slots=True)
class Running:
    """What is fixed by the GPUs: (rows,) each, as `planner.running.Running` has it for one pool."""

    num_gpus: Array
    """(2, rows)"""
    slowdown: Array
    startup: Array
    evaluation: float
    rent: Array
    """(2, rows) USD a second of each pool, its spare nodes included."""
    draw: Array
    emission: Array
    room: Array

    @classmethod
    def of(cls, instance: Instance, pools: tuple[Pool, Pool], num_gpus: Array, replicas: Any = 1) -> Running:
        """Of (2, rows) GPUs."""
        lost, total = PairLosses.of(pools, num_gpus, replicas), num_gpus.sum(axis=0)
        nodes, nothing = nodes_of(pools, num_gpus), np.zeros(total.shape)
        node = np.array([pool.fabric.gpus_per_node for pool in pools])[:, None]
        paid = num_gpus + lost.spare_nodes * node
        meters = [
            pool.site.energy(num_gpus[index], 1.0, lost.of_part(index))
            for index, pool in enumerate(pools)
            if pool.site is not None
        ]
        return cls(
            num_gpus,
            lost.together.slowdown + nothing,
            lost.together.startup + nothing,
            float(lost.together.evaluation),
            np.stack([dollars(n, 1 / DAY, pool.price) for n, pool in zip(paid, pools, strict=True)]),
            sum((meter.kwh for meter in meters), nothing),
            sum((meter.tonnes for meter in meters), nothing),
            room_of(instance, pools[0].site, nodes.sum(axis=0), total, lost.together),
        )

    def take(self, index: Array) -> Running:
        """Of some rows."""
        return Running(
            self.num_gpus[:, index],
            self.slowdown[index],
            self.startup[index],
            self.evaluation,
            self.rent[:, index],
            self.draw[index],
            self.emission[index],
            self.room[index],
        )

    def economy(
        self, instance: Instance, pools: tuple[Pool, Pool], tokens_a_step: Array, again: Any = None
    ) -> PairEconomy:
        """With so many tokens a step; (rows,) or with more axes before that one.

        `again`: FLOPs of a token that are recomputed at most; those of all layers unless given.
        """
        each = instance.tokens / tokens_a_step * self.slowdown
        fixed = each * self.evaluation + self.startup
        windows = np.array([pool.committed for pool in pools])
        late = int(windows[1] > windows[0])
        shape = np.shape(each)
        steps = self._longest_steps(instance, pools, tokens_a_step, again)
        metered = asks_for_energy(instance)

        def wide(column: Any) -> Array:
            return np.broadcast_to(column, shape)

        return PairEconomy(
            each,
            wide(fixed),
            wide(self.rent.sum(axis=0)),
            wide(windows[1 - late]),
            wide(self.num_gpus.sum(axis=0).astype(float)),
            wide(self.draw) if metered else None,
            wide(self.emission) if metered else None,
            wide(self.room) if np.isfinite(self.room).any() else None,
            None,
            None if steps is None else longest_runs(steps, each, fixed),
            wide(self.rent[late]),
            wide(windows[late]),
        )

    def _longest_steps(
        self, instance: Instance, pools: tuple[Pool, Pool], tokens_a_step: Array, again: Any
    ) -> Array | None:
        """(rows, requirements): seconds that requirements let steps take (`planner.required`)."""
        if not instance.limits.steps:
            return None
        shape, model = np.shape(tokens_a_step), model_flops(instance)
        again = again_of(instance, ALL, PLAIN) if again is None else again

        def longest(of: Requirement) -> Array:
            if of.name == "goodput":
                return np.broadcast_to(lasting_enough(of, self.slowdown), shape)
            if of.name == "step_time_s":
                return np.full(shape, of.value)
            if of.name == "tokens_per_s_per_gpu":
                return tokens_a_step / self.num_gpus.sum(axis=0) / of.value
            flops = model + (again if of.name == "hfu" else 0.0)
            return tokens_a_step * flops / peak_of_both(pools, self.num_gpus) / of.value

        return np.stack([longest(of) for of in instance.limits.steps], axis=-1)


def peak_of_both(pools: tuple[Pool, Pool], num_gpus: Array) -> Array:
    """FLOP/s of (2, rows) GPUs."""
    return np.tensordot([pool.gpu.peak_flops["bf16"] for pool in pools], num_gpus, axes=1)
