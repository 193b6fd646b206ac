"""A limit in another place, and what that changes, as it is told of plans of either kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planner.explanation import LimitMoved
from planner.instance import Instance, Term
from planner.reason_words import money_words
from planner.solution import Scalar

UNITS: dict[Term, str] = {"cost": "USD", "time": "days", "energy": "kWh", "carbon": "t CO2"}
"""Of the objective's first term."""
SAME = 1e-6
"""Relative change of the objective that is none."""


@dataclass(frozen=True, slots=True)
class Change:
    """The best plan before and after a limit has moved."""

    before: float
    """Of the objective, in its `value_unit`."""
    after: float
    effect: dict[str, float]
    decisions: dict[str, Scalar]
    """What the best plan then decides otherwise."""
    machines: str


@dataclass(frozen=True, slots=True)
class Move:
    """A limit in another place."""

    limit: str
    called: str
    what: str
    """One day more of deadline (61 days)."""
    loosened: bool
    old: Any
    new: Any
    step: float
    """How far it moved, in `unit`."""
    unit: str
    instance: Instance
    lets_in: tuple[int, Instance] | None = None
    """Where that is an instance: what a looser limit lets in, and the place of its first pool here."""

    def moved(self, change: Change | None) -> LimitMoved:
        """What it changes, to be told; None: it leaves no plan."""
        where = {
            "limit": self.limit,
            "called": self.called,
            "loosened": self.loosened,
            "from_value": self.old,
            "to_value": self.new,
        }
        if change is None:
            return LimitMoved(
                **where, binds=True, feasible=False, text=f"{capital(self.what)} leaves no plan."
            )
        binds, effect = abs(change.after - change.before) > SAME * change.before, change.effect
        said = f": {saving(effect)} ({change.machines})" if binds else " changes nothing"
        return LimitMoved(
            **where,
            binds=binds,
            effect=effect,
            price=(change.after - change.before) / self.step,
            price_unit=f"{value_unit(self.instance)} {article(self.unit)} {self.unit}",
            decisions=change.decisions,
            text=f"{capital(self.what)}{said}.",
        )


def value_unit(instance: Instance) -> str:
    """What the objective's value is in."""
    return UNITS[instance.objective[0][0]] if instance.lexicographic else "USD"


def article(word: str) -> str:
    """Which one stands before a unit: an hour, a day."""
    return "an" if word == "hour" else "a"


def saving(effect: dict[str, float]) -> str:
    """What changes, money first: saves $31,204 and 0.98 days; costs $5,000 more and saves 0.50 days."""
    days, cost = effect["days"], effect["dollars"]
    money, time = f"${abs(cost):,.0f}", f"{abs(days):.2f} days"
    if abs(cost) < 0.5 and abs(days) < 0.005:
        return money_words(cost)
    if abs(days) < 0.005:
        return f"saves {money}" if cost < 0 else f"costs {money} more"
    if abs(cost) < 0.5:
        return f"saves {time}" if days < 0 else f"takes {time} more"
    if (cost < 0) == (days < 0):
        return f"saves {money} and {time}" if cost < 0 else f"costs {money} and {time} more"
    return f"saves {money} and takes {time} more" if cost < 0 else f"costs {money} more and saves {time}"


def capital(text: str) -> str:
    """The text as the start of a sentence."""
    return text[:1].upper() + text[1:]
