"""The chosen layout with just one decision changed: what it would take, and which limit it breaks.

The best plan that decides otherwise changes whatever else helps. Here nothing else moves but what has
to: ranks that tensor, context or pipeline parallelism gives up become replicas, the number of
micro-batches keeps the batch, and stages are assigned anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from costmodel.pipeline import most_chunks
from costmodel.units import DAY, GIB
from planner.account import Account, by_money, changes, driver_of, effect_of, mode_of, overlapped
from planner.answer import surely
from planner.evaluate import evaluate
from planner.explanation import Alone
from planner.instance import Instance
from planner.reason_words import change_words, label, part_name, part_words, seconds_words
from planner.search import Plan, Table, goal_of
from planner.search.opening import open_pipelines
from planner.search.rows import memory_limit, plain_plan
from planner.space.columns import NODE, Candidates
from planner.space.layouts import chunk_counts, expand
from planner.space.recompute import HIDDEN_SELECTIVE, SELECTIVE, recompute_families
from planner.space.values import context_parallel_sizes, divisors, powers_of_two, tensor_parallel_sizes
from planner.variants import best_plan, decided, fixed

RANKS = ("tp", "cp", "pp")
CHANGED = (*RANKS, "vpp", "ep", "micro_batch", "zero", "recompute")
"""Decisions of which the neighbouring values are looked at as well."""


def neighbours(instance: Instance, plan: Plan, decision: str) -> Iterator[Any]:
    """The next smaller and the next larger value of a decision that the layout can take, smaller first."""
    values, mine = values_of(instance, plan, decision), decided(instance, plan)[decision]
    for side in (
        sorted((v for v in values if v < mine), reverse=True),
        sorted(v for v in values if v > mine),
    ):
        yield from (
            v for v in side[:6] if changed(instance, plan, {decision: v}) is not None and v is not None
        )


def values_of(instance: Instance, plan: Plan, decision: str) -> list[int]:
    """Values that a decision could take in this problem."""
    a, pool = instance.architecture, instance.pools[plan.of("pool")]
    every = {
        "tp": tensor_parallel_sizes(a, pool.fabric.domain),
        "cp": context_parallel_sizes(instance.seq_len),
        "pp": list(range(1, a.layers + 1)),
        "vpp": chunk_counts(instance, plan.of("pp")),
        "ep": divisors(a.moe.experts) if a.moe else [1],
        "micro_batch": powers_of_two(instance.max_batch),
        "zero": [0, 1, 2, 3],
    }[decision]
    return [value for value in every if instance.narrowing.permits(decision, value)]


def changed(instance: Instance, plan: Plan, change: dict[str, Any]) -> dict[str, Any] | None:
    """All decisions of the layout with some of them changed.

    None where sizes do not come out whole, or what follows is not what the problem's search allows.
    """
    mine = decided(instance, plan) | {"pool": plan.of("pool")}
    new = mine | change
    if "tp" in change and "etp" not in change and mine["etp"] == mine["tp"]:
        new["etp"] = new["tp"]
    if "precision" in change:
        variants = {instance.pools[i].precision: i for i in instance.variants(mine["pool"])}
        if change["precision"] not in variants:
            return None
        new["pool"] = variants[change["precision"]]
    ranks = new["tp"] * new["cp"] * new["pp"]
    if "dp" in change:
        new["num_gpus"] = ranks * new["dp"]
    elif new["num_gpus"] % ranks == 0:
        new["dp"] = new["num_gpus"] // ranks
    else:
        return None
    if "vpp" not in change:
        most_of_rank = min(new["vpp"], int(most_chunks(instance.architecture.layers, new["pp"])))
        new["vpp"] = most_of_rank if new["pp"] > 1 else 1
    if "num_microbatches" not in change:
        new["num_microbatches"] = most_microbatches(instance, mine["global_batch"], new)
    new["global_batch"] = new["num_microbatches"] * new["micro_batch"] * new["dp"]
    followed = (name for name in new if new[name] != mine[name] and name not in (*change, "pool"))
    if not all(instance.narrowing.permits(name, new[name]) for name in followed):
        return None
    return new if instance.min_batch <= new["global_batch"] <= instance.max_batch else None


def most_microbatches(instance: Instance, batch: int, new: dict[str, Any]) -> int:
    """Micro-batches that keep the batch or stay just below it; if those are too few, of the largest batch."""
    step = new["pp"] if new["vpp"] > 1 else 1
    each = new["micro_batch"] * new["dp"] * step
    number = batch // each
    return step * (number if number * each >= instance.min_batch else instance.max_batch // each)


def alone(
    instance: Instance, mine: Account, change: dict[str, Any], until: float | None = None
) -> Alone | None:
    """The plan with some decisions changed and nothing else; None where there is no such layout."""
    new = changed(instance, mine.plan, change)
    if new is None:
        return None
    free = replace(instance, limits=replace(instance.limits, deadline=None, budget=None))
    # Recompute is free to follow unless it is what was asked about: it is what makes a layout fit.
    left = ("gpu", "global_batch", *(() if "recompute" in change else ("recompute", "recompute_modules")))
    if overlapped(mine.plan) and "ep_overlap" not in change:
        left += ("ep_overlap",)  # free to follow: it excludes full recompute, and needs virtual stages
    if mine.plan.of("zero_scope") == NODE and "zero_scope" not in change:
        left += ("zero_scope",)  # free to follow where ranks do not fill nodes any more
    narrow = fixed(free, {name: new[name] for name in new if name not in left})
    if not narrow.pools:
        return None
    found = best_plan(narrow, until=until)
    followed = {name: new[name] for name in told(instance, mine.plan, new, change)}
    plain = plain_memory(narrow)
    if found is not None:
        return fitting(instance, narrow, mine, found, change, followed, plain)
    return None if plain is None else too_large(narrow, mine, change, followed, plain)


def told(instance: Instance, plan: Plan, new: dict[str, Any], change: dict[str, Any]) -> list[str]:
    """What is said of a change: what was asked, and what follows from it."""
    mine = decided(instance, plan)
    names = ("num_gpus", "tp", "cp", "pp", "vpp", "dp", "etp", "num_microbatches", "global_batch")
    return [*change, *(name for name in names if name not in change and new[name] != mine[name])]


@dataclass(frozen=True, slots=True)
class Plain:
    """The leanest even split of a layout: GiB of the fullest stage with no layer recomputed and with all."""

    plan: Plan
    """Without recompute, where the layout's recompute mode allows it."""
    need: float
    recomputed: float | None


