"""The knee of a frontier: the plan from which every way on costs most for what it brings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

Point = tuple[float, ...]
"""What a plan takes of each axis; less is better."""


@dataclass(frozen=True, slots=True)
class Axis:
    """How an axis is told."""

    less: str
    """What a plan that takes less of it is."""
    least: str
    amount: str
    decimals: int
    free: str = ""
    """Of a share of something, if it is told by what is left of the 100 %: what that is called."""


AXES = {
    "days": Axis("quicker", "quickest", "{} days", 1),
    "dollars": Axis("cheaper", "cheapest", "${}", 0),
    "gpus": Axis("smaller", "smallest", "{} GPUs", 0),
    "mwh": Axis("thriftier", "thriftiest", "{} MWh", 0),
    "tonnes_co2": Axis("cleaner", "cleanest", "{} t CO2", 1),
    "memory_percent": Axis("roomier", "roomiest", "{} points of free memory", 0, "{} % of memory free"),
}


def knee_of(points: Sequence[Point]) -> int | None:
    """The point whose axes, each scaled to its range over the frontier, add up to least; None of no points.

    With two axes it is the one farthest below the straight line between the ends; with three the one
    farthest below the plane on which the loss of an axis is worth the gain of another (Das 1999, "On
    characterizing the knee of the Pareto curve"). With fewer than three points it is the first one.
    """
    if len(points) < 3:
        return 0 if points else None
    scaled = scaled_to_range(points)
    return min(range(len(points)), key=lambda i: sum(scaled[i]))


def scaled_to_range(points: Sequence[Point]) -> list[Point]:
    """Points with 0 for the least and 1 for the most of each axis; 0 where it is the same everywhere."""
    low = [min(values) for values in zip(*points, strict=True)]
    wide = [max(values) - least for values, least in zip(zip(*points, strict=True), low, strict=True)]
    return [
        tuple((x - least) / range_ if range_ else 0.0 for x, least, range_ in zip(of, low, wide, strict=True))
        for of in points
    ]


def next_along(points: Sequence[Point], knee: int, axis: int) -> int | None:
    """Of the points that take less of an axis, the one that asks least of the others for it.

    What it takes more of the others over what it takes less of the axis, each scaled to its range.
    """
    scaled = scaled_to_range(points)
    at = scaled[knee]
    less = [i for i, of in enumerate(scaled) if of[axis] < at[axis]]

    def price(i: int) -> float:
        more = sum(
            max(x - y, 0.0) for place, (x, y) in enumerate(zip(scaled[i], at, strict=True)) if place != axis
        )
        return more / (at[axis] - scaled[i][axis])

    return min(less, key=price, default=None)


def knee_words(points: Sequence[Point], names: Sequence[str], knee: int) -> str:
    """Where the knee is, and what going on from it along each axis costs at the best rate there is."""
    if len(points) < 3:
        return ""
    at, ways = points[knee], []
    for axis, name in enumerate(names):
        other = next_along(points, knee, axis)
        if other is not None:
            ways.append(f"{AXES[name].less} by {trade(at, points[other], names, axis)}")
    where = ", ".join(place(name, value) for name, value in zip(names, at, strict=True))
    ends = [
        AXES[name].least
        for name, share in zip(names, scaled_to_range(points)[knee], strict=True)
        if not share
    ]
    said = f"Knee at {where}."
    if ends:
        together = "of no other do days and dollars" if len(names) == 2 else "of no other do the axes"
        scaled = f"{together}, each as a share of its range, add up to less"
        said = f"The knee is the {' and '.join(ends)} plan itself, at {where}: {scaled}."
    return f"{said} At the best rates, {'; '.join(ways)}."


def trade(at: Point, other: Point, names: Sequence[str], axis: int) -> str:
    """What a plan takes less of an axis than the knee, and what that costs; a day its price."""
    gain = f"{written(names[axis], at[axis] - other[axis])}"
    costs: list[str] = []
    for name, here, there in zip(names, at, other, strict=True):
        if name != names[axis] and there != here:
            more = (there > here) != bool(AXES[name].free)
            costs.append(f"{written(name, abs(there - here))} {'more' if more else 'less'}")
    rate = ""
    if len(names) == 2 and "days" in names and "dollars" in names:
        rate = f", ${abs((other[1] - at[1]) / (other[0] - at[0])):,.0f} a day"
    return f"{gain} for {' and '.join(costs)}{rate}"


def place(name: str, value: float) -> str:
    """Where a plan is on an axis; of a share of something what it leaves."""
    of = AXES[name]
    return of.free.format(number(100 - value, of.decimals)) if of.free else written(name, value)


def written(name: str, value: float) -> str:
    """An amount of an axis with its unit."""
    return AXES[name].amount.format(number(value, AXES[name].decimals))


def number(value: float, decimals: int) -> str:
    """With so many decimals, or as many as show two digits of it: 1,234, 7.2, 0.091; 8 stays 8."""
    if value and value != round(value, decimals):
        decimals = max(decimals, 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}"
