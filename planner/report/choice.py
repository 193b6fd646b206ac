"""The planner's rule of choice on candidates: limits, objective, ties. The page has it in JavaScript."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from planner import economics
from planner.economics import Economy
from planner.instance import Instance
from planner.report.candidates import Candidate


@dataclass(frozen=True, slots=True)
class Setting:
    """What is chosen under: the problem's own limits and prices unless moved."""

    deadline: float | None
    """Seconds."""
    budget: float | None
    prices: dict[int, float] = field(default_factory=dict)
    """By place in the problem's hardware, a multiple of its price."""

    @classmethod
    def of(cls, instance: Instance) -> Setting:
        return cls(instance.limits.deadline, instance.limits.budget)


def economy_of(candidates: Sequence[Candidate], prices: dict[int, float]) -> Economy:
    """Columns of candidates at other prices, whose `seconds(step)` are the given seconds themselves."""

    def column(values: Any) -> Any:
        return np.array(list(values), dtype=float)

    return Economy(
        seconds_per_step=np.ones(len(candidates)),
        fixed=np.zeros(len(candidates)),
        rent=column(one.rent * prices.get(one.entry, 1.0) for one in candidates),
        committed=column(one.committed for one in candidates),
        num_gpus=column(one.plan.decisions.num_gpus for one in candidates),
        draw=column(one.draw for one in candidates),
        emission=column(one.emission for one in candidates),
    )


def choose(
    instance: Instance, candidates: Sequence[Candidate], setting: Setting, seconds: Any = None
) -> int | None:
    """The best candidate within deadline and budget; None if there is none. Equal ones go by their order.

    `seconds` are lengths of the runs other than the candidates' own.
    """
    if not len(candidates):
        return None
    economy = economy_of(candidates, setting.prices)
    length = np.array([one.seconds for one in candidates]) if seconds is None else np.asarray(seconds)
    keys = economics.keys(instance.objective, instance.lexicographic, economy, length)
    expected = length * np.array([one.margin for one in candidates])
    late = expected > (np.inf if setting.deadline is None else setting.deadline)
    dear = economy.total("cost", expected) > (np.inf if setting.budget is None else setting.budget)
    inside = np.flatnonzero(~late & ~dear & np.isfinite(length))
    if not len(inside):
        return None
    ranks = economics.ranks(tuple(key[inside] for key in keys))
    return int(inside[np.argmin(ranks)])
