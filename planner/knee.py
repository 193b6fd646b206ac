"""The knee of a frontier: the plan from which every way on costs most for what it brings."""

from __future__ import annotations

import math
from collections.abc import Sequence

Point = tuple[float, ...]
"""What a plan takes of each axis; less is better."""
AXES = {
    "days": ("quicker", "{} days", 1),
    "dollars": ("cheaper", "${}", 0),
    "gpus": ("smaller", "{} GPUs", 0),
    "mwh": ("thriftier", "{} MWh", 0),
    "tonnes_co2": ("cleaner", "{} t CO2", 1),
    "memory_percent": ("roomier", "{} % of a GPU's memory", 0),
}
"""By axis: what a plan that takes less of it is, an amount in words, and its decimals."""


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
            ways.append(f"{AXES[name][0]} by {trade(at, points[other], names, axis)}")
    where = ", ".join(written(name, value) for name, value in zip(names, at, strict=True))
    return f"Knee at {where}. At the best rates, {'; '.join(ways)}."


def trade(at: Point, other: Point, names: Sequence[str], axis: int) -> str:
    """What a plan takes less of an axis than the knee, and what that costs; a day its price."""
    gain = f"{written(names[axis], at[axis] - other[axis])}"
    costs: list[str] = []
    for place, (name, here, there) in enumerate(zip(names, at, other, strict=True)):
        if place != axis and there != here:
            costs.append(f"{written(name, abs(there - here))} {'more' if there > here else 'less'}")
    rate = ""
    if len(names) == 2 and "days" in names and "dollars" in names:
        rate = f", ${abs((other[1] - at[1]) / (other[0] - at[0])):,.0f} a day"
    return f"{gain} for {' and '.join(costs)}{rate}"


def written(name: str, value: float) -> str:
    """An amount of an axis with its unit."""
    _, words, decimals = AXES[name]
    return words.format(number(value, decimals))


def number(value: float, decimals: int) -> str:
    """With so many decimals, or as many as show two digits of it: 1,234, 7.2, 0.091; 8 stays 8."""
    if value and value != round(value, decimals):
        decimals = max(decimals, 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}"
