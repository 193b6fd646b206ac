"""What limits cost: each is moved a little either way, and the problem solved again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from costmodel.units import DAY
from planner.economics import Economy
from planner.english import counted
from planner.explanation import LimitMoved
from planner.instance import Instance
from planner.limit_move import Move
from planner.one_pool import ONE_POOL
from planner.search import Plan, goal_of
from planner.variants import (
    best_plan,
    holds,
    objective_value,
    only,
    pool_name,
    with_limits,
    with_pool,
)

SHORT = 5 * DAY
"""Deadlines below this are moved by an hour, others by a day."""
SHARE = 0.01
"""Budget, batch and memory are moved by a hundredth (of what there is)."""


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
        what = f"one {unit} {'more' if sign > 0 else 'less'} of deadline ({counted(new / DAY, 'day', 'g')})"
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
        gpus, shown = pool.fabric.gpus_per_node, (pool.nodes or pool.max_nodes) + sign
        what = f"{gpus} {'more' if sign > 0 else 'fewer'} {pool_name(instance, index)}"
        what += f" ({counted(shown, 'node')})"
        changed = with_pool(instance, index, max_nodes=new)
        lets_in = index, only(instance, index, min_nodes=new, max_nodes=new)
        yield Move(
            f"hardware.{pool.entry}.nodes",
            f"{pool_name(instance, index)} nodes",
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
        what = f"a largest batch of {counted(new, 'sequence', '')} instead of {old}"
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


def moved(instance: Instance, plan: Plan, move: Move, until: float | None = None) -> LimitMoved:
    """What a limit in another place changes. Raises OutOfTime as `best_plan` does."""
    other = best_there(instance, plan, move, until)
    if other is None:
        return move.moved(None)
    return move.moved(ONE_POOL.change(instance, plan, move.instance, other))


def best_there(instance: Instance, plan: Plan, move: Move, until: float | None = None) -> Plan | None:
    """The best plan where a limit has moved.

    A tighter limit that the plan meets leaves it the best; a looser one can only put another plan first that
    it lets in, and nothing worse than the plan is looked at.
    """
    if not move.loosened:
        return plan if holds(move.instance, plan) else best_plan(move.instance, until=until)
    value = objective_value(instance, plan)
    if move.lets_in is None:
        return best_plan(move.instance, value, until)
    index, part = move.lets_in
    other = best_plan(part, value, until)
    if other is None:
        return plan
    other = replace(other, row=replace(other.row, pool=other.row.pool + index))
    first, second = (keys_of(move.instance, each) for each in (plan, other))
    return other if first != second and second < first else plan


def keys_of(instance: Instance, plan: Plan) -> tuple[float, ...]:
    """Sort keys of a plan, to nine digits."""
    keys = goal_of(instance).keys(Economy.of(instance, plan.row), np.array([plan.step]))
    return tuple(float(f"{float(key[0]):.9g}") for key in keys)
