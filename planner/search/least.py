"""What runs of layer keys and of pipelines take at least, and which limits that breaks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.economics import at_rate
from planner.instance import Instance, Limits, Term
from planner.limits import outside
from planner.required import most_by_key, too_lossy
from planner.running import Running
from planner.search.goal import Goal
from planner.space.columns import LayerKeys

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Least:
    """What runs of layer keys or of pipelines take at least."""

    seconds: Array
    dollars: Array
    value: Array
    """Of the goal's first sort key."""
    late: Array
    """Whether that breaks the deadline."""
    dear: Array
    """Whether that breaks the budget."""

    beyond: dict[str, Array]
    """Whether that breaks another limit, by its name."""

    @property
    def within(self) -> Array:
        return ~np.logical_or.reduce([self.late, self.dear, *self.beyond.values()])


@dataclass(frozen=True, slots=True)
class PerGpuSecond:
    """What runs of layer keys take at least for each GPU-second of their steps: (keys,)."""

    instance: Instance
    terms: dict[Term, Array]
    """Seconds, dollars, kWh, tonnes."""
    value: Array
    """Of the goal's first sort key."""
    most: dict[str, Array]
    """GPU-seconds a token that requirements allow, by their text."""
    lossy: dict[str, Array]
    """Whether what runs lose breaks a requirement, by its text."""

    @classmethod
    def of(cls, instance: Instance, goal: Goal, keys: LayerKeys, at_least: Array) -> PerGpuSecond:
        """On as many GPUs as the deadline needs at least, or more."""
        running, pool = Running.of(instance), keys.pool
        columns = running.per_gpu_second()
        value = running.at_least(goal.key_bound(columns), pool, at_least)
        terms: dict[Term, Array] = {
            term: running.at_least(of, pool, at_least) for term, of in columns.items()
        }
        lossy = too_lossy(instance, pool, at_least)
        return cls(instance, terms, value, most_by_key(instance, keys), lossy)

    def least(self, limits: Limits, key: Array, gpu_seconds: Array) -> Least:
        """What runs of layer keys take at least that spend so many GPU-seconds a token."""
        total = self.instance.tokens * gpu_seconds * (1 - 1e-12)
        rates = self.terms["time"], self.terms["cost"], self.value
        seconds, cost, value = (at_rate(total, rate[key]) for rate in rates)
        late, dear = outside(limits, seconds, cost)
        beyond = {}
        if limits.energy is not None:
            beyond["energy"] = at_rate(total, self.terms["energy"][key]) > limits.energy
        if limits.carbon is not None:
            beyond["carbon"] = at_rate(total, self.terms["carbon"][key]) > limits.carbon
        spent = gpu_seconds * (1 - 1e-12)
        beyond |= {text: spent > most[key] for text, most in self.most.items()}
        beyond |= {text: lossy[key] for text, lossy in self.lossy.items()}
        return Least(seconds, cost, value, late, dear, beyond)
