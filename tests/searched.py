"""What the search makes of random problems, in figures to hold against brute force."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
from oracle import Answer, Layout, Oracle, objective, small_problem, with_limits, within
from random_problems import problem

from planner import economics
from planner.instance import Instance
from planner.search import Effort, Plan, Table, best, goal_of
from planner.search.goal import OutOfTime
from planner.search.opening import open_pipelines
from planner.space.columns import LayerKeys
from planner.space.recompute import recompute_families, variant_of, variants

SAME = 1e-6
"""A solver's gap tells apart what differs by more."""


def usual_families(instance: Instance) -> tuple[int, ...]:
    """Recompute families that cover what the instance allows, without overlap."""
    return recompute_families(instance)


def blank(instance: Instance) -> Table:
    """A table in which nothing is written down."""
    return Table.of(instance, goal_of(instance), usual_families(instance))


def written_down(instance: Instance, know_memory: bool = False) -> Table:
    """Every candidate of an instance whatever its limits on days and dollars; or those that may fit memory."""
    limits = replace(instance.limits, deadline=None, budget=None)
    table = Table.of(instance, goal_of(instance, limits), usual_families(instance))
    open_all(table, know_memory)
    table.expand(np.arange(len(table.groups)))
    return table


def open_all(table: Table, know_memory: bool = True) -> None:
    """Writes down all pipelines and layouts at once."""
    table.list_pipelines(np.arange(len(table.book.keys)))
    if know_memory:
        table.pipelines.fit(table.book, np.arange(len(table.pipelines)), table.layouts)
    open_pipelines(table, np.flatnonzero(np.isfinite(table.pipelines.slowest)), np.inf)


def solved(instance: Instance, effort: Effort | None = None) -> Plan | None:
    return best(blank(instance), effort=effort)


def seconds_and_dollars(instance: Instance, plan: Plan) -> tuple[float, float]:
    seconds = economics.run_seconds(instance, plan.row, np.array([plan.step]))
    return float(seconds[0]), float(economics.run_dollars(instance, plan.row, seconds)[0])


def value(instance: Instance, plan: Plan | None) -> float:
    """The objective's first term; inf where there is no plan."""
    return np.inf if plan is None else objective(instance, *seconds_and_dollars(instance, plan))[0]


def least(instance: Instance, answers: list[Answer]) -> float:
    """The same of the best brute-force answer within the limits."""
    return min(
        (objective(instance, of.seconds, of.dollars)[0] for of in within(instance, answers)), default=np.inf
    )


def limited(
    seed: int, most: int = 300, make: Callable[[Random], Instance] = problem
) -> tuple[Oracle, Instance]:
    """A random problem with limits that bind."""
    random = Random(seed)
    oracle = small_problem(random, most, make)
    return oracle, with_limits(random, oracle)


def num_modes(instance: Instance, layout: Layout) -> int:
    """Candidates that a layout stands for: one for each recompute mode that the problem allows."""
    if layout.modules or layout.ep_overlap:
        return 1
    permitted = instance.narrowing.allowed.get("recompute", ("none", "full"))
    return len({"none", "full"} & set(permitted))


def executed(of: Layout) -> int:
    """How layers are executed, as rules tell it apart: modules recomputed or not, traffic hidden or not."""
    return bool(of.modules) + 2 * of.ep_overlap


EXECUTED = np.array([0, 0, 0, 1, 2, 3])
"""The same of the search's families: of full recompute there are three."""


def value_of(instance: Instance, of: Layout, name: str) -> int:
    """A decision of a layout as a number, as rows have it in a column."""
    if name == "executed":
        return executed(of)
    if name == "variant":
        return variant_of(instance.framework, of.modules, of.ep_overlap)
    return int(getattr(of, name))


def values_of(instance: Instance, of: Layout, names: Sequence[str]) -> tuple[int, ...]:
    return tuple(value_of(instance, of, name) for name in names)


def rows_of(rows: LayerKeys, names: Sequence[str]) -> list[tuple[int, ...]]:
    """The same of each of many rows."""
    columns = (EXECUTED[rows.family] if name == "executed" else getattr(rows, name) for name in names)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def execution(instance: Instance, variant: int) -> dict[str, Any]:
    """What a row's variant says of a layout."""
    of = variants(instance.framework)[variant]
    return {"modules": of.modules, "ep_overlap": of.overlapped}


class Looks(Effort):
    """An effort that is out of time after so many looks at the clock, however fast the machine is."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left

    def check(self) -> None:
        self.left -= 1
        if self.left < 0:
            self.out_of_time = True
            raise OutOfTime
