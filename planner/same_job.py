"""Phases that go on in the same job, as only the batch grows: nothing is saved, and nothing starts again.

A job cannot change its sequence length, layout, stages or micro-batch; it can run more micro-batches a step
from some step on (Megatron-LM: `--rampup-batch-size`). Everything else takes a checkpoint and a start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from costmodel.goodput.goodput import Goodput
from planner.economics import Economy
from planner.instance import Instance, Term
from planner.keybook import KeyBook
from planner.limits import within
from planner.running import Running, losses_of, save_seconds
from planner.search import Plan, priced
from planner.search.rows import fits

SAME = ("pool", "tp", "cp", "pp", "vpp", "dp", "ep", "etp", "micro_batch", "zero", "zero_scope", "variant")
"""Decisions that a job keeps to its end."""
Job = tuple[Instance, Plan]
"""A phase and its plan."""


def layout_of(plan: Plan) -> tuple[Any, ...]:
    """What a job keeps to its end."""
    return (*(plan.of(name) for name in SAME), plan.stages)


def goes_on(before: Job, after: Job) -> bool:
    """Whether a phase goes on in the job of the one before it."""
    (phase, plan), (next_phase, following) = before, after
    grows = phase.seq_len == next_phase.seq_len and plan.of("m_high") <= following.of("m_high")
    return grows and layout_of(plan) == layout_of(following)


def change_seconds(phase: Instance, plan: Plan) -> float:
    """Seconds of a change of phase: a checkpoint that is waited for, and the start of the next job."""
    lost = _losses(phase, plan)
    return float(save_seconds(lost) + lost.startup)


def may_go_on(phases: Sequence[Instance]) -> list[int]:
    """Phases that could go on in the job of the one before, as their sequences are as long."""
    return [index for index in range(1, len(phases)) if phases[index].seq_len == phases[index - 1].seq_len]


def most_change(run: Instance, place: tuple[int, int]) -> float:
    """The most seconds that a change of phase takes at a place, whatever the number of replicas."""
    pool, num_gpus = run.pools[place[0]], place[1]
    lost = (losses_of(pool, num_gpus, replicas) for replicas in (1, num_gpus))
    return max(float(save_seconds(each) + each.startup) for each in lost)


def spared_at_most(run: Instance, phases: Sequence[Instance], phase: int) -> dict[Term, float]:
    """The most that a phase may take less than as a job of its own, wherever it runs."""
    changes = sum(index in may_go_on(phases) for index in (phase, phase + 1))
    if not changes:
        return {"time": 0.0, "cost": 0.0, "energy": 0.0, "carbon": 0.0}
    of = Running.of(run)
    longest = [
        most_change(run, (index, nodes * int(pool.fabric.gpus_per_node)))
        for index, pool in enumerate(run.pools)
        for nodes in (max(pool.min_nodes, 1), max(pool.max_nodes, 1))
    ]
    seconds = changes * max(longest)
    rates: dict[Term, float] = {
        "time": 1.0, "cost": of.rent.max(), "energy": of.draw.max(), "carbon": of.emission.max()
    }  # fmt: skip
    return {term: float(seconds * rate) for term, rate in rates.items()}


def own_seconds(phase: Instance, plan: Plan) -> float:
    """A phase as a job of its own, with its start and, if another phase follows, the checkpoint for it."""
    return float(Economy.of(phase, plan.row).seconds(np.array([plan.step]))[0])


def seconds_of(phases: Sequence[Instance], plans: Sequence[Plan]) -> list[float]:
    """Wall-clock seconds of each phase, less what phases that go on do not need."""
    seconds = [own_seconds(*each) for each in zip(phases, plans, strict=True)]
    for index, (one, other) in enumerate(pairwise(zip(phases, plans, strict=True))):
        if goes_on(one, other):
            seconds[index] -= float(save_seconds(_losses(*one)))
            seconds[index + 1] -= float(_losses(*other).startup)
    return seconds


def _losses(phase: Instance, plan: Plan) -> Goodput:
    return losses_of(phase.pools[plan.of("pool")], plan.of("num_gpus"), plan.of("dp"))


def carried(book: KeyBook, plan: Plan) -> Plan | None:
    """Another phase's layout and stages with the largest batch of this one; None if it does not fit."""
    instance, row = book.instance, plan.row
    each, chunk = plan.of("micro_batch") * plan.of("dp"), plan.of("pp") if plan.of("vpp") > 1 else 1
    most = instance.max_batch // (each * chunk) * chunk
    for m in range(most, 0, -chunk):
        if m * each < instance.min_batch:
            return None
        permits = instance.narrowing.permits
        if permits("num_microbatches", m) and permits("global_batch", m * each):
            count = np.array([m])
            found = priced(book, replace(row, m_low=count, m_high=count), plan.stages)
            return found if _fits(instance, found) else None
    return None


def _fits(instance: Instance, plan: Plan) -> bool:
    """Memory, and requirements on predictions; what is of the whole run is looked at elsewhere."""
    limits = replace(instance.limits, deadline=None, budget=None, energy=None, carbon=None)
    inside = within(limits, Economy.of(instance, plan.row), np.array([plan.step]))[0]
    return bool(inside) and fits(instance, plan)


def joined(
    books: Sequence[KeyBook], own: Sequence[Plan], more: Sequence[tuple[int, Plan]] = ()
) -> tuple[Plan, ...]:
    """Of each phase's own best plan, more plans, and those of other phases carried over, the quickest run.

    The quickest way through the phases, a plan each, where going on saves a change of phase.
    """
    phases = [book.instance for book in books]
    plans = [*enumerate(own), *more]
    ways: list[tuple[float, tuple[Plan, ...]]] = [(0.0, ())]
    for index, phase in enumerate(phases):
        found = []
        for option in _options(books, plans, index):
            took = own_seconds(phase, option)
            reached = [
                (seconds + took - _spared(phases, index, before, option), (*before, option))
                for seconds, before in ways
            ]
            found.append(min(reached, key=lambda way: way[0]))
        ways = found
    return min(ways, key=lambda way: way[0])[1]


def _spared(phases: Sequence[Instance], index: int, before: tuple[Plan, ...], plan: Plan) -> float:
    """Seconds that a phase spares by going on after the one before it."""
    if not before or not goes_on((phases[index - 1], before[-1]), (phases[index], plan)):
        return 0.0
    return change_seconds(phases[index], plan)


def _options(books: Sequence[KeyBook], plans: Sequence[tuple[int, Plan]], index: int) -> list[Plan]:
    """A phase's own plans, and what the others' would be in it."""
    mine = books[index].instance
    found = {layout_of(plan): plan for phase, plan in plans if phase == index}
    for phase, plan in plans:
        if books[phase].instance.seq_len == mine.seq_len and layout_of(plan) not in found:
            other = carried(books[index], plan)
            if other is not None:
                found[layout_of(plan)] = other
    return list(found.values())
