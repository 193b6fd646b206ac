"""What runs on two pools take at least by the speed of the pools alone: no bubble, no memory, no losses."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.goodput.goodput import no_losses
from costmodel.money import dollars
from costmodel.units import DAY
from planner.economics import asks_for_energy
from planner.instance import Instance, Pool, Term
from planner.mixed.arrangement import Arrangement
from planner.mixed.bound import SURE
from planner.search.floor import gpu_seconds_at_peak

Array = NDArray[Any]
Totals = dict[Term, Array]
"""What runs take at least: seconds, dollars and, where limits or objective ask for them, kWh and tonnes."""


def floor_of_pairs(instance: Instance) -> Totals:
    """Of any plan on two pools: known before a layer is priced."""
    peak, found = gpu_seconds_at_peak(instance), list[Totals]()
    for pair in combinations(range(len(instance.pools)), 2):
        both = instance.pools[pair[0]], instance.pools[pair[1]]
        nodes = np.array([[pool.min_nodes, pool.max_nodes] for pool in both])
        found.append(_floor(instance, both, peak[list(pair), None], np.ones(1), nodes))
    return {term: np.min([of[term] for of in found]) for term in found[0]} if found else {}


def floor_of(of: Arrangement, nodes: Array) -> Totals:
    """Of the plans of an arrangement with (2, 2) nodes of each pool, at least and at most."""
    keys, instance = of.keys, of.instance
    each = of.seconds * (keys.tp * keys.cp / (keys.micro_batch * float(instance.seq_len)))
    return _floor(instance, of.both, each, of.favour, nodes)


def _floor(instance: Instance, both: tuple[Pool, Pool], each: Array, favour: Array, nodes: Array) -> Totals:
    """With (2, keys) GPU-seconds a token and (2, 2) nodes of each pool, at least and at most.

    n_i GPUs do X = (n_1/g_1 + n_2/g_2)/favour tokens a second at most (`bound.favour`), and take r_1*n_1 +
    r_2*n_2 of whatever is paid or metered meanwhile. Their ratio is least at a corner of the nodes.
    """
    node = np.array([pool.fabric.gpus_per_node for pool in both])
    corners = np.stack(np.meshgrid(*np.maximum(nodes, 1) * node[:, None])).reshape(2, -1)
    a_token = favour / (corners[:, :, None] / each[:, None, :]).sum(axis=0)
    seconds = instance.tokens * SURE * a_token
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
