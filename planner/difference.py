"""What taking another plan would change, as every reason tells it: numbers, what drives them, and words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planner.account import Account, by_money, changes, driver_of, effect_of
from planner.instance import Instance
from planner.reason_words import change_words, part_name, part_words
from planner.solution import Reason


@dataclass(frozen=True, slots=True)
class Difference:
    """Two plans of a run, the other less mine."""

    effect: dict[str, float]
    """Days, dollars, MFU, memory and the step."""
    parts: dict[str, float]
    """Dollars or days of the run by part of the step."""
    in_dollars: bool

    @classmethod
    def of(cls, instance: Instance, mine: Account, theirs: Account) -> Difference:
        """Of plans on one pool."""
        return cls(effect_of(mine, theirs), changes(mine.shares, theirs.shares), by_money(instance))

    @property
    def because(self) -> str:
        """The part of the step that changes most."""
        return part_name(driver_of(self.parts))

    @property
    def words(self) -> str:
        """The effect and the largest changes of parts, as a clause."""
        return change_words(self.effect) + part_words(self.parts, self.in_dollars)

    def reason(self, decision: str, chosen: Any, alternative: Any, head: str) -> Reason:
        """Why a decision is as it is; `head` says what is compared."""
        return Reason(
            decision=decision,
            chosen=chosen,
            alternative=alternative,
            effect=self.effect,
            because=self.because,
            text=f"{head}: {self.words}.",
        )