def plain_memory(narrow: Instance) -> Plain | None:
    """What an even split needs, whether or not it fits; None where the layout is not valid."""
    rows = rows_of(narrow)
    if not len(rows):
        return None
    table = Table.of(narrow, goal_of(narrow), recompute_families(narrow))
    figures = evaluate(table.book, rows)
    kept, again = figures.plain_memory / GIB, figures.recomputed_memory / GIB
    whole = np.where(np.isin(rows.family, (SELECTIVE, HIDDEN_SELECTIVE)), np.inf, kept)
    which = int(np.argmin(whole if np.isfinite(whole).any() else np.minimum(kept, again)))
    plain = bool(np.isfinite(kept[which]))
    plan = plain_plan(table.book, rows.take(np.array([which])), recomputes=not plain)
    least = float(np.min(again))
    return Plain(
        plan, float(kept[which] if plain else again[which]), least if plain and least < np.inf else None
    )


def fitting(
    instance: Instance,
    narrow: Instance,
    mine: Account,
    found: Plan,
    change: dict[str, Any],
    followed: dict[str, Any],
    plain: Plain | None,
) -> Alone:
    """A change that fits in memory."""
    theirs = Account.within(narrow, found)
    effect, over = effect_of(mine, theirs), broken(replace(narrow, limits=instance.limits), found)
    room, mode = memory_limit(narrow, 0) / GIB, mode_of(found)
    recompute = ""
    if mode != mode_of(mine.plan) and "recompute" not in change:
        followed = followed | {"recompute": mode}
        if mode != "none" and plain is not None and plain.need > room:
            recompute = f"; without recompute the fullest stage needs {plain.need:.1f} GiB of {room:.1f}"
    parts = part_words(changes(mine.shares, theirs.shares), by_money(instance), most=1)
    text = f"{head(change, followed)}: {change_words(effect)}{parts}{recompute}"
    return Alone(
        change=followed,
        breaks=tuple(over),
        memory_gib=theirs.memory_gib,
        memory_limit_gib=room,
        effect=effect,
        text=text + "".join(f"; {why}" for why in over.values()) + ".",
    )


