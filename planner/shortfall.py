"""Why a GPU, or a value of a decision, has no plan: the limit, and how near the nearest comes to it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.units import DAY, GIB
from planner.answer import surely
from planner.evaluate import evaluate
from planner.finding import Finding
from planner.instance import Instance, Limits, Term
from planner.narrowed import keys_of, nothing_left, why_no_layout
from planner.relaxed import OTHERS, cheapest, every_family, fastest, limited, optimum, other_words, without
from planner.required import requirements_of
from planner.requirements import texts
from planner.search import Effort, Mask, Plan, Table, best, goal_of
from planner.search.opening import open_pipelines
from planner.search.rows import memory_limits
from planner.space.columns import LayerKeys
from planner.space.layouts import expand
from planner.ways_out import of_one_pool

Array = NDArray[Any]
PROBED = 4096
"""Pipelines whose even split is priced to see how much memory they need."""


def why_none(
    table: Table, mask: Mask, asked: Collection[str] = (), until: float | None = None
) -> tuple[str, str]:
    """Why no plan of a mask is within the limits: the limit, and how near the nearest comes to it.

    `asked`: decisions whose values are those of a question (`--why`), and not of the problem's `search`.
    Raises OutOfTime where that is not known by `until` (of time.monotonic).
    """
    instance, limits, effort = table.instance, table.goal.limits, Effort(until=until)
    apart = partial(optimum, until=until)

    def find(_: Instance, limits: Limits, objective: Term, mask: Mask | None) -> Plan | None:
        plan = best(table.again(goal_of(instance, limits, objective)), mask, effort)
        effort.conclude()
        return plan

    if limits.deadline is not None:
        plan = fastest(instance, replace(limits, deadline=None), mask, find)
        if plan is not None:
            return "deadline", nearest_words(limits, "deadline", *surely(instance, plan))
    if limits.budget is not None:
        plan = cheapest(instance, replace(limits, budget=None), mask, find)
        if plan is not None:
            return "budget", nearest_words(limits, "budget", *surely(instance, plan))
    named = limited(instance, limits)
    for text in texts(requirements_of(instance)):
        free = without(replace(instance, limits=limits), [text])
        if (plan := fastest(free, free.limits, mask, apart)) is not None:
            return text, nearest_words(limits, text, *surely(free, plan))
    for name in OTHERS:
        if name in named and (words := other_words(instance, limits, name, mask, apart)):
            return name, f"the least is {words[1]} of {words[0]}"
    free = without(replace(instance, limits=limits), named)
    if len(named) > 1:
        run_only = set(named) <= {"deadline", "budget"}
        plan = fastest(free, free.limits, mask, find if run_only else apart)
        if plan is not None:
            return " and ".join(named), fastest_words(*surely(free, plan))
    whole = Table.of(free, goal_of(free), every_family(free), effort.check)
    return memory_words(whole, mask, of_one_pool(apart), asked)


def nearest_words(limits: Limits, name: str, days: float, cost: float) -> str:
    """What the best plan without a limit takes: deadline, budget, or a requirement by its text."""
    if name == "deadline":
        assert limits.deadline is not None
        return f"the fastest takes {days:.1f} days of {limits.deadline / DAY:.1f} (and costs ${cost:,.0f})"
    if name == "budget":
        return f"the cheapest costs ${cost:,.0f} of ${limits.budget:,.0f}"
    return f"without {name} {fastest_words(days, cost)}"


def fastest_words(days: float, cost: float) -> str:
    """What the quickest plan takes."""
    return f"the fastest takes {days:.1f} days and costs ${cost:,.0f}"


def memory_words(table: Table, mask: Mask, of: Finding[Plan], asked: Collection[str]) -> tuple[str, str]:
    """How much memory the leanest even split needs against what there is, or that nothing is valid."""
    instance, table = table.instance, table.blank()
    table.list_pipelines(np.flatnonzero(chosen(mask, table.book.keys)))
    rows = table.pipelines.rows
    index = np.flatnonzero(chosen(mask, rows))
    # Small micro-batches need least.
    order = np.argsort(rows.micro_batch[index], kind="stable")
    open_pipelines(table, index[order][:PROBED], np.inf)
    every = table.groups.rows
    groups = table.book.specific(every.take(np.flatnonzero(chosen(mask, every))))
    candidates = expand(instance, groups.take(slice(PROBED)))
    if not len(groups) or not chosen(mask, candidates).any():
        if masks(mask, (table.book.keys, rows, every, candidates)):
            return "search", nothing_left("other value", keys_of(instance))
        return "search", why_no_layout(instance, of, asked)
    plain = replace(candidates, m_high=candidates.m_low)
    figures = evaluate(table.book, plain)
    need, room = (
        np.minimum(figures.plain_memory, figures.recomputed_memory),
        memory_limits(instance, plain.pool),
    )
    leanest = int(np.argmin(need / room))
    least, there = need[leanest] / GIB, room[leanest] / GIB
    return "memory", f"the leanest even split needs {least:.1f} GiB of {there:.1f} on each GPU"


def masks(mask: Mask, looked_at: Sequence[LayerKeys]) -> bool:
    """Whether a mask leaves out any of what it is asked about; else the instance is all that is asked."""
    return not all(chosen(mask, rows).all() for rows in looked_at)


def chosen(mask: Mask, rows: LayerKeys) -> Array:
    """The rows of a mask: (rows,) bool."""
    return np.ones(len(rows), dtype=bool) & mask(rows)
