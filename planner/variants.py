"""Instances that differ in a word: decisions fixed, limits moved, a pool or its links changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from planner.economics import Economy
from planner.instance import Instance, Narrowing, Pool
from planner.search import Effort, Plan, Table, best, goal_of
from planner.space.values import recompute_families, recompute_modes


def best_plan(instance: Instance) -> Plan | None:
    """The best plan of an instance, in a table of its own."""
    families = recompute_families(recompute_modes(instance))
    return best(Table.of(instance, goal_of(instance), families), effort=Effort())


def objective_value(instance: Instance, plan: Plan) -> float:
    """The objective's first term: dollars, seconds, or dollars with a value of time."""
    keys = goal_of(instance).keys(Economy.of(instance, plan.row), np.array([plan.step]))
    return float(keys[0][0])


def with_pool(instance: Instance, index: int, **changes: Any) -> Instance:
    """The instance with a pool changed."""
    pools = list(instance.pools)
    pools[index] = replace(pools[index], **changes)
    return replace(instance, pools=tuple(pools))


def only(instance: Instance, index: int, **changes: Any) -> Instance:
    """The instance with one of its pools, changed."""
    return replace(instance, pools=(replace(instance.pools[index], **changes),))


def with_limits(instance: Instance, **changes: Any) -> Instance:
    """The instance with limits changed."""
    return replace(instance, limits=replace(instance.limits, **changes))


def fixed(instance: Instance, decisions: Mapping[str, Any]) -> Instance:
    """The instance where some decisions have one value each.

    `gpu` and `num_gpus` choose among pools and their nodes, `global_batch` is the batch, and the others
    are allowed values; a value that the problem's own `search` leaves out is let in.
    """
    allowed, pools = dict(instance.narrowing.allowed), list(instance.pools)
    for name, value in decisions.items():
        if name == "pool":
            pools = [instance.pools[value]]
        elif name == "gpu":
            pools = [pool for pool in pools if pool.gpu.name == value]
        elif name not in ("num_gpus", "global_batch"):
            allowed[name] = (value,)
    # What is fixed is no longer required otherwise.
    left = tuple(of for of in instance.narrowing.required if of.decision not in decisions)
    changed = replace(instance, narrowing=Narrowing(allowed, left), pools=tuple(pools))
    if "num_gpus" in decisions:
        changed = replace(changed, pools=tuple(on_gpus(changed, int(decisions["num_gpus"]))))
    if "global_batch" in decisions:
        batch = int(decisions["global_batch"])
        changed = replace(changed, min_batch=batch, max_batch=batch)
    return changed


def on_gpus(instance: Instance, number: int) -> list[Pool]:
    """The pools that have so many GPUs, each with exactly these."""
    found = []
    for pool in instance.pools:
        nodes, rest = divmod(number, pool.fabric.gpus_per_node)
        if not rest and pool.min_nodes <= nodes <= pool.max_nodes:
            found.append(replace(pool, min_nodes=nodes, max_nodes=nodes))
    return found


def decided(instance: Instance, plan: Plan) -> dict[str, Any]:
    """Decisions of a plan by name, those of a launch file that are single values."""
    from planner.account import mode_of

    names = ("tp", "cp", "pp", "vpp", "dp", "ep", "etp", "micro_batch", "zero")
    row = {name: plan.of(name) for name in names}
    m = plan.of("m_high")
    return {
        "gpu": instance.pools[plan.of("pool")].gpu.name,
        "num_gpus": plan.of("num_gpus"),
        **row,
        "num_microbatches": m,
        "global_batch": m * row["micro_batch"] * row["dp"],
        "recompute": mode_of(plan),
    }


def decided_otherwise(instance: Instance, plan: Plan, there: Instance, other: Plan) -> dict[str, Any]:
    """What the plan of another instance decides otherwise."""
    mine = decided(instance, plan)
    return {name: value for name, value in decided(there, other).items() if value != mine[name]}
