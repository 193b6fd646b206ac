"""Other hardware and other precision: the problem changed in one fact, solved again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from planner.account import Account, effect_of
from planner.explanation import Changed
from planner.instance import Instance, Pool
from planner.limit_move import saving
from planner.search import Plan
from planner.variants import best_plan, decided_otherwise, objective_value, on_gpus, reach_of, with_pool

FULL_NVLINK = 450e9
"""bytes/s one way: NVLink of H100 SXM (900 GB/s both ways), where export versions of the chip have less."""
MORE_MEMORY = 1.25
SAME = 1e-4


@dataclass(frozen=True, slots=True)
class Change:
    """One fact of the hardware, or the precision, as it could be."""

    what: str
    old: str
    new: str
    instance: Instance


def hardware_changes(instance: Instance, plan: Plan) -> Iterator[Change]:
    """Changes of the chosen pool's GPU and links, and of the precision."""
    index = plan.of("pool")
    pool = instance.pools[index]
    yield _capacity(instance, index, pool)
    if instance.assume_mfu is not None:
        return  # time follows from what was agreed, whatever the hardware
    yield from _nvlink(instance, index, pool)
    nic = pool.fabric.nic
    faster = replace(pool.fabric, nic=2 * nic)
    yield Change("network", gigabits(nic), gigabits(2 * nic), with_pool(instance, index, fabric=faster))
    yield _bandwidth(instance, index, pool)
    yield from _precision(instance)


def _nvlink(instance: Instance, index: int, pool: Pool) -> Iterator[Change]:
    now = pool.fabric.nvlink
    then = FULL_NVLINK if now < FULL_NVLINK * (1 - SAME) else 2 * now
    fabric = replace(pool.fabric, nvlink=then)
    if pool.fabric.domain > 1:
        # NVLink is sold by what it carries both ways.
        old, new = (f"{2 * rate / 1e9:.0f} GB/s" for rate in (now, then))
        yield Change("NVLink", old, new, with_pool(instance, index, fabric=fabric))


def _capacity(instance: Instance, index: int, pool: Pool) -> Change:
    memory = pool.gpu.memory
    more = memory.model_copy(
        update={"driver": memory.driver * MORE_MEMORY, "nominal": memory.nominal * MORE_MEMORY}
    )
    gpu = pool.gpu.model_copy(update={"memory": more})
    old, new = (f"{size / 1e9:.0f} GB" for size in (memory.nominal, more.nominal))
    return Change("memory", old, new, with_pool(instance, index, gpu=gpu))


def _bandwidth(instance: Instance, index: int, pool: Pool) -> Change:
    memory = pool.gpu.memory
    quick = memory.model_copy(update={"bandwidth": memory.bandwidth * MORE_MEMORY})
    gpu = pool.gpu.model_copy(update={"memory": quick})
    old, new = (f"{rate / 1e12:.2f} TB/s" for rate in (memory.bandwidth, quick.bandwidth))
    return Change("HBM bandwidth", old, new, with_pool(instance, index, gpu=gpu))


def _precision(instance: Instance) -> Iterator[Change]:
    """FP8 where a GPU has it, or BF16 where the problem asks for FP8; nothing where it allows both."""
    if len(instance.precisions) > 1:
        return
    mine = instance.pools[0].precision
    other = "fp8" if mine == "bf16" else "bf16"
    pools = tuple(replace(pool, precision=other) for pool in instance.pools if other in pool.gpu.peak_flops)
    if pools:
        yield Change("precision", mine.upper(), other.upper(), replace(instance, pools=pools))


def gigabits(rate: float) -> str:
    """Of a GPU: 400 Gbit/s."""
    return f"{rate * 8 / 1e9:.0f} Gbit/s"


def changed(instance: Instance, plan: Plan, change: Change) -> Changed:
    """What the best plan of the changed problem gains."""
    head = f"{change.what} {change.new} instead of {change.old}"
    common: dict[str, Any] = {"change": change.what, "from_value": change.old, "to_value": change.new}
    reach = reach_of(change.instance, plan) if change.instance.precisions == instance.precisions else np.inf
    other = best_plan(change.instance, reach)
    if other is None:
        return Changed(**common, feasible=False, text=f"{head}: no plan is within the limits.")
    mine, theirs = Account.within(instance, plan), Account.within(change.instance, other)
    before, after = objective_value(instance, plan), objective_value(change.instance, other)
    same = same_gpus(instance, plan, change, other)
    share = 1 - after / before
    return Changed(
        **common,
        feasible=True,
        effect=effect_of(mine, theirs),
        saves=share,
        days_on_same_gpus=same,
        decisions=decided_otherwise(instance, plan, change.instance, other),
        text=f"{head}: {gain(share, mine, theirs)}{days_clause(mine, same)}.",
    )


def gain(share: float, mine: Account, theirs: Account) -> str:
    """Saves 6.0 % (saves $31,204 and 1.30 days)."""
    if abs(share) < SAME:
        return "changes nothing"
    head = f"{'saves' if share > 0 else 'costs'} {abs(share):.1%}"
    return f"{head} ({saving(effect_of(mine, theirs))}, on {theirs.plan.of('num_gpus')} GPUs)"


def days_clause(mine: Account, days: float | None) -> str:
    """How long the run takes on as many GPUs as the plan has."""
    if days is None or abs(days / mine.days - 1) < SAME:
        return ""
    gpus = mine.plan.of("num_gpus")
    return f"; on the same {gpus} GPUs {days:.1f} days instead of {mine.days:.1f}"


def same_gpus(instance: Instance, plan: Plan, change: Change, other: Plan) -> float | None:
    """Days of the best plan on exactly as many GPUs of the chosen type; `other` is the best on any."""
    gpu = instance.pools[plan.of("pool")].gpu.name
    if (
        plan.of("num_gpus") == other.of("num_gpus")
        and change.instance.pools[other.of("pool")].gpu.name == gpu
    ):
        return Account.within(change.instance, other).days
    exact = [pool for pool in on_gpus(change.instance, plan.of("num_gpus")) if pool.gpu.name == gpu]
    if not exact:
        return None
    narrow = replace(change.instance, pools=tuple(pool for pool in exact if pool.entry == exact[0].entry))
    found = best_plan(narrow)
    return None if found is None else Account.within(narrow, found).days
