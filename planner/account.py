"""What a plan takes, and how two plans differ: days, dollars, MFU, memory, and the parts of a step."""

from __future__ import annotations

from dataclasses import dataclass

from costmodel.estimate import Estimate as Prediction
from costmodel.units import GIB
from planner.answer import days_and_dollars, predicted
from planner.instance import Instance
from planner.keybook import KeyBook
from planner.narrowing import ZERO_SCOPES, set_name
from planner.search import Plan
from planner.space.recompute import HIDDEN, HIDDEN_SELECTIVE, SELECTIVE, modules_of
from planner.switches import word


@dataclass(frozen=True, slots=True)
class Account:
    """A plan with what it takes, computed once."""

    plan: Plan
    days: float
    dollars: float
    prediction: Prediction
    shares: dict[str, float]
    """Dollars or days of the run by part of the step."""

    @classmethod
    def of(cls, book: KeyBook, plan: Plan) -> Account:
        """The account of a plan of the book's instance."""
        return cls.within(book.instance, plan)

    @classmethod
    def within(cls, instance: Instance, plan: Plan) -> Account:
        """The account of a plan of an instance."""
        days, cost = days_and_dollars(instance, plan)
        of = predicted(instance, plan)
        total = cost if by_money(instance) else days
        parts = {name: total * part / of.step_time for name, part in of.breakdown.items()}
        return cls(plan, days, cost, of, parts)

    @property
    def memory_gib(self) -> float:
        """GiB of the fullest rank."""
        return float(self.prediction.memory.total) / GIB


def by_money(instance: Instance) -> bool:
    """Whether parts of a step are told in dollars, or in days."""
    return instance.objective[0][0] == "cost"


def mode_of(plan: Plan) -> str:
    """The recompute mode as a launch file would name it."""
    if plan.of("family") in (SELECTIVE, HIDDEN_SELECTIVE):
        return "selective"
    return "full" if any(plan.stages.recomputed) else "none"


def modules_word(instance: Instance, plan: Plan) -> str:
    """Modules that are recomputed in every layer, as one word; nothing where none are."""
    return set_name(modules_of(instance.framework, plan.of("variant")))


def overlapped(plan: Plan) -> bool:
    """Whether the experts' traffic is hidden behind compute."""
    return plan.of("family") >= HIDDEN


def overlap_word(plan: Plan) -> str:
    """Whether the experts' traffic overlaps, in a word."""
    return word(overlapped(plan))


def scope_of(plan: Plan) -> str:
    """Which ranks share the states, in the words of problems."""
    return ZERO_SCOPES[plan.of("zero_scope")]


def effect_of(mine: Account, theirs: Account) -> dict[str, float]:
    """What taking the other plan would change."""
    return {
        "days": theirs.days - mine.days,
        "dollars": theirs.dollars - mine.dollars,
        "mfu": theirs.prediction.mfu - mine.prediction.mfu,
        "memory_gib": theirs.memory_gib - mine.memory_gib,
        "step_time_s": theirs.prediction.step_time - mine.prediction.step_time,
    }


def changes(mine: dict[str, float], theirs: dict[str, float]) -> dict[str, float]:
    """Theirs less mine by part, of every part that either has."""
    return {name: theirs.get(name, 0.0) - mine.get(name, 0.0) for name in mine | theirs}


def driver_of(parts: dict[str, float]) -> str:
    """The part that changes most."""
    return max(parts, key=lambda name: abs(parts[name]), default="nothing")
