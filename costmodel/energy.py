"""Energy and carbon of a run: what nodes draw, what the data centre adds, what the grid emits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.run import Column
from hardware.accelerator import Accelerator
from hardware.site import site_power

Array = NDArray[Any]
JOULES_PER_KWH = 3.6e6
GRAMS_PER_TONNE = 1e6


@dataclass(frozen=True, slots=True)
class NodeWatts:
    """A node at work and at rest."""

    training: float
    idle: float


def node_watts(gpu: Accelerator, utilisation: float | None = None, rated: float | None = None) -> NodeWatts:
    """What a node of such GPUs draws: n*(idle + (TDP - idle)*u) + host.

    u is where GPUs stand between idle and TDP: for training such that they draw `training` of TDP, or
    `utilisation`. The host's share is what a measured node drew beyond its GPUs at TDP; else 0.35 of
    them, at most what the rated power leaves. `rated` replaces all of it with a figure of one's own for
    a node at work. Source: `hardware/data/site/power.yaml`.
    """
    facts, gpus, tdp = site_power().gpu, gpu.gpus_per_node, gpu.power.tdp
    known = site_power().node_of(gpu.name)
    host = facts.host * gpus * tdp
    if known is not None:
        part = gpus / known.gpus
        most = known.rated * part - gpus * tdp
        host = known.measured * part - gpus * tdp if known.measured else min(host, max(most, 0.0))
    share = facts.training if utilisation is None else facts.idle + (1 - facts.idle) * utilisation
    idle = gpus * facts.idle * tdp + host
    return NodeWatts(gpus * share * tdp + host if rated is None else rated, idle)


@dataclass(frozen=True, slots=True)
class Energy:
    """Of a run, a row each."""

    kwh: Array
    """At the meter: with the data centre's overhead."""
    tonnes: Array
    """CO2-equivalent of its electricity."""
    dollars: Array
    """The electricity bill; rent contains it, ownership does not."""


def run_energy(
    watts: NodeWatts,
    *,
    num_nodes: Column,
    training: Column,
    standing: Column = 0.0,
    spare_nodes: Column = 0.0,
    pue: Column,
    grams_per_kwh: Column,
    price_per_kwh: Column = 0.0,
) -> Energy:
    """Energy of nodes that train and stand still for so many seconds, and of spares at rest all along.

    E = (n*(W_train*t + W_idle*t') + s*W_idle*(t + t')) * PUE. Lost work counts as training: it draws as
    much.
    """
    joules = num_nodes * (watts.training * training + watts.idle * standing)
    joules = joules + spare_nodes * watts.idle * (training + standing)
    kwh = np.asarray(joules * pue / JOULES_PER_KWH)
    return Energy(kwh, kwh * grams_per_kwh / GRAMS_PER_TONNE, kwh * price_per_kwh)
