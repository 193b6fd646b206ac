"""Limits that are numbers: each loosened by a share of itself, and by which share a plan is beyond it.

A limit of x at most is then one of x * (1 + share), one of x at least is one of x / (1 + share).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from costmodel.units import DAY, GIB, TB
from planner.instance import Instance, Pool
from planner.other_frameworks import with_memory, without_memory_limit
from planner.relaxed import TERMS, limited, without
from planner.required import requirements_of, with_requirements
from planner.requirements import QUANTITIES, Requirement

MEMORY = "memory"
"""What the memory of GPUs is called among limits."""
UNITS = {
    "deadline": "days",
    "budget": "USD",
    "energy": "MWh",
    "carbon": "t CO2",
    "storage": "TB",
    MEMORY: "GiB",
}
IN = {"deadline": DAY, "budget": 1.0, "energy": 1e3, "carbon": 1.0}
"""Of a limit on a run, in the unit of the instance."""


@dataclass(frozen=True, slots=True)
class NumberLimit:
    """A limit on a number, in the unit that solutions have it in."""

    name: str
    """As conflicts have it: deadline, memory, or a requirement as written."""
    of: str
    """What it limits: a decision or a prediction by the word of requirements, else the same as its name."""
    allowed: float
    """Of memory and storage the most that any pool has: a plan has that of its own."""
    unit: str
    at_most: bool = True

    def share(self, used: float, allowed: float | None = None) -> float:
        """By which share a plan that uses so much is beyond it; 0 within."""
        allowed = self.allowed if allowed is None else allowed
        more, less = (used, allowed) if self.at_most else (allowed, used)
        return max(0.0, more / less - 1)


def number_limits(instance: Instance) -> list[NumberLimit]:
    """All that are set, the memory of GPUs aside; in the order in which conflicts name them."""
    required = {of.text: of for of in requirements_of(instance)}
    found: list[NumberLimit] = []
    for name in limited(instance, instance.limits):
        if name in required:
            if loosens(required[name]):
                found.append(of_requirement(required[name]))
            continue
        value = finite_room(instance) / TB if name == "storage" else None
        value = getattr(instance.limits, name) / IN[name] if value is None else value
        found.append(NumberLimit(name, name, value, UNITS[name]))
    return found


def finite_room(instance: Instance) -> float:
    """Bytes of the largest storage that has an end."""
    return max(room for room in map(room_of, instance.pools) if np.isfinite(room))


def memory_limit(instance: Instance) -> NumberLimit:
    """The memory of GPUs."""
    room = max(pool.memory_limit(instance.limits.memory_headroom) for pool in instance.pools)
    return NumberLimit(MEMORY, MEMORY, room / GIB, UNITS[MEMORY])


def loosens(of: Requirement) -> bool:
    """Whether a share more of it is anything: it has an order and is not about nothing (zero <= 0)."""
    return of.operator[0] in "<>" and whole_or_not(of) > 0


def whole_or_not(of: Requirement) -> float:
    """The tightest value that keeps to a requirement with an order: of whole numbers below 8 it is 7."""
    strict = of.decision is not None and of.operator in ("<", ">")
    return of.value + (strict if of.operator == ">" else -strict)


def of_requirement(of: Requirement) -> NumberLimit:
    """A requirement with an order."""
    unit = QUANTITIES[of.name].unit if of.decision is None else ""
    return NumberLimit(of.text, of.name, whole_or_not(of), unit, at_most=of.operator[0] == "<")


def loosened(instance: Instance, shares: Mapping[str, float]) -> Instance:
    """The instance with some limits on numbers looser by a share each; without them if that is infinite."""
    gone = [name for name, share in shares.items() if np.isinf(share) and name != MEMORY]
    left = {name: share for name, share in shares.items() if share > 0 and not np.isinf(share)}
    found = without(instance, gone) if gone else instance
    if np.isinf(shares.get(MEMORY, 0.0)):
        found = without_gpu_memory(found)
    moved = {name: getattr(found.limits, name) * (1 + left[name]) for name in TERMS if name in left}
    found = replace(found, limits=replace(found.limits, **moved))
    if names := [of.text for of in requirements_of(found) if of.text in left]:
        each = (looser(of, left[of.text]) if of.text in names else of for of in requirements_of(found))
        found = with_requirements(found, list(each))
    if MEMORY in left or "storage" in left:
        pools = tuple(roomier(pool, left.get(MEMORY, 0.0), left.get("storage", 0.0)) for pool in found.pools)
        found = replace(found, pools=pools)
    return found


def looser(of: Requirement, share: float) -> Requirement:
    """A requirement with an order, a share looser."""
    value = whole_or_not(of)
    changed = value * (1 + share) if of.operator[0] == "<" else value / (1 + share)
    return replace(of, operator=of.operator[0] + "=", values=(changed,))


def roomier(pool: Pool, memory: float, storage: float) -> Pool:
    """A pool with a share more memory on each GPU, and a share more storage beside it."""
    if memory:
        pool = replace(pool, gpu=with_memory(pool.gpu, pool.gpu.memory.driver * (1 + memory)))
    if storage and pool.site is not None:
        pool = replace(pool, site=pool.site.with_room(room_of(pool) * (1 + storage)))
    return pool


def room_of(pool: Pool) -> float:
    """Bytes of storage beside a pool, whatever its nodes."""
    return np.inf if pool.site is None else float(np.asarray(pool.site.storage.resolved(1).capacity))


def without_gpu_memory(instance: Instance) -> Instance:
    """The instance on GPUs with all the memory in the world; what is required of it stays."""
    most = instance.limits.most_memory
    free = without_memory_limit(instance)
    return replace(free, limits=replace(free.limits, most_memory=most))
