"""Plans within limits that are loosened or let go: how they are found, by how much they break the limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from costmodel.units import GIB
from planner.answer import reported, surely
from planner.instance import Instance, Term
from planner.loosening import MEMORY, NumberLimit, loosened
from planner.narrowing import set_name
from planner.relaxed import LastTable
from planner.requirements import MODULES, NO_MODULES, SWITCH
from planner.running import Running
from planner.search import Effort, best, goal_of
from planner.search.goal import OutOfTime
from planner.solution import Plan
from planner.switches import word
from planner.variants import with_limits

Change = Callable[[Instance], Instance]
"""What makes one problem of another: limits that are let go."""
Find = Callable[[Change, Mapping[str, float], "Term | None"], "Near | None"]
"""The best plan of a changed problem with limits loosened by shares: of one term, or of its own objective.

Raises `OutOfTime`.
"""


@dataclass(frozen=True, slots=True)
class Near:
    """A plan beside limits that it breaks."""

    plan: Plan
    """As the changed problem, whose limits on numbers are not loosened, has it."""
    taken: Mapping[str, float]
    """What it takes of limits that are no requirement, in the units of solutions: days, USD, GiB, TB, ..."""
    rooms: Mapping[str, float]
    """Memory and storage that it may take, by the same names: those of its pool."""
    value: Callable[[NumberLimit], float]
    """What it has of what a requirement is about."""
    aimed: Term | None
    """No other plan within the limits by which it was found has less of this; None: nothing is known."""
    phase: str | None = None
    """Of a run in phases the one that `plan` is of."""

    def used(self, of: NumberLimit) -> float:
        """What the plan takes of what a limit is about."""
        return self.taken[of.of] if of.of in self.taken else self.value(of)

    def allowed(self, of: NumberLimit) -> float:
        """What the limit allows it."""
        return self.rooms.get(of.of, of.allowed)

    def share(self, of: NumberLimit) -> float:
        """By which share it is beyond a limit; 0 within."""
        return of.share(self.used(of), self.allowed(of))

    def over(self, of: NumberLimit) -> float:
        """How far it is beyond a limit, in its unit; 0 within."""
        used, allowed = self.used(of), self.allowed(of)
        return max(0.0, used - allowed if of.at_most else allowed - used)


def near_of(instance: Instance, until: float | None) -> Find:
    """How plans of an instance are found, on one pool or on either kind."""
    if instance.mixing is not None:
        from planner.mixed.known import Searches
        from planner.mixed.near import OnBothKinds

        return OnBothKinds(Searches.of(instance, until))
    return OnOnePool(instance, LastTable(until))


@dataclass(slots=True)
class OnOnePool:
    """Finds plans on one pool."""

    instance: Instance
    tables: LastTable

    def __call__(self, free: Change, shares: Mapping[str, float], term: Term | None) -> Near | None:
        there = free(self.instance)
        changed, effort = confined(loosened(there, shares)), Effort(until=self.tables.until)
        if changed is None:
            return None
        plan = best(self.tables.of(changed, goal_of(changed, objective=term), effort), effort=effort)
        if plan is None and effort.out_of_time:
            raise OutOfTime
        if plan is None:
            return None
        # Limits that hold at a confidence are about something else than the objective.
        proved = not effort.out_of_time and there.limits.chance is None
        memory = fullest(there, [(plan.of("pool"), plan.memory)])
        return near_plan(reported(there, plan), memory, surely(there, plan), term if proved else None)


def confined(instance: Instance) -> Instance | None:
    """The instance with limits that follow from others, of which bounds know: nodes and the deadline.

    Nodes are those that requirements on GPUs and nodes leave, and no run goes on when every storage is full.
    None if none of them has room for what a run begins with.
    """
    longest, deadline = float(Running.of(instance).room.max(initial=-1.0)), instance.limits.deadline
    if longest < 0:
        return None
    # A deadline at a confidence is of longer runs than those that are predicted to fill the storage.
    if np.isfinite(longest) and instance.limits.chance is None:
        instance = with_limits(instance, deadline=longest if deadline is None else min(longest, deadline))
    pools = []
    for pool in instance.pools:
        nodes = np.arange(pool.min_nodes, pool.max_nodes + 1)
        left = instance.narrowing.permitted("num_gpus", nodes * pool.fabric.gpus_per_node)
        left &= instance.narrowing.permitted("nodes", nodes)
        if left.any():
            pool = replace(pool, min_nodes=int(nodes[left].min()), max_nodes=int(nodes[left].max()))
        pools.append(pool)
    return replace(instance, pools=tuple(pools))


def near_plan(
    plan: Plan, memory: tuple[float, float], surely: tuple[float, float], aimed: Term | None
) -> Near:
    """A plan as it is told, with the days and dollars that deadline and budget have to allow for."""
    of, taken = plan.estimate, {"deadline": surely[0], "budget": surely[1], MEMORY: memory[0]}
    rooms = {MEMORY: memory[1]}
    if of.energy is not None:
        taken |= {"energy": of.energy.mwh, "carbon": of.energy.tonnes_co2}
    if of.storage is not None and "storage" in plan.slack:
        taken["storage"], rooms["storage"] = of.storage.total_tb, plan.slack["storage"].limit
    return Near(plan, taken, rooms, lambda of: float(value_told(plan, of.of)), aimed)


def fullest(instance: Instance, used: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """GiB of the GPU that is fullest for what may be used of it, and that; `used` is pool and bytes."""
    rooms = (instance.pools[pool].memory_limit(instance.limits.memory_headroom) for pool, _ in used)
    each = [(size / GIB, room / GIB) for (_, size), room in zip(used, rooms, strict=True)]
    return max(each, key=lambda pair: pair[0] / pair[1])


def value_told(plan: Plan, name: str) -> Any:
    """A decision or a prediction of a plan, by the word of requirements."""
    of = plan.estimate
    own = {
        "gpus": plan.decisions.num_gpus,
        "memory_gib": of.memory_gib.total,
        "step_time_s": of.step_time_s,
        "tokens_per_s_per_gpu": of.tokens_per_s_per_gpu,
        "mfu": of.mfu,
        "hfu": of.hfu,
        "goodput": of.goodput,
    }
    if name in own:
        return own[name]
    if name == MODULES:
        return set_name(plan.decisions.modules) or NO_MODULES
    value = getattr(plan.decisions, name)
    return word(value) if name == SWITCH else value
