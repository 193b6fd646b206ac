"""What surrounds the GPUs of each pool of a problem: its sections, resolved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.errors import Refused, nearest
from planner.pool import Pool
from planner.pricing import ALL, pricing_of, unknown_pools
from planner.site import Site, site_of

if TYPE_CHECKING:
    from planner.problem import Problem


def sites_of(problem: Problem) -> tuple[Site, ...]:
    """A site for each pool. Raises `Refused` where sections and pools do not go together."""
    gpus = [pool.accelerator for pool in problem.hardware]
    if unknown := unknown_pools(problem.pricing, gpus):
        names = [gpu.name for gpu in gpus]
        hint = nearest(unknown[0], names)
        raise Refused("no pool has this GPU", ", ".join(names), hint, ("pricing", unknown[0]))
    sites = tuple(_site_of(problem, pool) for pool in problem.hardware)
    for pool, site in zip(problem.hardware, sites, strict=True):
        if (needed := 1 + site.spare_nodes(1)) > pool.max_nodes:
            found = f"one node and its spares are {needed} nodes, and there are {pool.max_nodes} of"
            where = ("reliability", "spares")
            raise Refused(f"{found} {pool.accelerator.name}", "fewer spares or more nodes", "", where)
    return sites


def _site_of(problem: Problem, pool: Pool) -> Site:
    pricing = pricing_of(problem.pricing, pool.accelerator)
    try:
        return site_of(
            problem.model.architecture,
            pool.accelerator,
            reliability=problem.reliability,
            storage=problem.storage,
            pricing=pricing,
            power=problem.power,
            price=None if pool.assumed_price else pool.price,
            committed=pool.committed or 0.0,
            agreed_time=problem.assume_mfu is not None,
        )
    except Refused as refused:
        name = next(name for name, each in problem.pricing.items() if each is pricing)
        raise refused.below("pricing", *(() if name == ALL else (name,))) from None
