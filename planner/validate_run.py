"""A returned plan's run from beginning to end, from the problem's sections: for the validator."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costmodel.estimate import Estimate
from planner.pool import Pool
from planner.problem import Problem
from planner.site import Site
from planner.solution import Plan


@dataclass(frozen=True, slots=True)
class Lasting:
    """A run from beginning to end."""

    seconds: float
    """By the clock on the wall."""
    ideal: float
    """Seconds if nothing stopped it."""
    goodput: float
    dollars: float
    nodes: int
    """Spares included."""
    kwh: float
    tonnes: float
    kept: float
    """Bytes on storage."""
    room: float


def site_of_pool(problem: Problem, pool: Pool) -> Site:
    """What surrounds one of the problem's pools."""
    return next(site for of, site in zip(problem.hardware, problem.sites, strict=True) if of is pool)


def trainable(site: Site, there: int) -> int:
    """The most nodes of a pool that leave room for their spares."""
    nodes = there
    while nodes and nodes + site.spare_nodes(nodes) > there:
        nodes -= 1
    return nodes


def lasts(problem: Problem, site: Site, plan: Plan, predicted: Estimate) -> Lasting:
    """The whole run from its sections: losses, bill, energy, and what is kept."""
    d, training = plan.decisions, problem.training
    batch = d.global_batch * training.seq_len
    losses = site.losses(d.num_gpus, d.dp)
    seconds = float(losses.wall_seconds(training.tokens / batch, predicted.step_time))
    demand = site.demand(
        losses,
        tokens=training.tokens,
        vocab=problem.model.architecture.vocab,
        num_gpus=d.num_gpus,
        wall_seconds=seconds,
        batch_tokens=batch,
        step_time=predicted.step_time,
    )
    energy = site.energy(d.num_gpus, seconds, losses)
    return Lasting(
        seconds=seconds,
        ideal=training.tokens / batch * predicted.step_time,
        goodput=1 / float(losses.slowdown),
        dollars=float(site.bill(d.num_gpus, seconds, losses).total),
        nodes=d.nodes + int(losses.spare_nodes),
        kwh=float(energy.kwh),
        tonnes=float(energy.tonnes),
        kept=float(demand.capacity),
        room=float(np.asarray(site.storage.resolved(d.nodes).capacity)),
    )
