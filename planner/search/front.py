"""The target that wants every plan that no other beats in time and money, and in a third axis if asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from planner.economics import Economy
from planner.instance import Instance
from planner.limits import within
from planner.search.best import best, plainness
from planner.search.bounded import GroupTable, RowTable
from planner.search.branch import run
from planner.search.goal import Effort, OutOfTime, goal_of
from planner.search.opening import Promising, open_pipelines
from planner.search.rows import Plan
from planner.search.table import Table
from planner.space.columns import LayerKeys
from planner.space.recompute import recompute_families

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Point = tuple[float, ...]
"""Seconds, dollars, and the third axis if there is one; less is better in each."""
SAME = 1e-9
"""Relative difference below which two figures are the same."""
Axis = Literal["gpus", "energy", "carbon"]
"""What a run takes beside time and money that its layout fixes, or that only grows with its time: bounds on
the step bound it too. Memory is neither: see `planner.search.headroom`."""


def frontier(
    instance: Instance, effort: Effort | None = None, axis: Axis | None = None
) -> tuple[list[Plan], Table]:
    """Non-dominated plans within the limits, quickest first, and the table they were found in.

    With time and money alone, the quickest and the cheapest plan bound the rest: nothing between them takes
    longer than the cheapest or costs more than the quickest. Raises OutOfTime before there is a table.
    """
    effort = effort if effort is not None else Effort()
    families, weighed, table = recompute_families(instance), weighing(instance, axis), None
    limits, ends = instance.limits, []
    for first, second in (("time", "cost"), ("cost", "time")) if axis is None else ():
        goal = replace(goal_of(instance), objective=((first, 1.0), (second, 1.0)), lexicographic=True)
        table = Table.of(instance, goal, families, effort.check) if table is None else table.again(goal)
        plan = best(table, effort=effort)
        if plan is None or effort.out_of_time:
            return ([] if plan is None else [plan]), table
        ends.append(plan)
    # The ends are predictions, and limits that have to hold surely are not: they stay where they are.
    if ends and limits.chance is None:
        (_, dearest), (longest, _) = (figures(instance, plan) for plan in ends)
        deadline = min(limits.deadline or np.inf, longest * (1 + SAME))
        limits = replace(limits, deadline=deadline, budget=min(limits.budget or np.inf, dearest * (1 + SAME)))
    goal = goal_of(weighed, limits, "time")
    table = Table.of(weighed, goal, families, effort.check) if table is None else table.again(goal)
    target = Front(table, ends, axis)
    between(table, target, ends)
    search(table, target, effort)
    return target.plans(), table


def between(table: Table, target: Front, ends: list[Plan]) -> None:
    """Prices the plain splits of the ends' pipelines with any replicas: near all that is between them."""
    index = np.unique([plan.of("pipeline") for plan in ends]).astype(np.int64)
    open_pipelines(table, index, np.inf, target.promising)
    table.expand(np.arange(len(table.groups)))
    rows = np.arange(len(table.rows))
    table.look_at_plain(rows)
    target.achieved(rows)


def search(table: Table, target: Front, effort: Effort) -> None:
    """Looks for a frontier until it is complete, or time is out: `effort.out_of_time` says which."""
    try:
        run(table, target, effort)
    except OutOfTime:
        effort.out_of_time = True


def weighing(instance: Instance, axis: Axis | None) -> Instance:
    """The instance whose runs know what they take of the axis: its objective names it."""
    if axis is None or axis == "gpus":
        return instance
    return replace(instance, objective=(("time", 1.0), ("cost", 1.0), (axis, 1.0)), lexicographic=True)


def measured(economy: Economy, step: Array, axis: Axis | None) -> Array:
    """What runs with such steps take: (rows, axes)."""
    seconds = economy.seconds(step)
    columns = [seconds, economy.total("cost", seconds)]
    if axis is not None:
        columns.append(economy.num_gpus if axis == "gpus" else economy.total(axis, seconds))
    return np.stack(columns, axis=-1)


def figures(instance: Instance, plan: Plan, axis: Axis | None = None) -> Point:
    """What a plan's run takes."""
    economy = Economy.of(weighing(instance, axis), plan.row, surely=False)
    return tuple(measured(economy, np.array([plan.step]), axis)[0].tolist())


