"""Instances that differ in a word: decisions fixed, limits moved, a pool or its links changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from planner.chance import margin_of
from planner.economics import Economy
from planner.instance import Instance, Narrowing, Pool, Term
from planner.limits import within
from planner.narrowing import ZERO_SCOPES
from planner.requirements import Requirement
from planner.search import Effort, Plan, Table, best, goal_of
from planner.search.rows import fits
from planner.space.recompute import recompute_families
from planner.switches import SWITCHES, overlaps_of, software, word

NEEDS = {"tp_overlap": "tp", "pp_overlap": "vpp"}
"""What has to be above 1 for there to be such traffic to hide."""


def best_plan(instance: Instance, reach: float = np.inf, until: float | None = None) -> Plan | None:
    """The best plan of an instance, in a table of its own; `reach` as in `search.best`.

    Raises OutOfTime where that is not proved by `until` (of time.monotonic).
    """
    effort = Effort(until=until)
    table = Table.of(instance, goal_of(instance), recompute_families(instance), effort.check)
    plan = best(table, effort=effort, reach=reach)
    effort.conclude(plan)
    return plan


def best_using(
    instance: Instance, index: int, reach: float = np.inf, until: float | None = None
) -> Plan | None:
    """The best plan on one of the instance's pools, in any precision."""
    found = best_plan(only(instance, index), reach, until)
    if found is None:
        return None
    pool = np.array(instance.variants(index))[found.row.pool]
    return replace(found, row=replace(found.row, pool=pool))


def reach_of(instance: Instance, plan: Plan) -> float:
    """What a plan has of the objective's first term here, on other links or in other memory; inf if none.

    Whether the layout is valid is not asked: the instances differ in nothing that decides it.
    """
    here = repriced(instance, plan)
    return objective_value(instance, here) if holds(instance, here) else np.inf


def holds(instance: Instance, plan: Plan) -> bool:
    """Whether a plan is within the limits of an instance."""
    pool, row = instance.pools[plan.of("pool")], plan.row
    nodes = plan.of("num_gpus") / pool.fabric.gpus_per_node
    batch = plan.of("m_high") * plan.of("micro_batch") * plan.of("dp")
    economy = Economy.of(instance, row, surely=False)
    margin = np.array([margin_of(instance, row, plan.step)])
    return bool(
        within(instance.limits, replace(economy, margin=margin), np.array([plan.step]))[0]
        and fits(instance, plan)
        and pool.min_nodes <= nodes <= pool.max_nodes
        and instance.min_batch <= batch <= instance.max_batch
    )


def objective_value(instance: Instance, plan: Plan) -> float:
    """The objective's first term: dollars, seconds, or dollars with a value of time."""
    keys = goal_of(instance).keys(Economy.of(instance, plan.row), np.array([plan.step]))
    return float(keys[0][0])


def aimed(instance: Instance, term: Term) -> Instance:
    """The instance with a single objective."""
    return replace(instance, objective=((term, 1.0),), lexicographic=True)


def with_pool(instance: Instance, index: int, **changes: Any) -> Instance:
    """The instance with a pool changed, in every precision."""
    pools = list(instance.pools)
    for place in instance.variants(index):
        pools[place] = replace(pools[place], **changes)
    return replace(instance, pools=tuple(pools))


def only(instance: Instance, index: int, **changes: Any) -> Instance:
    """The instance with one of its pools, changed, in every precision."""
    variants = (instance.pools[place] for place in instance.variants(index))
    return replace(instance, pools=tuple(replace(pool, **changes) for pool in variants))


def pool_name(instance: Instance, index: int) -> str:
    """A pool's GPU type, with its place among the problem's pools where several are of that type."""
    pool = instance.pools[index]
    same = {other.entry for other in instance.pools if other.gpu.name == pool.gpu.name}
    return pool.gpu.name if len(same) == 1 else f"{pool.gpu.name} (pool {pool.entry + 1})"


def with_limits(instance: Instance, **changes: Any) -> Instance:
    """The instance with limits changed."""
    return replace(instance, limits=replace(instance.limits, **changes))


