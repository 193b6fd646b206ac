"""What runs on two pools take at least by the speed of the pools alone: no bubble, no memory, no losses."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.goodput.goodput import no_losses
from costmodel.money import dollars
from costmodel.units import DAY
from planner.economics import asks_for_energy
from planner.instance import Instance, Pool, Term
from planner.keybook import KeyBook
from planner.mixed.arrangement import Arrangement, arrangements
from planner.mixed.bound import SURE
from planner.mixing import Form
from planner.space.recompute import NONE

Array = NDArray[Any]
Totals = dict[Term, Array]
"""What runs take at least: seconds, dollars and, where limits or objective ask for them, kWh and tonnes."""


def floors_of_pairs(instance: Instance, forms: tuple[Form, ...]) -> list[Totals]:
    """Of every arrangement, before all its keys are priced: recompute adds time to layers that have none."""
    book = KeyBook.of(instance, (NONE,), apart=True)
    return [
        floor_of(of, np.array([[pool.min_nodes, pool.max_nodes] for pool in of.both]))
        for of in arrangements(instance, book, forms)
    ]


def floor_of(of: Arrangement, nodes: Array) -> Totals:
    """Of the plans of an arrangement with (2, 2) nodes of each pool, at least and at most.

    With g_i GPU-seconds a token on pool i, n_i GPUs do X = (n_1/g_1 + n_2/g_2)/favour tokens a second at most
    (`bound.favour`), and take r_1*n_1 + r_2*n_2 of what is paid or metered. The ratio is least at a corner.
    """
    keys, instance, both = of.keys, of.instance, of.both
    each = of.seconds * (keys.tp * keys.cp / (keys.micro_batch * float(instance.seq_len)))
    node = np.array([pool.fabric.gpus_per_node for pool in both])
    corners = np.stack(np.meshgrid(*np.maximum(nodes, 1) * node[:, None])).reshape(2, -1)
    seconds = instance.tokens * SURE * of.favour / (corners[:, :, None] / each[:, None, :]).sum(axis=0)
    least: Totals = {"time": seconds.min()}
    for term, rates in _taken_by_gpus(instance, both).items():
        least[term] = (seconds * (rates[:, None] * corners).sum(axis=0)[:, None]).min()
    return least


def _taken_by_gpus(instance: Instance, both: tuple[Pool, Pool]) -> Totals:
    """(2,) what a GPU of each pool takes in a second of training, beside the second."""
    taken: Totals = {"cost": np.array([dollars(1, 1 / DAY, pool.price) for pool in both])}
    if not asks_for_energy(instance):
        return taken
    meters = [None if pool.site is None else pool.site.energy(1, 1.0, no_losses(1)) for pool in both]
    taken["energy"] = np.array([0.0 if of is None else float(of.kwh) for of in meters])
    taken["carbon"] = np.array([0.0 if of is None else float(of.tonnes) for of in meters])
    return taken