class Front:
    """Which rows may still lie on the frontier, by what is achieved."""

    share = 1

    def __init__(self, table: Table, ends: list[Plan], axis: Axis | None = None) -> None:
        self.table = table
        self.axis: Axis | None = axis
        self.exact = {figures(table.instance, plan, axis): plan for plan in ends}
        """Plans by their figures."""
        for index, plan in table.plans.items():
            self.solved(index, plan)
        self.exact = {point: self.exact[point] for point in undominated(list(self.exact))}
        self.plain: list[Point] = []
        """Figures of plain splits that fit: their rows may lie on the frontier themselves."""

    def wanted(self, rows: LayerKeys, value: Array) -> NDArray[np.bool_]:
        """All that is within the limits: the goal's value says nothing of dominance."""
        return np.ones(len(rows), dtype=bool)

    @property
    def promising(self) -> Promising | None:
        """Layouts that no achieved plan dominates; a third axis would have to be bounded as well."""
        return self._undominated if self.axis is None else None

    def _undominated(self, seconds: Array, dollars: Array) -> NDArray[np.bool_]:
        return self._open(np.stack([seconds, dollars], axis=-1))

    def _open(self, of: Array) -> NDArray[np.bool_]:
        return ~dominated(of, list(self.exact), 1 + SAME) & ~dominated(of, self.plain, 1 - 100 * SAME)

    def _figures(self, part: GroupTable | RowTable, index: Ints, step: Array) -> Array:
        return measured(part.economy.take(index), step, self.axis)

    def front(
        self, part: GroupTable | RowTable, index: Ints, ceiling: float, sizes: tuple[int, ...]
    ) -> list[Ints]:
        """Rows whose bound no achieved plan dominates, and the quickest ones of each number of GPUs first."""
        economy, bound = part.economy.take(index), part.bound[index]
        alive = within(self.table.goal.limits, economy, bound)
        if isinstance(part, RowTable):
            alive &= ~part.exact[index]
        index = index[alive]
        of = self._figures(part, index, bound[alive])
        kept = self._open(of)
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
        """A plan within the limits dominates what is no better in anything; of equal ones the plainest."""
        economy, step = self.table.rows.economy.take(np.array([index])), np.array([plan.step])
        if not within(self.table.goal.limits, economy, step)[0]:
            return
        point = figures(self.table.instance, plan, self.axis)
        for same in [of for of in self.exact if no_worse(of, point) and no_worse(point, of)]:
            if plainness(self.exact[same].row) <= plainness(plan.row):
                return
            del self.exact[same]
        self.exact[point] = plan

    def picks(self, index: Ints) -> Ints:
        """Of the rows looked at, those whose bound no other bound dominates, one of each that are equal."""
        of = list(map(tuple, self._figures(self.table.rows, index, self.table.rows.bound[index]).tolist()))
        first = {point: row for row, point in reversed(list(zip(index.tolist(), of, strict=True)))}
        return np.array([first[point] for point in undominated(of)], dtype=np.int64)

    def longest(self, index: int) -> float:
        """A step beyond which a row is outside the limits or dominated by a plan."""
        economy, limits = self.table.rows.economy.take(np.array([index])), self.table.goal.limits
        steps = [float(economy.longest(limits.deadline or np.inf, limits.budget or np.inf)[0])]
        # A run is dominated once it takes more than a plan of everything.
        steps += [max(self._longest_each(economy, point)) for point in self.exact]
        return min(steps) * (1 + SAME)

    def _longest_each(self, economy: Economy, point: Point) -> list[float]:
        """The longest steps with which a row's run takes no more than a plan of time, money and the axis."""
        seconds, cost, *third = point
        steps = [economy.longest(seconds, np.inf), economy.longest(np.inf, cost)]
        if self.axis is not None:
            steps.append(self._longest_along(economy, self.axis, third[0]))
        return [float(step[0]) for step in steps]

    def _longest_along(self, economy: Economy, axis: Axis, value: float) -> Array:
        each = economy.num_gpus if axis == "gpus" else economy.total(axis, np.ones(1))
        if axis != "gpus" and each[0]:
            most = {"energy": np.inf, "carbon": np.inf} | {axis: value}
            return economy.longest(np.inf, np.inf, most["energy"], most["carbon"])
        # What is no question of time, the carbon of a clean grid too: less than the plan's, or never.
        return np.where(each < value, np.inf, -np.inf)

    def ceiling(self, last: float) -> float | None:
        """Everything at once: the limits of the goal are those of the frontier."""
        return np.inf if np.isneginf(last) else None

    def plans(self) -> list[Plan]:
        """The frontier, quickest first."""
        return [self.exact[point] for point in undominated(list(self.exact))]


def undominated(points: list[Point]) -> list[Point]:
    """Points that no other is no worse than in everything, in order; of equal ones one."""
    found: list[Point] = []
    for point in sorted(set(points)):
        if not any(no_worse(of, point) for of in found):
            found.append(point)
    # What comes later in the order may still be the same in the first figure, and better in the others.
    kept: list[Point] = []
    for point in reversed(found):
        if not any(no_worse(of, point) for of in kept):
            kept.append(point)
    return kept[::-1]


def no_worse(point: Point, other: Point) -> bool:
    """Whether a point takes no more of anything than another."""
    return all(a <= b * (1 + SAME) for a, b in zip(point, other, strict=True))


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