def fixed(instance: Instance, decisions: Mapping[str, Any]) -> Instance:
    """The instance where some decisions have one value each.

    `gpu`, `precision` and `num_gpus` choose among pools and their nodes, `global_batch` is the batch,
    overlap of tp, dp and pp is the software's, and the others are allowed values; a value that the problem's
    own `search` leaves out is let in.
    """
    allowed, pools = dict(instance.narrowing.allowed), list(instance.pools)
    switches: dict[str, bool] = {}
    for name, value in decisions.items():
        if name == "pool":
            pools = [instance.pools[value]]
        elif name == "gpu":
            pools = [pool for pool in pools if pool.gpu.name == value]
        elif name == "precision":
            pools = [pool for pool in pools if pool.precision == value]
        elif name in SWITCHES:
            switches[name] = value == "on"
        elif name == "ep_overlap":
            allowed[name] = (value == "on",)
        elif name == "recompute_modules":
            allowed |= {name: (value,), "recompute": ("selective",)} if value else {}
        elif name not in ("num_gpus", "global_batch"):
            allowed[name] = (value,)
    # What is fixed is no longer required otherwise.
    left = tuple(of for of in instance.narrowing.required if of.decision not in decisions)
    needed = tuple(Requirement(NEEDS[name], ">", (1,)) for name in NEEDS if switches.get(name))
    changed = replace(instance, narrowing=Narrowing(allowed, (*left, *needed)), pools=tuple(pools))
    changed = with_switches(changed, switches)
    if "num_gpus" in decisions:
        changed = replace(changed, pools=tuple(on_gpus(changed, int(decisions["num_gpus"]))))
    if "global_batch" in decisions:
        batch = int(decisions["global_batch"])
        changed = replace(changed, min_batch=batch, max_batch=batch)
    return changed


def with_switches(instance: Instance, switches: Mapping[str, bool]) -> Instance:
    """The instance with overlap of its software on or off, beside what is off already."""
    if not switches:
        return instance
    chosen = {**instance.switches, **switches}
    return replace(instance, switches=chosen, stack=software(instance.stack.name, chosen))


def overlap_words(instance: Instance, plan: Plan) -> dict[str, str]:
    """Overlap of a plan's tensor-, data- and pipeline-parallel traffic: on or off."""
    names = ("tp", "cp", "pp", "vpp", "dp", "ep", "etp", "zero")
    sizes = {name: int(plan.of(name)) for name in names}
    found = overlaps_of(instance.architecture, instance.stack, instance.framework, sizes)
    return {name: word(on) for name, on in found.items()}


def repriced(instance: Instance, plan: Plan) -> Plan:
    """A plan of another instance as it is in this one, which differs in what things cost alone."""
    from planner.answer import predicted

    of = predicted(instance, plan)
    return replace(plan, step=of.step_time, memory=float(of.memory.total))


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
    from planner.account import mode_of, modules_word, overlap_word

    names = ("tp", "cp", "pp", "vpp", "dp", "ep", "etp", "micro_batch", "zero")
    row: dict[str, Any] = {name: plan.of(name) for name in names}
    m = plan.of("m_high")
    row["zero_scope"] = ZERO_SCOPES[plan.of("zero_scope")]
    return {
        "gpu": instance.pools[plan.of("pool")].gpu.name,
        "precision": instance.pools[plan.of("pool")].precision,
        "num_gpus": plan.of("num_gpus"),
        **row,
        "num_microbatches": m,
        "global_batch": m * row["micro_batch"] * row["dp"],
        "recompute": mode_of(plan),
        "recompute_modules": modules_word(instance, plan),
        "ep_overlap": overlap_word(plan),
    }


def decided_otherwise(instance: Instance, plan: Plan, there: Instance, other: Plan) -> dict[str, Any]:
    """What the plan of another instance decides otherwise; a precision only where there is a choice of it."""
    mine, theirs = decided(instance, plan), decided(there, other)
    if len(there.precisions) < 2:
        theirs.pop("precision")
    return {name: value for name, value in theirs.items() if value != mine[name]}
