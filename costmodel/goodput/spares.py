"""Spare nodes: how many, so that a failed node finds one, and what waiting costs if there are fewer."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.run import Column

MOST_SPARES = 4096
"""A run that needs more of them stands still nearly always."""


def erlang_b(places: Column, offered: Column) -> NDArray[Any]:
    """Probability that all places are taken: Erlang's loss formula (1917), B(0) = 1.

    B(k) = a*B(k-1)/(k + a*B(k-1)), a = arrivals a second x mean time in place, whatever its law.
    """
    places, load = np.broadcast_arrays(np.asarray(places), np.asarray(offered, dtype=float))
    blocked, result = np.ones(load.shape), np.where(places == 0, 1.0, 0.0)
    for k in range(1, int(places.max(initial=0)) + 1):
        blocked = load * blocked / (k + load * blocked)
        result = np.where(places == k, blocked, result)
    return result


def swap_chance(spares: Column, offered: Column) -> NDArray[Any]:
    """Probability that a failed node finds a spare: 1 - B(s, a).

    A run short of a node stands still and does not fail, so at most s + 1 nodes are in repair.
    """
    return 1 - erlang_b(spares, offered)


def waiting_share(spares: Column, offered: Column) -> NDArray[Any]:
    """Share of wall-clock time a run waits for a repair: B(s + 1, a), the state with no spare left."""
    return erlang_b(np.asarray(spares) + 1, offered)


def spares_for(offered: Column, probability: float) -> NDArray[Any]:
    """Fewest spare nodes with which a failed node finds one with that probability; `MOST_SPARES` at most."""
    load = np.asarray(offered, dtype=float)
    blocked, spares = np.ones(load.shape), np.zeros(load.shape, dtype=np.int64)
    for k in range(1, MOST_SPARES + 1):
        short = blocked > 1 - probability
        if not short.any():
            break
        blocked = np.where(short, load * blocked / (k + load * blocked), blocked)
        spares = np.where(short, k, spares)
    return spares
