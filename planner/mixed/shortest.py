"""The shortest pipelines that memory lets layer keys have: what any plan with them idles at least."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.memory.overhead import fixed_bytes
from costmodel.records import gather
from costmodel.stage import StageRates
from planner.bound.fit import may_fit
from planner.bound.mix import layer_mix
from planner.mixed.arrangement import Arrangement
from planner.mixed.costs import of_both
from planner.mixed.layouts import least_bubble
from planner.search.goal import Effort
from planner.search.roomy import least_states
from planner.search.rows import memory_limit
from planner.space.columns import FULL, Groups, LayerKeys, families
from planner.space.recompute import stage_recompute
from planner.space.runs import run_of_rows

Array = NDArray[Any]
LENGTHS = 8
"""Numbers of stages that are looked at together."""
OF_MEMORY = ("states", "kept", "checkpoint", "working", "fixed_bytes")
"""Rates that `may_fit` looks at."""


@dataclass(frozen=True, slots=True)
class Shortest:
    """Stages of the shortest pipeline of each key that memory allows: (keys,), inf where none fits."""

    filled: Array
    """Of those that run as many micro-batches as they have ranks, or more."""
    unfilled: Array
    """Of any, with a single micro-batch in flight."""
    idle: Array
    """Of those that fill, the part of a micro-batch's time on all ranks that the bubble takes at least, of
    replicas with as many chunks as there may be (`least_bubble`)."""

    @classmethod
    def of(cls, of: Arrangement, effort: Effort) -> Shortest:
        """Of pipelines on each pool the longer one; over both, every rank has the room of the larger GPU."""
        instance, keys = of.instance, of.keys
        every = np.arange(2 if of.form == "stages" else 1, instance.architecture.layers + 1)
        every, found = every[instance.narrowing.permitted("pp", every)], np.full((2, len(keys)), np.inf)
        for _, family, at in families(keys):
            rooms = _rooms(of, at)
            for shortest, filled in zip(found, (True, False), strict=True):
                # The shorter ones first: most keys need no longer ones.
                for some in np.split(every, range(LENGTHS, len(every), LENGTHS)):
                    effort.check()
                    left = np.flatnonzero(np.isinf(shortest[at]))
                    pp, which = np.repeat(some, len(left)), np.tile(left, len(some))
                    fits = np.ones(len(pp), dtype=bool)
                    for rates, limit in rooms:
                        own, recomputes = gather(rates, which), stage_recompute(family) != "none"
                        fewest = pp if filled else np.ones_like(pp)
                        fits &= may_fit(own, layer_mix(instance), pp, fewest, limit, recomputes)
                    np.minimum.at(shortest, at[which[fits]], pp[fits].astype(float))
        return cls(found[0], found[1], _idle(of, found[0]))


def _idle(of: Arrangement, filled: Array) -> Array:
    if of.form == "stages":
        return 1 - 1 / filled
    some = np.where(np.isfinite(filled), filled, 0).astype(np.int64)
    return np.where(np.isfinite(filled), least_bubble(of.instance)[some], np.inf)


def _rooms(of: Arrangement, at: Array) -> list[tuple[StageRates, float]]:
    """Rates of some keys of a family and bytes of a GPU, of all pools that have to hold whole pipelines."""
    rates = [_rates(of, side, at) for side in (0, 1)]
    limits = [memory_limit(of.instance, pool) for pool in of.pools]
    if of.form == "replicas":
        return list(zip(rates, limits, strict=True))
    least = {name: of_both(np.minimum, rates[0], rates[1], name) for name in OF_MEMORY}
    return [(replace(rates[0], **least), max(limits))]


def _rates(of: Arrangement, side: int, at: Array) -> StageRates:
    """Rates of some keys of a family on one pool, their states shared by all the ranks there are."""
    keys, instance = of.book.keys.take(of.key[side][at]), of.instance
    one, experts = np.ones_like(keys.tp), keys.ep * keys.etp
    ranks = sum(pool.max_nodes * pool.fabric.gpus_per_node for pool in of.both)
    columns: dict[str, Array] = {f.name: getattr(keys, f.name) for f in fields(LayerKeys)}
    columns |= {"key": of.key[side][at], "pp": one, "filled": one, "pipeline": one}
    columns |= {"m_low": one, "m_high": one, "zero_scope": FULL * one, "dp": ranks * experts}
    rows = Groups(**columns, zero=one * int(instance.narrowing.permits("zero", 1)))
    fewest = replace(rows, dp=experts)
    run = run_of_rows(instance, of.pools[side], int(keys.variant[0]), fewest, vpp=1)
    rates = of.book.rates(rows, vpp=1)
    return replace(rates, fixed_bytes=fixed_bytes(run), states=least_states(rates.states, run))
