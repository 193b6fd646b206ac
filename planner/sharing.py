"""Layouts that phases could share: whether a change of phase that is spared makes up for a slower layout.

A place's phases have their own quickest plans. A run in which two neighbours share a layout, and go on in
one job, can only be quicker if the layout loses less in both than the change takes. All layouts that lose so
little in the longer one are found, best first, each search leaving out those that are known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from planner.instance import Limits
from planner.same_job import may_go_on, most_change, own_seconds
from planner.search import Plan
from planner.space.columns import Candidates, LayerKeys
from planner.space.recompute import OPEN

if TYPE_CHECKING:
    from planner.together import Place, Together

Array = NDArray[Any]
COLUMNS = (
    "pool", "family", "variant", "tp", "cp", "ep", "etp", "micro_batch", "pp", "zero", "zero_scope", "dp",
    "vpp",
)  # fmt: skip
MOST_LAYOUTS = 32
"""Layouts that are looked at for a pair of phases; if there are more, the proof keeps a gap."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What sharing could bring at a place."""

    plans: tuple[tuple[int, Plan], ...]
    """Phases and plans of them in layouts that may pay."""
    spared: float
    """Seconds that no run at the place spares more of, against a change at each end of a phase."""


def shared_layouts(search: Together, place: Place, own: Sequence[Plan], room: float) -> Shared:
    """Layouts worth sharing at a place; `room`: seconds by which a phase may be slower than its own best."""
    change, pairs = most_change(search.run, place), may_go_on(search.phases)
    found: list[tuple[int, Plan]] = []
    spared = 0.0
    for later in pairs:
        ends = (later - 1, later)
        # A phase between two others counts half of what it loses to each of them.
        weight = [1 / sum(end in (each - 1, each) for each in pairs) for end in ends]
        known, whole = layouts_within(search, place, own, ends, room)
        gains = [] if whole else [change]
        for plans in known:
            lost = [
                own_seconds(search.phases[e], p) - own_seconds(search.phases[e], own[e]) for e, p in plans
            ]
            gain = change - sum(w * loss for w, loss in zip(weight, lost, strict=True))
            if gain > 0:
                gains.append(gain)
                found += plans
        spared += max(gains, default=0.0)
    return Shared(tuple(found), spared)


def layouts_within(
    search: Together, place: Place, own: Sequence[Plan], ends: tuple[int, int], room: float
) -> tuple[list[list[tuple[int, Plan]]], bool]:
    """Each layout that loses little enough in the longer of two phases, as the best plan of it in both.

    And whether those are all.
    """
    longer, shorter = sorted(ends, key=lambda end: -search.phases[end].tokens)
    most = own_seconds(search.phases[longer], own[longer]) + room
    known: list[Plan] = []
    pairs: list[list[tuple[int, Plan]]] = []
    while len(known) < MOST_LAYOUTS:
        plan = search.best_at(longer, others_than(place, known), within_time(search, longer, most))
        if plan is None or own_seconds(search.phases[longer], plan) > most:
            return pairs, True
        known.append(plan)
        enough = own_seconds(search.phases[shorter], own[shorter]) + room
        other = search.best_at(shorter, only_layout(plan), within_time(search, shorter, enough))
        if other is not None:
            pairs.append(sorted([(longer, plan), (shorter, other)], key=lambda pair: pair[0]))
    return pairs, False


def within_time(search: Together, phase: int, seconds: float) -> Limits:
    """Limits of a phase that takes no longer."""
    limits = search.phases[phase].limits
    return replace(
        limits, deadline=seconds * (1 + 1e-9), budget=None, energy=None, carbon=None, confidence=None
    )


def only_layout(plan: Plan) -> Callable[[LayerKeys], Array | bool]:
    """Lets through rows of a plan's layout, and those of which not all is known."""

    def mask(rows: LayerKeys) -> Array | bool:
        same = np.ones(len(rows), dtype=bool)
        for name in COLUMNS:
            if hasattr(rows, name):
                column = getattr(rows, name)
                # A variant that is still open may become the plan's.
                same &= (column == plan.of(name)) | (name == "variant") & (column == OPEN)
        return same

    return mask


def others_than(place: Place, known: Sequence[Plan]) -> Callable[[LayerKeys], Array | bool]:
    """Lets through rows at a place but those of known layouts."""

    def mask(rows: LayerKeys) -> Array | bool:
        of = rows.pool == place[0]
        column = getattr(rows, "num_gpus", None)
        of = of if column is None else of & (column == place[1])
        if isinstance(rows, Candidates):
            for plan in known:
                of = of & ~np.asarray(only_layout(plan)(rows))
        return of

    return mask
