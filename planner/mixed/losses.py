"""What runs on nodes of two pools lose: any part of either stops all of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.goodput.failures import Failures
from costmodel.goodput.goodput import Goodput, goodput, no_losses
from planner.instance import Pool

Array = NDArray[Any]


def failures_of_both(of: tuple[Failures, Failures], num_gpus: Array, nodes: Array) -> Failures:
    """Rates of a mean GPU, node and switch, so that rates of all of them are those of both pools together.

    `num_gpus` and `nodes` are (2, rows).
    """
    switches = np.stack([n / f.gpus_per_switch for f, n in zip(of, num_gpus, strict=True)])

    def mean(name: str, weights: Array) -> Any:
        parts = [getattr(f, name) * weight for f, weight in zip(of, weights, strict=True)]
        return sum(parts) / weights.sum(axis=0)

    return Failures(
        **{name: mean(name, num_gpus) for name in ("gpu", "software", "planned")},
        **{name: mean(name, nodes) for name in ("node", "spot")},
        switch=mean("switch", switches),
        gpus_per_switch=num_gpus.sum(axis=0) / switches.sum(axis=0),
    )


@dataclass(frozen=True, slots=True)
class PairLosses:
    """Of plans on two pools, a row each."""

    together: Goodput
    spare_nodes: Array
    """(2, rows): nodes of a pool can only be replaced by its own."""

    @classmethod
    def of(cls, pools: tuple[Pool, Pool], num_gpus: Array, replicas: Any = 1) -> PairLosses:
        """With (2, rows) GPUs that train. Both pools have the problem's reliability and storage."""
        total, nodes = num_gpus.sum(axis=0), nodes_of(pools, num_gpus)
        sites = [pool.site for pool in pools]
        nothing = np.zeros(num_gpus.shape, dtype=np.int64)
        if any(site is None or site.reliability is None for site in sites):
            return cls(no_losses(total), nothing)
        first, second = (site for site in sites if site is not None)
        alone = [site.losses(n, replicas) for site, n in zip((first, second), num_gpus, strict=True)]
        assert first.reliability is not None
        assert second.reliability is not None
        both = (first.reliability.failures, second.reliability.failures)
        # What waits for a repair depends on each pool's own spares; it comes on top of what stops all.
        shared = goodput(
            replace(first.reliability, failures=failures_of_both(both, num_gpus, nodes), repair=0.0),
            first.storage.resolved(nodes.sum(axis=0)),
            num_gpus=total,
            gpus_per_node=total / nodes.sum(axis=0),
            checkpoint=first.checkpoint,
            replicas=replicas,
        )
        waits = [np.asarray(lost.shares["waiting"]) for lost in alone]
        spares = np.stack([np.broadcast_to(lost.spare_nodes, total.shape) for lost in alone])
        return cls(_waiting(shared, (1 - waits[0]) * (1 - waits[1])), spares)

    def of_part(self, index: int) -> Goodput:
        """The same with the spares of one pool only: for its bill and its meter."""
        return replace(self.together, spare_nodes=self.spare_nodes[index])

    def take(self, row: int) -> PairLosses:
        """One row."""
        of = self.together
        saving = replace(of.saving, **{n: _at(getattr(of.saving, n), row) for n in _names(of.saving)})
        shares = {name: _at(value, row) for name, value in of.shares.items()}
        rest = {
            n: _at(getattr(of, n), row) for n in _names(of) if n not in ("saving", "shares", "evaluation")
        }
        return PairLosses(replace(of, saving=saving, shares=shares, **rest), self.spare_nodes[:, row])


def _names(of: Any) -> tuple[str, ...]:
    return tuple(of.__dataclass_fields__)


def _at(value: Any, row: int) -> Any:
    return value[row] if np.ndim(value) else value


def _waiting(lost: Goodput, up: Array) -> Goodput:
    """The same where runs go on for a share of the time only."""
    shares = {name: value * up for name, value in lost.shares.items()} | {"waiting": 1 - up}
    return replace(lost, slowdown=lost.slowdown / up, shares=shares)


def nodes_of(pools: tuple[Pool, Pool], num_gpus: Array) -> Array:
    """(2, rows)."""
    return np.stack([n // pool.fabric.gpus_per_node for pool, n in zip(pools, num_gpus, strict=True)])
