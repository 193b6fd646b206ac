"""How plans are found and read where nothing fits: on one pool, of either kind, or of a run in phases."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from planner.instance import Instance, Limits
from planner.solution import Relaxation

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Finding(Generic[P]):
    """What is asked of plans of some kind, of whatever instance."""

    fastest: Callable[[Instance, Limits], P | None]
    """The quickest plan within limits."""
    possible: Callable[[Instance, Limits], bool]
    """Whether any plan is within limits."""
    moved_limits: Callable[[Instance], Iterable[Relaxation]]
    """How far each limit on the run would have to move alone."""
    took: Callable[[Instance, P], tuple[float, float]]
    """Days and dollars of a plan that deadline and budget have to allow for."""
    decided: Callable[[Instance, P, str], Any]
    """A decision of a plan by its name; None where it is none."""
