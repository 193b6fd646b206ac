"""Which what-ifs share an evaluation, and in what order they are answered. Typos in keys show here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from planner.errors import InvalidInput
from planner.instance import Instance
from planner.overrides import apply
from planner.problem import Problem, parse_problem
from planner.resolve import instance_of
from planner.search.physics import Counts, counts_of, physics_of, widest
from planner.sweep.points import Point, Vary

MOST_TOGETHER = 32
"""What-ifs that a worker answers before it hands over their lines, at most."""
UNKNOWN_KEY = "unknown key"
"""How `planner.complaints` says that a key is not one of a problem's."""


@dataclass(frozen=True, slots=True)
class Base:
    """The problem that all what-ifs change."""

    data: dict[str, Any]
    """Plain data of the file with what `-s` changed, without its scenarios."""
    file: str
    folder: Path
    """What paths in the file are relative to."""

    def changed(self, overrides: Sequence[tuple[str, Any]], option: str = "--vary") -> Problem:
        """The problem of a what-if. Raises `InvalidInput`."""
        keys = ", ".join(key for key, _ in overrides)
        data = apply(self.data, overrides, source=f"{self.file} with {option}")
        return parse_problem(data, file=f"{self.file} with {option} {keys}", folder=self.folder)


@dataclass(frozen=True, slots=True)
class Chunk:
    """What-ifs that one worker answers one after the other, from one evaluation where that is possible."""

    base: Base
    points: tuple[Point, ...]
    counts: Counts
    """Nodes of each pool that hold those of all what-ifs of the sweep."""


@dataclass(frozen=True, slots=True)
class Effects:
    """What each changed value does by itself."""

    physics: Instance
    counts: Counts
    """That hold those of the problem as it is and of each value by itself."""
    shared: frozenset[str]
    """Changes, written as text, that leave the evaluation as it is."""

    def leaves_alone(self, change: tuple[str, Any]) -> bool:
        """Whether the change leaves what steps take as it is."""
        return _text(change) in self.shared


def _text(change: tuple[str, Any]) -> str:
    return json.dumps(change, sort_keys=True)


def whole_where_asked(base: Base, vary: Vary) -> Vary:
    """Values of a range rounded, where the key takes whole numbers only."""
    broken = next((value for value in vary.values if isinstance(value, float)), None)
    if not vary.ranged or broken is None or _accepted(base, vary.key, broken):
        return vary
    if not _accepted(base, vary.key, round(broken)):
        return vary
    return replace(vary, values=tuple(dict.fromkeys(round(value) for value in vary.values)))


def _accepted(base: Base, key: str, value: Any) -> bool:
    try:
        base.changed([(key, value)])
    except InvalidInput:
        return False
    return True


def effects(base: Base, points: Sequence[Point]) -> Effects:
    """What every changed value does to the problem by itself. Raises `InvalidInput` for keys that are none.

    Values that are refused are not raised here: they may be good together with others, and if not, theirs
    are the lines that say so.
    """
    instance = instance_of(base.changed([]))
    physics, counts, shared = physics_of(instance), [counts_of(instance)], set[str]()
    changes = {_text(change): change for point in points for change in point.overrides}
    for text, change in changes.items():
        try:
            changed = instance_of(base.changed([change]))
        except InvalidInput as error:
            if error.found == UNKNOWN_KEY or not _fits(base, change):
                raise
            continue
        if len(changed.pools) == len(instance.pools):
            counts.append(counts_of(changed))
        if physics_of(changed) == physics:
            shared.add(text)
    return Effects(physics, widest(counts), frozenset(shared))


def _fits(base: Base, change: tuple[str, Any]) -> bool:
    """Whether the path leads somewhere in the problem's data."""
    try:
        apply(base.data, [change])
    except InvalidInput:
        return False
    return True


def ordered(points: Sequence[Point], found: Effects) -> list[list[Point]]:
    """What-ifs by the evaluation they need; in each class neighbours differ in limits alone."""
    classes: dict[str, list[Point]] = {}
    for point in _neighbours(points):
        own = [change for change in point.overrides if not found.leaves_alone(change)]
        classes.setdefault(json.dumps(sorted(map(_text, own))), []).append(point)
    return list(classes.values())


def _neighbours(points: Sequence[Point]) -> list[Point]:
    """What-ifs that differ only in limits beside each other, those that differ only in the budget closest."""
    changes = [dict(point.overrides) for point in points]
    places: tuple[dict[str, int], dict[str, int]] = ({}, {})
    order = []
    for number, change in enumerate(changes):
        others = {key: value for key, value in change.items() if not key.startswith("limits")}
        own = {key: value for key, value in change.items() if key != "limits.budget"}
        texts = (json.dumps(each, sort_keys=True) for each in (others, own))
        order.append(
            (*(place.setdefault(text, number) for place, text in zip(places, texts, strict=True)), number)
        )
    return [points[number] for *_, number in sorted(order)]


def shard(classes: Sequence[Sequence[Point]], index: int, number: int) -> list[list[Point]]:
    """The `index`-th (from 1) of `number` parts of like size; a class is cut where that keeps them alike."""
    total, start, parts = sum(map(len, classes)), 0, []
    low, high = total * (index - 1) // number, total * index // number
    for points in classes:
        part = list(points[max(low - start, 0) : max(high - start, 0)])
        parts += [part] if part else []
        start += len(points)
    return parts


def chunks(base: Base, classes: Sequence[Sequence[Point]], counts: Counts, workers: int) -> list[Chunk]:
    """Work in pieces: as large as keeps all workers busy until the end, so that evaluations are shared."""
    total = sum(map(len, classes))
    size = max(1, min(MOST_TOGETHER, -(-total // (4 * workers))))
    return [
        Chunk(base, tuple(points[start : start + size]), counts)
        for points in classes
        for start in range(0, len(points), size)
    ]
