"""Small random problems with `mixing`: two or three pools that differ, and a link between them."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from random_problems import problem

from planner.instance import Instance, Mixing, Narrowing, Pool
from planner.mixing import Form
from planner.power import Power
from planner.pricing import Pricing
from planner.reliability import Reliability
from planner.requirements import requirement
from planner.site import site_of
from planner.storage import Storage

DAY = 86400.0


def mixed_problem(random: Random) -> Instance:
    """A random problem of two or three pools that differ, a link between them, and no limits yet."""
    while True:
        instance = problem(random, most_layers=7, nodes=3)
        if len(instance.pools) > 1 and instance.assume_mfu is None:
            break
    forms: tuple[Form, ...] = random.choice((("stages",), ("replicas",), ("stages", "replicas")))
    pools = instance.pools
    if random.random() < 0.5:
        # Nodes of one size, where more goes together.
        fabric = pools[0].fabric
        pools = tuple(
            replace(of, fabric=replace(of.fabric, gpus_per_node=fabric.gpus_per_node, domain=fabric.domain))
            for of in pools
        )
    framework = random.choice(("megatron", "any", "any"))
    return replace(
        instance,
        pools=pools,
        narrowing=required(random, instance.narrowing),
        mixing=Mixing(random.choice((1e9, 1e10, 25e9, 1e11)), forms),
        framework=framework,
        per_stage_recompute=instance.per_stage_recompute and framework == "any",
    )


def required(random: Random, of: Narrowing) -> Narrowing:
    """Now and then a requirement on what both pools have together, or on either."""
    texts = (
        "gpus <= 16",
        "nodes <= 3",
        "nodes >= 3",
        "dp != 2",
        "global_batch >= 4",
        "gpu != H20",
        "pp != 2",
        "num_microbatches != 2",
        "num_microbatches <= 3",
    )
    some = (random.choice(texts),) if random.random() < 0.2 else ()
    return replace(of, required=tuple(map(requirement, some)))


def surrounded(random: Random, instance: Instance) -> Instance:
    """The instance on a site: the same failures and storage for all pools, each paid for in its own way."""
    reliability, storage, pools = _reliability(random), _storage(random), []
    for pool in instance.pools:
        gpu = pool.gpu.model_copy(update={"gpus_per_node": pool.fabric.gpus_per_node})
        site = site_of(
            instance.architecture,
            gpu,
            reliability=reliability,
            storage=storage,
            pricing=_pricing(random),
            power=Power(),
            price=pool.price,
            committed=pool.committed,
        )
        there = pool.max_nodes + site.spare_nodes(pool.max_nodes) + random.choice((0, 1))
        most, tariff = site.training_nodes(there), site.tariff
        least = min(pool.min_nodes, most)
        committed = tariff.committed_days * DAY
        pools.append(
            Pool(
                gpu,
                pool.fabric,
                least,
                most,
                tariff.price,
                committed,
                site,
                there,
                pool.precision,
                pool.entry,
            )
        )
    return replace(instance, pools=tuple(pools))


def _reliability(random: Random) -> Reliability:
    """Sites where short runs on few GPUs already lose much."""
    own = {"spares": random.choice(("auto", 1)), "repair": "20 h"} if random.random() < 0.5 else {}
    saving = {
        "mode": random.choice(("sync", "async")),
        "written_by": random.choice(("all", "replica", "one")),
        "weights_read_by_all": random.random() < 0.3,
    }
    return Reliability.model_validate(
        {"failures": f"{random.choice((60, 300, 3000))} h", "planned": "2000 h", "checkpoint": saving} | own
    )


def _storage(random: Random) -> Storage:
    slow = {"write": "100 MB/s", "read": "300 MB/s", "node_write": "60 MB/s"}
    return Storage.model_validate(
        random.choice(({}, {"tier": "good", "keep": {"every": "1 h", "recent": 2}}, slow))
    )


def _pricing(random: Random) -> Pricing | None:
    spot = {"kind": "spot", "price": "0.9 USD/gpu-hour", "lost_a_month": "60%"}
    some = random.choice((None, None, spot, {"kind": "reserved", "window": "3 h"}))
    return None if some is None else Pricing.model_validate(some)


def on_a_site(random: Random) -> Instance:
    """A mixed problem whose runs fail, are paid for and draw power: for `small_mixed_problem`."""
    return surrounded(random, mixed_problem(random))
