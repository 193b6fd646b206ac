"""The target that wants every plan that no other beats in both time and money."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from planner import economics
from planner.economics import Economy
from planner.instance import Instance
from planner.search.best import best
from planner.search.branch import run
from planner.search.goal import Effort, OutOfTime, goal_of
from planner.search.rows import Plan
from planner.search.table import GroupTable, RowTable, Table
from planner.space.columns import LayerKeys
from planner.space.values import recompute_families, recompute_modes

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Point = tuple[float, ...]
"""Seconds, dollars, and with a third axis GPUs."""
SAME = 1e-9
"""Relative difference below which two figures are the same."""
AXES = ("gpus",)
"""What a frontier may weigh beside time and money."""


def frontier(
    instance: Instance, effort: Effort | None = None, axis: str | None = None
) -> tuple[list[Plan], Table | None]:
    """Non-dominated plans within the limits, quickest first, and the table they were found in.

    With time and money alone, the quickest and the cheapest plan bound the rest: nothing between them takes
    longer than the cheapest or costs more than the quickest.
    """
    effort = effort if effort is not None else Effort()
    families = recompute_families(recompute_modes(instance))
    limits, ends = instance.limits, []
    for first, second in (("time", "cost"), ("cost", "time")) if axis is None else ():
        goal = replace(goal_of(instance), objective=((first, 1.0), (second, 1.0)), lexicographic=True)
        plan = best(Table.of(instance, goal, families), effort=effort)
        if plan is None or effort.out_of_time:
            return ([] if plan is None else [plan]), None
        ends.append(plan)
    # The ends are predictions, and limits that have to hold surely are not: they stay where they are.
    if ends and limits.chance is None:
        (_, dearest), (longest, _) = (figures(instance, plan)[:2] for plan in ends)
        deadline = min(limits.deadline or np.inf, longest * (1 + SAME))
        limits = replace(limits, deadline=deadline, budget=min(limits.budget or np.inf, dearest * (1 + SAME)))
    table = Table.of(instance, goal_of(instance, limits, "time"), families)
    target = Front(table, ends, axis)
    try:
        run(table, target, effort)
    except OutOfTime:
        effort.out_of_time = True
    return target.plans(), table


def figures(instance: Instance, plan: Plan) -> Point:
    """Seconds, dollars and GPUs of a plan's run."""
    economy, step = Economy.of(instance, plan.row), np.array([plan.step])
    return (
        float(economy.seconds(step)[0]),
        float(economy.dollars(step)[0]),
        float(plan.row.num_gpus[0]),
    )


