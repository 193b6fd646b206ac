"""How the best plan of an instance is chosen, and what it takes: of plans on one pool, or of both kinds.

What prices and hardware decide is asked in the same words of either: `one_pool` answers of plans on one pool,
`mixed.either` of plans on one pool and on two.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from planner.instance import Instance
from planner.limit_move import Change

P = TypeVar("P")


class Choosing(Protocol[P]):
    """Chooses among plans of some kind.

    `known` is a plan of the same instance, of the kind that is asked for: nothing worse is looked at.
    """

    @property
    def stays(self) -> str:
        """What is said of a pool that the best plan still uses: stays the best."""
        ...

    @property
    def wins(self) -> str:
        """What is said of a pool that the best plan then uses: wins."""
        ...

    def best(self, instance: Instance, known: P | None = None) -> P | None:
        """The best plan."""
        ...

    def using(self, instance: Instance, index: int, known: P | None = None) -> P | None:
        """The best plan that uses a pool, in any precision."""
        ...

    def why_none(self, instance: Instance, index: int) -> str:
        """Why no plan that uses a pool is within the limits."""
        ...

    def here(self, instance: Instance, plan: P) -> P | None:
        """A plan of an instance that differs in links or memory alone; None where it breaks a limit here."""
        ...

    def value(self, instance: Instance, plan: P) -> float:
        """The first sort key: dollars, seconds, kWh, tonnes, or dollars with a value of time."""
        ...

    def days(self, instance: Instance, plan: P) -> float:
        """How long the run takes."""
        ...

    def pools(self, plan: P) -> tuple[int, ...]:
        """Indices of the pools that a plan uses."""
        ...

    def called(self, instance: Instance, plan: P) -> str:
        """A plan as a rival is called: by its GPU types."""
        ...

    def machines(self, instance: Instance, plan: P) -> str:
        """The GPUs that a plan uses, in words."""
        ...

    def change(self, instance: Instance, plan: P, there: Instance, other: P) -> Change:
        """From a plan of one instance to a plan of another."""
        ...

    def on_same_gpus(self, instance: Instance, plan: P, there: Instance, other: P) -> float | None:
        """Days of the best plan of another instance on exactly a plan's GPUs; `other` is the best on any."""
        ...
