"""What a pool's GPUs lose, cost and draw: the sections of a problem, resolved for plans on that pool."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from costmodel.architecture import Architecture
from costmodel.energy import Energy, run_energy
from costmodel.goodput import goodput
from costmodel.goodput.checkpoint import saved_parameters
from costmodel.goodput.failures import stop_rate, stops_a_month, swap_rate, taken_back
from costmodel.goodput.goodput import Goodput, no_losses
from costmodel.goodput.simulate import Process
from costmodel.money import Bill, Tariff, bill
from costmodel.run import Column
from costmodel.storage.demand import Demand, storage_demand
from costmodel.units import DAY
from hardware.accelerator import Accelerator
from planner.power import Power
from planner.pricing import Pricing
from planner.reliability import Reliability
from planner.storage import Storage


@dataclass(frozen=True, slots=True)
class Site:
    """One pool's surroundings. Bytes, seconds, USD."""

    gpu: Accelerator
    reliability: goodput.Reliability | None
    """None: the time of a step is that of the whole run already."""
    storage: Storage
    checkpoint: float
    """Bytes of a checkpoint."""
    tariff: Tariff
    power: Power
    metered: bool = False
    """Whether the problem describes power."""
    stored: bool = False
    """Whether the problem describes storage."""
    pricing: Pricing | None = None
    """How the problem says that GPUs are paid for, and what else is offered."""

    def losses(self, num_gpus: Column, replicas: Column = 1) -> Goodput:
        """What plans on so many GPUs lose. One row for each entry; distinct numbers of GPUs are few."""
        if self.reliability is None:
            return no_losses(num_gpus)
        nodes = num_gpus / self.gpu.gpus_per_node
        return goodput.goodput(
            self.reliability,
            self.storage.resolved(nodes),
            num_gpus=num_gpus,
            gpus_per_node=self.gpu.gpus_per_node,
            checkpoint=self.checkpoint,
            replicas=replicas,
        )

    def spare_nodes(self, nodes: int) -> int:
        """Spare nodes of one's own that so many training nodes have beside them."""
        return int(self.losses(nodes * self.gpu.gpus_per_node).spare_nodes)

    def training_nodes(self, nodes: int) -> int:
        """The most nodes that can train where so many are, spares included. They only grow with the nodes."""
        if not self.spare_nodes(1):
            return nodes
        spares = self.losses(np.arange(1, nodes + 1) * self.gpu.gpus_per_node).spare_nodes
        return int((np.arange(1, nodes + 1) + spares <= nodes).sum())

    def paid(self, tariff: Tariff, stops: float | None = None) -> Site:
        """The same, paid otherwise; nodes are taken back so many times a month, or as the tariff says."""
        if self.reliability is None:
            return replace(self, tariff=tariff)
        often = stops_a_month(tariff.lost_a_month) if stops is None else stops
        failures = taken_back(self.reliability.failures, often)
        return replace(self, tariff=tariff, reliability=replace(self.reliability, failures=failures))

    def with_room(self, capacity: float) -> Site:
        """The same with so many bytes of storage."""
        return replace(self, storage=self.storage.model_copy(update={"capacity": capacity}))

    def process(self, num_gpus: float, losses: Goodput) -> Process:
        """One plan's failures and checkpoints, for the law of its length."""
        r, node = self.reliability, self.gpu.gpus_per_node
        assert r is not None, "nothing stops a run whose time is agreed"
        return Process(
            mtbf=float(losses.mtbf),
            interval=float(losses.interval),
            stall=float(losses.saving.stall),
            write=float(losses.saving.write),
            restart=float(losses.restart),
            swap_share=float(swap_rate(r.failures, num_gpus, node) / stop_rate(r.failures, num_gpus, node)),
            repair=r.repair,
            spares=int(losses.spare_nodes),
        )

    def bill(self, num_gpus: Column, wall_seconds: Column, losses: Goodput) -> Bill:
        """USD of plans that run for so long, spare nodes of one's own included."""
        spares = losses.spare_nodes * self.gpu.gpus_per_node
        return bill(self.tariff, num_gpus, wall_seconds / DAY, spares)

    def demand(
        self,
        losses: Goodput,
        *,
        tokens: Column,
        vocab: int,
        num_gpus: Column,
        wall_seconds: Column,
        batch_tokens: Column,
        step_time: Column,
    ) -> Demand:
        """What plans keep, write and read; `costmodel.storage.demand.outrun` compares it with the storage."""
        return storage_demand(
            tokens=tokens,
            vocab=vocab,
            num_gpus=num_gpus,
            checkpoint=self.checkpoint,
            losses=losses,
            run_seconds=wall_seconds,
            batch_tokens=batch_tokens,
            step_time=step_time,
            retention=self.storage.retention(),
            load_within=self.storage.load_within,
        )

    def energy(self, num_gpus: Column, wall_seconds: Column, losses: Goodput) -> Energy:
        """Electricity of plans that run for so long; they stand still in restarts and planned stops."""
        shares = losses.shares
        standing = wall_seconds * (shares["restart"] + shares["waiting"] + shares["planned"])
        return run_energy(
            self.power.watts(self.gpu),
            num_nodes=num_gpus / self.gpu.gpus_per_node,
            training=wall_seconds - standing,
            standing=standing,
            spare_nodes=losses.spare_nodes,
            pue=self.power.pue,
            grams_per_kwh=self.power.carbon,
            price_per_kwh=self.power.electricity,
        )


def site_of(
    architecture: Architecture,
    gpu: Accelerator,
    *,
    reliability: Reliability | None = None,
    storage: Storage | None = None,
    pricing: Pricing | None = None,
    power: Power | None = None,
    price: float | None = None,
    committed: float = 0.0,
    agreed_time: bool = False,
) -> Site:
    """The sections for one pool; each may be missing.

    `price` (USD/gpu-hour) and `committed` (seconds) are the pool's own, used where `pricing` does not
    say otherwise. With `agreed_time` (a problem with `assume_mfu`) nothing is lost unless a
    `reliability` section asks for it. Raises `Refused` where a price is not known.
    """
    metered, power = power is not None, power or Power()
    if pricing is not None:
        tariff = pricing.tariff(gpu, power, price)
    else:
        usual = gpu.prices.reserved.typical if price is None else price
        tariff = Tariff("reserved", usual, committed / DAY)
    section = reliability or Reliability()
    ideal = agreed_time and reliability is None
    return Site(
        gpu=gpu,
        reliability=None if ideal else section.resolved(gpu.gpus_per_node, tariff.lost_a_month),
        storage=storage or Storage(),
        checkpoint=section.checkpoint_bytes_per_parameter() * saved_parameters(architecture),
        tariff=tariff,
        power=power,
        metered=metered,
        stored=storage is not None,
        pricing=pricing,
    )
