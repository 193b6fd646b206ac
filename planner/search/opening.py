"""Opens pipelines to layouts: those up to a ceiling of the goal; what a limit rules out is counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.records import stacked
from planner import economics
from planner.economics import Economy
from planner.instance import Term
from planner.limits import broken_by, outside
from planner.running import Running
from planner.search.bounded import GroupTable
from planner.search.room import full_by_node
from planner.search.shorter import shortened
from planner.search.table import Table
from planner.space.columns import FULL, NODE, Groups, Pipelines
from planner.space.layouts import BY_NODE, fills_nodes, microbatch_range_filled, with_microbatches

Array = NDArray[Any]
Promising = Callable[[Array, Array], Array]
"""Which runs may be part of an answer, by the least seconds and dollars that they take."""
CELLS = 1 << 19
"""Layouts of pipelines that are looked at together."""


def open_pipelines(table: Table, index: Array, ceiling: float, promising: Promising | None = None) -> None:
    """Writes down the layouts of pipelines up to a ceiling of the goal, or the promising ones of them."""
    part = table.pipelines
    index = index[(part.opened[index] < ceiling) & ~part.finished[index]]
    # Until a layout beyond the ceiling is seen.
    part.finished[index] = True
    table.fit_by_node(index[part.known[index]])
    groups, (at, dp) = [table.groups.rows.take(slice(0))], _cells(table, index)
    for start in range(0, len(at), CELLS):
        some = slice(start, start + CELLS)
        groups.append(_layouts_of(table, at[some], dp[some], ceiling, promising))
    part.opened[index] = ceiling
    rows = with_microbatches(table.instance, Groups.concatenate(groups))
    table.groups = stacked([table.groups, GroupTable.of(table.book, rows, part)])


def _cells(table: Table, index: Array) -> tuple[Array, Array]:
    """Pipelines and the replicas of each of their layouts that the deadline leaves."""
    rows, none = table.pipelines.rows, np.empty(0, dtype=np.int64)
    least = table.at_least[rows.key[index]]
    pool, pp, ranks = rows.pool[index], rows.pp[index], rows.tp[index] * rows.cp[index]
    at, replicas = [none], [none]
    for (number, size), layout in table.layouts.items():
        of = np.flatnonzero((pool == number) & (ranks == size))
        which, place = layout.cells(pp[of])
        enough = np.flatnonzero(layout.num_gpus[place] >= least[of][which])
        at.append(index[of[which[enough]]])
        replicas.append(layout.dp[place[enough]])
    return np.concatenate(at), np.concatenate(replicas)


def _layouts_of(table: Table, at: Array, dp: Array, ceiling: float, promising: Promising | None) -> Groups:
    """Layouts of some pipelines between what is open and the ceiling."""
    part = table.pipelines
    at, dp, first = _near(table, *_whole(part.rows, at, dp), ceiling, promising)
    rows = part.rows.take(at)
    low, high = microbatch_range_filled(table.instance, rows, dp)
    valid = low <= high
    everywhere, nodes = _scopes(table, rows, dp)
    valid &= everywhere | nodes
    columns = {f.name: getattr(rows, f.name) for f in fields(rows)}
    high = np.maximum(high, 1)
    groups = Groups(**columns, pipeline=at, dp=dp, zero_scope=FULL + 0 * dp, m_low=low, m_high=high)
    every = groups
    full = nodes & np.isinf(part.by_node[at])
    counted = np.flatnonzero(valid & first & full)
    pipelines = part.rows.take(at[counted])
    table.count_full(groups.take(counted), lambda book: full_by_node(book, pipelines, table.layouts))
    nodes &= ~full
    step = table.book.bound(groups, part.slowest[at], part.extra[at])
    groups, step = shortened(table.book, part, groups, step)
    for scoped in (everywhere, nodes):
        which = valid & first & scoped
        table.outside.count_shorter(table.instance, every.take(which), groups.take(which))
    totals, broken = _taken(table, groups, step)
    for limit, over in broken.items():
        for scoped in (everywhere, nodes):
            table.outside.count(groups, valid & first & over & scoped, limit)
        valid &= ~over
    value = table.goal.key_bound(totals)
    valid &= value > part.opened[at]
    part.finished[at[valid & (value > ceiling)]] = False
    valid &= value <= ceiling
    near = groups.take(np.flatnonzero(valid & nodes))
    near = replace(near, zero_scope=np.full(len(near), NODE))
    return Groups.concatenate([groups.take(np.flatnonzero(valid & everywhere)), near])


def _taken(table: Table, groups: Groups, step: Array) -> tuple[dict[Term, Array], dict[str, Array]]:
    """What layouts take at least, and which limits that breaks."""
    economy = Economy.of(table.instance, groups, surely=False)
    seconds = economy.seconds(step) * (1 - 1e-12)
    totals = economics.totals(table.goal.objective, economy, seconds)
    totals["cost"] = economy.total("cost", seconds) * (1 - 1e-12)
    return totals, broken_by(table.goal.limits, economy, seconds, totals["cost"])


def _whole(rows: Pipelines, at: Array, dp: Array) -> tuple[Array, Array]:
    """Layouts whose ranks the groups of experts divide."""
    whole = np.flatnonzero(((rows.tp * rows.cp)[at] * dp) % (rows.ep * rows.etp)[at] == 0)
    return at[whole], dp[whole]


def _near(
    table: Table, at: Array, dp: Array, ceiling: float, promising: Promising | None
) -> tuple[Array, Array, Array]:
    """Layouts without those that their pipelines' bounds leave out: beyond the ceiling, or not promising.

    What breaks a limit stays, to be counted, unless it is what promises that is asked. With each of them
    whether it was left out so far: what is looked at again is not counted again.
    """
    part, every = table.pipelines, np.ones(len(at), dtype=bool)
    unseen = np.isneginf(part.opened[at])
    if np.isinf(ceiling) and promising is None and unseen.all():
        return at, dp, every
    running, rows = Running.of(table.instance), table.pipelines.rows
    num_gpus = (rows.tp * rows.cp * rows.pp)[at] * dp
    place = running.place(rows.pool[at], num_gpus)
    scale = table.instance.tokens * (1 - 1e-12) * table.book.stragglers(running.num_gpus)
    spent = part.gpu_seconds[at]
    totals: dict[Term, Array] = {
        term: spent * (each * scale)[place] for term, each in running.per_gpu_second().items()
    }
    seconds = totals["time"]
    late, dear = outside(table.goal.limits, seconds, totals["cost"])
    within, value = ~(late | dear), table.goal.key_bound(totals)
    far = within & (value > ceiling)
    part.finished[at[far]] = False
    near = ~far if promising is None else within & ~far & promising(seconds, totals["cost"])
    first = unseen | (within & (value > part.opened[at]))
    return at[near], dp[near], first[near]


def _scopes(table: Table, rows: Pipelines, dp: Array) -> tuple[Array, Array]:
    """Whether layouts share their states over all ranks, or have none to share; and within nodes.

    So far nothing tells the two apart: bounds of pipelines know no traffic, and take states as small as
    they can be.
    """
    many = table.counter.many
    sharing, ranks = many.sharing[rows.zero], rows.tp * rows.cp
    everywhere = many.shares(rows.pool, sharing, ranks, rows.pp, rows.cp * dp)
    if (sharing < BY_NODE).all():
        return everywhere, np.zeros(len(dp), dtype=bool)
    domain = np.array([pool.fabric.domain for pool in table.instance.pools])[rows.pool]
    nodes = fills_nodes(domain, rows.tp, rows.cp, rows.ep * rows.etp, dp)
    return everywhere, many.shared_by_node(sharing, nodes)
