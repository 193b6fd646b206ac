"""Other hardware and other precision: the problem changed in one fact, solved again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import isclose
from typing import Any

from planner.choosing import Choosing, P
from planner.explanation import Changed
from planner.instance import Instance, Pool
from planner.limit_move import saving
from planner.variants import with_pool

FULL_NVLINK = 450e9
"""bytes/s one way: NVLink of H100 SXM (900 GB/s both ways), where export versions of the chip have less."""
MORE_MEMORY = 1.25
SAME = 1e-4
LEAST_TOLD = 1e-3


@dataclass(frozen=True, slots=True)
class Change:
    """One fact of the hardware, or the precision, as it could be."""

    what: str
    old: str
    new: str
    instance: Instance


def hardware_changes(instance: Instance, called: Mapping[int, str]) -> Iterator[Change]:
    """Changes of the GPUs and links of a plan's pools, of the link between them, and of the precision.

    `called`: what each pool is called before the name of its part; nothing where there is one.
    """
    for index, name in called.items():
        pool, head = instance.pools[index], f"{name} " if name else ""
        for change in _of_pool(instance, index, pool):
            yield replace(change, what=f"{head}{change.what}")
    if instance.mixing is not None:
        link = instance.mixing.link
        quicker = replace(instance, mixing=replace(instance.mixing, link=2 * link))
        yield Change("link between the pools", gigabytes(link), gigabytes(2 * link), quicker)
    if instance.assume_mfu is None:
        yield from _precision(instance)


def _of_pool(instance: Instance, index: int, pool: Pool) -> Iterator[Change]:
    yield _capacity(instance, index, pool)
    if instance.assume_mfu is not None:
        return  # time follows from what was agreed, whatever the hardware
    yield from _nvlink(instance, index, pool)
    nic = pool.fabric.nic
    faster = replace(pool.fabric, nic=2 * nic)
    yield Change("network", gigabits(nic), gigabits(2 * nic), with_pool(instance, index, fabric=faster))
    yield _bandwidth(instance, index, pool)


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


def gigabytes(rate: float) -> str:
    """Of a link between pools, as problem files have it: 25 GB/s."""
    return f"{rate / 1e9:g} GB/s"


def changed(instance: Instance, plan: P, change: Change, choose: Choosing[P]) -> Changed:
    """What the best plan of the changed problem gains."""
    there, head = change.instance, f"{change.what} {change.new} instead of {change.old}"
    common: dict[str, Any] = {"change": change.what, "from_value": change.old, "to_value": change.new}
    known = choose.here(there, plan) if there.precisions == instance.precisions else None
    other = choose.best(there, known)
    if other is None:
        return Changed(**common, feasible=False, text=f"{head}: no plan is within the limits.")
    found = choose.change(instance, plan, there, other)
    share = 1 - found.after / found.before if found.before else 0.0
    days, same = choose.days(instance, plan), choose.on_same_gpus(instance, plan, there, other)
    on_same = ""
    # Where the best plan is itself on those GPUs, the difference is said already.
    if same is not None and not isclose(same - days, found.effect["days"], rel_tol=SAME, abs_tol=SAME):
        on_same = days_clause(choose.machines(instance, plan), days, same)
    return Changed(
        **common,
        feasible=True,
        effect=found.effect,
        saves=share,
        days_on_same_gpus=same,
        decisions=found.decisions,
        text=f"{head}: {gain(share, found.effect, found.machines)}{on_same}.",
    )


def gain(share: float, effect: dict[str, float], machines: str) -> str:
    """Saves 6.0 % (saves $31,204 and 1.30 days, on 512 GPUs)."""
    if abs(share) < SAME:
        return "changes nothing"
    size = f"{abs(share):.1%}" if abs(share) >= LEAST_TOLD else f"under {LEAST_TOLD:.1%}"
    head = f"{'saves' if share > 0 else 'costs'} {size}"
    return f"{head} ({saving(effect)}, on {machines})"


def days_clause(machines: str, before: float, after: float) -> str:
    """How long the run takes on the GPUs that the plan has, where the best one then has others."""
    if abs(after / before - 1) < SAME:
        return ""
    return f"; on the same {machines} {after:.1f} days instead of {before:.1f}"