def broken(instance: Instance, plan: Plan) -> dict[str, str]:
    """Limits in time and money that a plan breaks, with numbers; at the confidence if one is asked for."""
    limits, over = instance.limits, {}
    days, cost = surely(instance, plan)
    sure = f" with {limits.chance:.0%}" if limits.chance else ""
    if limits.deadline is not None and days * DAY > limits.deadline:
        over["deadline"] = f"it takes {days:.1f} days{sure} of {limits.deadline / DAY:.1f}"
    if limits.budget is not None and cost > limits.budget:
        over["budget"] = f"it costs ${cost:,.0f}{sure} of ${limits.budget:,.0f}"
    return over


def too_large(
    narrow: Instance, mine: Account, change: dict[str, Any], followed: dict[str, Any], plain: Plain
) -> Alone:
    """A change that no assignment of stages fits into memory."""
    room, theirs = memory_limit(narrow, 0) / GIB, Account.within(narrow, plain.plan)
    least = "" if plain.recomputed is None else f" ({plain.recomputed:.1f} with every layer recomputed)"
    text = (
        f"{head(change, followed)}: {saved(narrow, mine, theirs)}, but the fullest stage needs "
        f"{plain.need:.1f} GiB of {room:.1f}{least}."
    )
    return Alone(
        change=followed,
        breaks=("memory",),
        memory_gib=plain.need,
        memory_recomputed_gib=plain.recomputed,
        memory_limit_gib=room,
        effect=effect_of(mine, theirs),
        text=text,
    )


def saved(instance: Instance, mine: Account, theirs: Account) -> str:
    """The part of the step that changes most: seconds a step, or of the run where batches differ."""
    batches = [
        each.plan.of("m_high") * each.plan.of("micro_batch") * each.plan.of("dp") for each in (mine, theirs)
    ]
    if batches[0] == batches[1]:
        parts = changes(mine.prediction.breakdown, theirs.prediction.breakdown)
        driver = driver_of(parts)
        return f"{part_name(driver)} {seconds_words(parts[driver])} a step"
    parts = changes(mine.shares, theirs.shares)
    return part_words(parts, by_money(instance), most=1).removeprefix("; ") or "nothing saved"


def rows_of(narrow: Instance) -> Candidates:
    """The candidates of an instance that leaves little open, whatever memory says."""
    free = replace(narrow, limits=replace(narrow.limits, memory_headroom=0.0))
    table = Table.of(free, goal_of(free), recompute_families(free))
    table.list_pipelines(np.arange(len(table.book.keys)))
    open_pipelines(table, np.arange(len(table.pipelines)), np.inf)
    return expand(free, table.book.specific(table.groups.rows))


def head(change: dict[str, Any], followed: dict[str, Any]) -> str:
    """Just TP 4 (so DP 13, micro-batches 100)."""
    asked = ", ".join(f"{label(name)} {value}" for name, value in change.items())
    rest = ", ".join(f"{label(name)} {value}" for name, value in followed.items() if name not in change)
    return f"just {asked}" + (f" (so {rest})" if rest else "")
