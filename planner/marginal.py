"""What limits cost: each is moved a little either way, and the problem solved again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from costmodel.units import DAY
from planner.account import Account, effect_of
from planner.economics import Economy
from planner.explanation import LimitMoved
from planner.instance import Instance
from planner.reason_words import money_words
from planner.search import Plan, goal_of
from planner.variants import (
    best_plan,
    decided_otherwise,
    holds,
    objective_value,
    only,
    with_limits,
    with_pool,
)

SHORT = 5 * DAY
"""Deadlines below this are moved by an hour, others by a day."""
SHARE = 0.01
"""Budget, batch and memory are moved by a hundredth (of what there is)."""
SAME = 1e-6
"""Relative change of the objective that is none."""


@dataclass(frozen=True, slots=True)
class Move:
    """A limit in another place."""

    limit: str
    called: str
    what: str
    """One day more of deadline (61 days)."""
    loosened: bool
    old: Any
    new: Any
    step: float
    """How far it moved, in `unit`."""
    unit: str
    instance: Instance
    lets_in: tuple[int, Instance] | None = None
    """Where that is an instance: what a looser limit lets in, and the place of its first pool here."""


def moves(instance: Instance) -> Iterator[Move]:
    """Every limit of the instance, once looser and once tighter."""
    for sign in (1, -1):
        yield from _deadline(instance, sign)
        yield from _money(instance, sign)
        yield from _meter(instance, sign)
        yield from _nodes(instance, sign)
        yield from _memory(instance, sign)
        yield from _batch(instance, sign)


def _deadline(instance: Instance, sign: int) -> Iterator[Move]:
    old = instance.limits.deadline
    if old is None:
        return
    size, unit = (DAY, "day") if old >= SHORT else (3600.0, "hour")
    new = old + sign * size
    if new > 0:
        what = f"one {unit} {'more' if sign > 0 else 'less'} of deadline ({new / DAY:g} days)"
        yield Move(
            "deadline",
            "deadline",
            what,
            sign > 0,
            old / DAY,
            new / DAY,
            1.0,
            unit,
            with_limits(instance, deadline=new),
        )


def _money(instance: Instance, sign: int) -> Iterator[Move]:
    old = instance.limits.budget
    if old is not None:
        new = old * (1 + sign * SHARE)
        what = f"{SHARE:.0%} {'more' if sign > 0 else 'less'} budget (${new:,.0f})"
        changed = with_limits(instance, budget=new)
        yield Move("budget", "budget", what, sign > 0, old, new, abs(new - old), "USD", changed)


def _meter(instance: Instance, sign: int) -> Iterator[Move]:
    for name, unit in (("energy", "kWh"), ("carbon", "t CO2")):
        old = getattr(instance.limits, name)
        if old is not None:
            new = old * (1 + sign * SHARE)
            what = f"{SHARE:.0%} {'more' if sign > 0 else 'less'} {name} ({new:,.0f} {unit})"
            yield Move(
                name,
                name,
                what,
                sign > 0,
                old,
                new,
                abs(new - old),
                unit,
                with_limits(instance, **{name: new}),
            )


def _nodes(instance: Instance, sign: int) -> Iterator[Move]:
    """A node more or less of each pool; pools whose number is given may keep that number."""
    for index in instance.described:
        pool = instance.pools[index]
        new = pool.max_nodes + sign
        if new < 1 or (sign < 0 and new < pool.min_nodes):
            continue
        gpus = pool.fabric.gpus_per_node
        what = f"{gpus} {'more' if sign > 0 else 'fewer'} {pool.gpu.name} ({new} nodes)"
        changed = with_pool(instance, index, max_nodes=new)
        lets_in = index, only(instance, index, min_nodes=new, max_nodes=new)
        yield Move(
            f"hardware.{pool.entry}.nodes",
            f"{pool.gpu.name} nodes",
            what,
            sign > 0,
            pool.max_nodes,
            new,
            1.0,
            "node",
            changed,
            lets_in,
        )


def _memory(instance: Instance, sign: int) -> Iterator[Move]:
    old = instance.limits.memory_headroom
    new = round(old - sign * SHARE, 12)
    if 0 <= new < 1:
        what = f"{SHARE:.0%} {'more' if sign > 0 else 'less'} of each GPU's memory (headroom {new:g})"
        changed = with_limits(instance, memory_headroom=new)
        yield Move(
            "memory_headroom", "memory headroom", what, sign > 0, old, new, 100 * SHARE, "point", changed
        )


def _batch(instance: Instance, sign: int) -> Iterator[Move]:
    """The largest batch that is allowed; a batch of one size has no limit to move."""
    old = instance.max_batch
    new = old + sign * max(1, round(old * SHARE * 10))
    if instance.min_batch < old and new >= instance.min_batch:
        what = f"a largest batch of {new} sequences instead of {old}"
        yield Move(
            "global_batch.max",
            "largest batch",
            what,
            sign > 0,
            old,
            new,
            abs(new - old),
            "sequence",
            replace(instance, max_batch=new),
            (0, replace(instance, min_batch=old + 1, max_batch=new)),
        )


def moved(instance: Instance, plan: Plan, move: Move) -> LimitMoved:
    """What a limit in another place changes."""
    common = {
        "limit": move.limit,
        "called": move.called,
        "loosened": move.loosened,
        "from_value": move.old,
        "to_value": move.new,
    }
    other = best_there(instance, plan, move)
    if other is None:
        text = f"{capital(move.what)} leaves no plan."
        return LimitMoved(**common, binds=True, feasible=False, text=text)
    mine, theirs = Account.within(instance, plan), Account.within(move.instance, other)
    before, after = objective_value(instance, plan), objective_value(move.instance, other)
    binds, effect = abs(after - before) > SAME * before, effect_of(mine, theirs)
    scale, unit = (
        (DAY, "days") if instance.objective[0][0] == "time" and instance.lexicographic else (1.0, "USD")
    )
    return LimitMoved(
        **common,
        binds=binds,
        effect=effect,
        price=(after - before) / scale / move.step,
        price_unit=f"{unit} a {move.unit}",
        decisions=decided_otherwise(instance, plan, move.instance, other),
        text=sentence(move, effect, binds, theirs),
    )


def best_there(instance: Instance, plan: Plan, move: Move) -> Plan | None:
    """The best plan where a limit has moved.

    A tighter limit that the plan meets leaves it the best; a looser one can only put another plan first that
    it lets in, and nothing worse than the plan is looked at.
    """
    if not move.loosened:
        return plan if holds(move.instance, plan) else best_plan(move.instance)
    value = objective_value(instance, plan)
    if move.lets_in is None:
        return best_plan(move.instance, value)
    index, part = move.lets_in
    other = best_plan(part, value)
    if other is None:
        return plan
    other = replace(other, row=replace(other.row, pool=other.row.pool + index))
    first, second = (keys_of(move.instance, each) for each in (plan, other))
    return other if first != second and second < first else plan


def keys_of(instance: Instance, plan: Plan) -> tuple[float, ...]:
    """Sort keys of a plan, to nine digits."""
    keys = goal_of(instance).keys(Economy.of(instance, plan.row), np.array([plan.step]))
    return tuple(float(f"{float(key[0]):.9g}") for key in keys)


def sentence(move: Move, effect: dict[str, float], binds: bool, theirs: Account) -> str:
    """One more day of deadline saves $31,204 (0.98 days longer, 512 GPUs)."""
    if not binds:
        return f"{capital(move.what)} changes nothing."
    return f"{capital(move.what)}: {saving(effect)} ({theirs.plan.of('num_gpus')} GPUs)."


def saving(effect: dict[str, float]) -> str:
    """What changes, money first: saves $31,204 and 0.98 days; costs $5,000 more and saves 0.50 days."""
    days, cost = effect["days"], effect["dollars"]
    money, time = f"${abs(cost):,.0f}", f"{abs(days):.2f} days"
    if abs(cost) < 0.5 and abs(days) < 0.005:
        return money_words(cost)
    if abs(days) < 0.005:
        return f"saves {money}" if cost < 0 else f"costs {money} more"
    if abs(cost) < 0.5:
        return f"saves {time}" if days < 0 else f"takes {time} more"
    if (cost < 0) == (days < 0):
        return f"saves {money} and {time}" if cost < 0 else f"costs {money} and {time} more"
    return f"saves {money} and takes {time} more" if cost < 0 else f"costs {money} more and saves {time}"


def capital(text: str) -> str:
    """The text as the start of a sentence."""
    return text[:1].upper() + text[1:]
