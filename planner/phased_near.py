"""Runs in phases within limits that are loosened or let go (`planner.near`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from costmodel.units import TB
from planner.answer import reported
from planner.instance import Instance, Term
from planner.let_go import LetGo
from planner.limit_words import limit_words
from planner.loosening import IN, MEMORY, NumberLimit, loosened, number_limits, room_of
from planner.looser import moved_requirement, number_at, place_within
from planner.near import Change, Near, fullest, value_told
from planner.nearest import Loosened, nearest_found
from planner.phased_conflict import best_without, metered_as
from planner.relaxed import TERMS
from planner.required import requirements_of
from planner.running import kept_by, losses_of
from planner.search import Effort
from planner.search.goal import OutOfTime
from planner.solution import Nearest, Relaxation
from planner.together import Together, Whole
from planner.ways_out import relaxation


def nearest_run(search: Together, names: Sequence[str], until: float | None = None) -> Nearest | None:
    """The run in phases that breaks the limits by the least share; `names` are those of the phases.

    `until`: time (of time.monotonic) at which to stop with the nearest one that was found.
    """
    return nearest_found(search.run, InPhases(search, tuple(names), until))


def moved_requirements(search: Together, until: float | None) -> Iterator[Relaxation]:
    """What would do instead of each requirement, and of the storage, the rest as it is.

    Raises OutOfTime.
    """
    find = InPhases(search, tuple("" for _ in search.phases), until)
    numbers = {of.name: of for of in number_limits(search.run) if of.name not in TERMS}
    for name, of in numbers.items():
        near = find(same, {name: inf}, "time")
        if near is not None:
            loosened_alone = Loosened.of(LetGo((), same, [[of]], near), find)
            near = loosened_alone.least()
            if not loosened_alone.proved:
                raise OutOfTime
            yield moved_to(search.run, of, near)
    for of in requirements_of(search.run):
        if of.text not in numbers and best_without(search, [of.text], "time", until) is not None:
            text = f"without {of.text} a run is possible"
            yield Relaxation.of(of.text, of.text, "any", text)


def moved_to(run: Instance, of: NumberLimit, near: Near) -> Relaxation:
    """A limit where the nearest run without it is within it."""
    if of.of == "storage":
        words = limit_words("storage", TB * near.allowed(of), TB * near.used(of))
        return relaxation("storage", *words)
    (required,) = (each for each in requirements_of(run) if each.text == of.name)
    value = near.used(of)
    if required.decision is not None:
        return moved_requirement(required, int(value))
    return moved_requirement(required, number_at(place_within(value, of.at_most)))


def same(instance: Instance) -> Instance:
    """The instance as it is."""
    return instance


@dataclass(frozen=True, slots=True)
class InPhases:
    """Finds runs in phases."""

    search: Together
    names: tuple[str, ...]
    until: float | None = None

    def __call__(self, free: Change, shares: Mapping[str, float], term: Term | None) -> Near | None:
        effort, run = Effort(until=self.until), loosened(free(self.search.run), shares)
        phases = [metered_as(self.search.run, loosened(free(of), shares)) for of in self.search.phases]
        metered = metered_as(self.search.run, run)
        whole = Together.of(metered, phases, effort, run.limits, term).best()[0]
        if whole is None and effort.out_of_time:
            raise OutOfTime
        aimed = None if effort.out_of_time else term
        return None if whole is None else self._near(whole, free, aimed)

    def _near(self, whole: Whole, free: Change, aimed: Term | None) -> Near:
        """A run as it is told."""
        run, phases = free(self.search.run), [free(phase) for phase in self.search.phases]
        plans = [reported(of, plan) for of, plan in zip(phases, whole.plans, strict=True)]
        longest = max(range(len(plans)), key=lambda phase: whole.seconds[phase])

        def value(of: NumberLimit) -> float:
            each = [float(value_told(plan, of.of)) for plan in plans]
            return max(each) if of.at_most else min(each)

        memory = fullest(run, [(whole.place[0], plan.memory) for plan in whole.plans])
        pool = run.pools[whole.place[0]]
        taken = {name: whole.totals[term] / IN[name] for name, term in TERMS.items() if term in whole.totals}
        taken |= {MEMORY: memory[0], "storage": kept_of(run, whole) / TB}
        rooms = {MEMORY: memory[1], "storage": room_of(pool) / TB}
        return Near(plans[longest], taken, rooms, value, aimed, self.names[longest])


def kept_of(run: Instance, whole: Whole) -> float:
    """Bytes that a run keeps by its end."""
    index, num_gpus = whole.place
    pool = run.pools[index]
    if pool.site is None:
        return 0.0
    gpus, seconds = np.array([num_gpus]), np.array([whole.totals["time"]])
    return float(kept_by(run, pool.site, gpus, losses_of(pool, gpus), seconds)[0])