class Front:
    """Which rows may still lie on the frontier, by what is achieved."""

    share = 1

    def __init__(self, table: Table, ends: list[Plan], axis: str | None = None) -> None:
        self.table = table
        self.axes = 2 if axis is None else 3
        self.exact = {figures(table.instance, plan)[: self.axes]: plan for plan in ends}
        """Plans by their figures."""
        self.plain: list[Point] = []
        """Figures of plain splits that fit: their rows may lie on the frontier themselves."""

    def wanted(self, rows: LayerKeys, value: Array) -> NDArray[np.bool_]:
        """All that is within the limits: the goal's value says nothing of dominance."""
        return np.ones(len(rows), dtype=bool)

    def _figures(self, part: GroupTable | RowTable, index: Ints, step: Array) -> Array:
        """(rows, axes) of runs with such steps."""
        economy = part.economy.take(index)
        columns = (economy.seconds(step), economy.dollars(step), part.rows.num_gpus[index])
        return np.stack(columns[: self.axes], axis=-1).reshape(-1, self.axes).astype(float)

    def front(
        self, part: GroupTable | RowTable, index: Ints, ceiling: float, sizes: tuple[int, ...]
    ) -> list[Ints]:
        """Rows whose bound no achieved plan dominates, and the quickest ones of each number of GPUs first."""
        economy, bound = part.economy.take(index), part.bound[index]
        alive = economics.within(self.table.goal.limits, economy, bound)
        if isinstance(part, RowTable):
            alive &= ~part.exact[index]
        index = index[alive]
        of = self._figures(part, index, bound[alive])
        kept = ~dominated(of, list(self.exact), 1 + SAME) & ~dominated(of, self.plain, 1 - 100 * SAME)
        index, of = index[kept], of[kept]
        kind = part.rows.num_gpus[index] * len(self.table.instance.pools) + part.rows.pool[index]
        order = np.lexsort((of[:, 1], of[:, 0], place_in_class(kind, of[:, 0])))
        return [index, *(index[order[:size]] for size in sizes)]

    def achieved(self, index: Ints) -> None:
        """Plain splits dominate what is worse in everything."""
        rows = self.table.rows
        index = index[np.isfinite(rows.plain[index])]
        found = map(tuple, self._figures(rows, index, rows.plain[index]).tolist())
        self.plain = undominated([*self.plain, *found])

    def solved(self, index: int, plan: Plan) -> None:
        """A plan within the limits dominates what is no better in anything."""
        economy, step = self.table.rows.economy.take(np.array([index])), np.array([plan.step])
        if economics.within(self.table.goal.limits, economy, step)[0]:
            self.exact[figures(self.table.instance, plan)[: self.axes]] = plan

    def picks(self, index: Ints) -> Ints:
        """Of the rows looked at, those whose bound no other bound dominates, one of each that are equal."""
        of = list(map(tuple, self._figures(self.table.rows, index, self.table.rows.bound[index]).tolist()))
        first = {point: row for row, point in reversed(list(zip(index.tolist(), of, strict=True)))}
        return np.array([first[point] for point in undominated(of)], dtype=np.int64)

    def longest(self, index: int) -> float:
        """A step beyond which a row is outside the limits or dominated by a plan."""
        economy, limits = self.table.rows.economy.take(np.array([index])), self.table.goal.limits
        longest = [float(economy.longest(limits.deadline or np.inf, limits.budget or np.inf)[0])]
        gpus = float(self.table.rows.rows.num_gpus[index])
        # A run is dominated once it is both longer and dearer than a plan on no more GPUs.
        for seconds, cost, *others in self.exact:
            if all(gpus >= other for other in others):
                by_time = float(economy.longest(seconds, np.inf)[0])
                longest.append(max(by_time, float(economy.longest(np.inf, cost)[0])))
        return min(longest) * (1 + SAME)

    def ceiling(self, last: float) -> float | None:
        """Everything at once: the limits of the goal are those of the frontier."""
        return np.inf if np.isneginf(last) else None

    def plans(self) -> list[Plan]:
        """The frontier, quickest first."""
        return [self.exact[point] for point in undominated(list(self.exact))]


def undominated(points: list[Point]) -> list[Point]:
    """Points that no other is no worse than in everything, in order; of equal ones the first."""
    found: list[Point] = []
    for point in sorted(set(points)):
        # What comes later in the order is never better in the first figure.
        if not any(all(a <= b * (1 + SAME) for a, b in zip(of, point, strict=True)) for of in found):
            found.append(point)
    return found


def dominated(values: Array, points: list[Point], room: float) -> NDArray[np.bool_]:
    """Rows of (rows, axes) than which a point is no worse in everything if they are `room` times as large."""
    result = np.zeros(len(values), dtype=bool)
    if not points or not len(values):
        return result
    if values.shape[1] > 2:
        for point in undominated(points):
            result |= (np.array(point) <= values * room).all(axis=1)
        return result
    times, costs = np.array(undominated(points)).T
    # The last point that is quick enough is the cheapest of those that are.
    place = np.searchsorted(times, values[:, 0] * room, side="right") - 1
    return (place >= 0) & (costs[np.maximum(place, 0)] <= values[:, 1] * room)


def place_in_class(kind: Ints, value: Array) -> Ints:
    """Each row's place among the rows of its class, by value."""
    order = np.lexsort((value, kind))
    start = np.flatnonzero(np.diff(kind[order], prepend=-1))
    place = np.arange(len(kind)) - np.repeat(start, np.diff(np.append(start, len(kind))))
    result = np.empty(len(kind), dtype=np.int64)
    result[order] = place
    return result
