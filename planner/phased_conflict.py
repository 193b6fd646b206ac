"""When no run in phases is within the limits: which of them conflict, and how far each would have to move."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from costmodel.units import DAY
from planner.asking import Asking
from planner.conflict import HOW_FAR, WHICH, obstacle, with_search
from planner.finding import Finding
from planner.frameworks.table import ANY
from planner.instance import Instance, Limits, Term
from planner.limit_words import limit_words
from planner.narrowed import keys_in_conflict
from planner.other_frameworks import FRAMEWORK
from planner.relaxed import TERMS, limited, smallest, tables_until, without
from planner.search import Effort
from planner.solution import Conflict, Relaxation
from planner.together import Together, Whole
from planner.variants import decided
from planner.ways_out import relaxation

OF_SEARCH = ("narrowing", "switches", "stack", "framework", "per_stage_recompute")
"""What phases have of a problem's `search`, all of them the same."""


def infeasible(search: Together, asking: Asking) -> Conflict:
    """The limits in conflict, and how far deadline and budget would have to move alone, or both together.

    As much of that as is known in time.
    """
    until = asking.until
    limits = asking.ask(WHICH, lambda: conflicting(search, until)) or ()
    alone = with_search(search.run, limits, moved_alone(search, until), of_run(search, until))
    moves = asking.every(HOW_FAR, alone)
    moves = moves or asking.every(HOW_FAR, moved_together(search, until))
    return Conflict(limits=limits, relaxations=tuple(moves))


def conflicting(search: Together, until: float | None) -> tuple[str, ...]:
    """A smallest set of limits that cannot hold together, by trial."""
    named = limited(search.run, search.limits)

    def helps(names: list[str], of: Together = search) -> bool:
        return best_without(of, names, "time", until) is not None

    if helps(named):
        return smallest(named, helps)
    other = search.run.framework != ANY and helps([*named, FRAMEWORK])
    left_out = named if other else [*named, FRAMEWORK]
    each = (keys_in_conflict(without(phase, left_out), tables_until(until)) for phase in search.phases)
    keys = next(filter(None, each), ())
    if other:
        return (*keys, FRAMEWORK)
    return keys or (obstacle(lambda change: helps(named, changed(search, change))),)


def of_run(search: Together, until: float | None) -> Finding[Whole]:
    """How runs are found whose phases have the `search` and the framework of an instance."""

    def so(instance: Instance) -> Together:
        own = {name: getattr(instance, name) for name in OF_SEARCH}
        return replace(search, run=instance, phases=tuple(replace(each, **own) for each in search.phases))

    def quickest(instance: Instance, limits: Limits) -> Whole | None:
        return best_without(so(replace(instance, limits=limits)), [], "time", until)

    def value(instance: Instance, run: Whole, name: str) -> Any:
        longest = max(range(len(run.plans)), key=lambda phase: run.seconds[phase])
        return decided(search.phases[longest], run.plans[longest]).get(name)

    return Finding(
        fastest=quickest,
        possible=lambda instance, limits: quickest(instance, limits) is not None,
        moved_limits=lambda instance: moved_alone(so(instance), until),
        took=lambda instance, run: (run.totals["time"] / DAY, run.totals["cost"]),
        decided=value,
    )


def moved_alone(search: Together, until: float | None) -> Iterator[Relaxation]:
    """How far each limit on the run would have to move alone."""
    for name in limited(search.run, search.limits):
        if name in TERMS and (least := best_without(search, [name], TERMS[name], until)) is not None:
            yield relaxation(name, *words(search, name, least))


def moved_together(search: Together, until: float | None) -> Iterator[Relaxation]:
    """How far the limits on the run would have to move together, where moving one is not enough."""
    names = [name for name in limited(search.run, search.limits) if name in TERMS]
    least = best_without(search, names, "time", until)
    if least is None:
        return
    broken = [name for name in names if least.totals[TERMS[name]] > getattr(search.limits, name)]
    pairs = [words(search, name, least) for name in broken]
    old, new = (" and ".join(each) for each in zip(*pairs, strict=True))
    yield relaxation(" and ".join(broken), old, new)


def words(search: Together, name: str, least: Whole) -> tuple[str, str]:
    """A limit on the run, and what would be enough for a run without it."""
    return limit_words(name, getattr(search.limits, name), least.totals[TERMS[name]])


def changed(search: Together, change: Callable[[Instance], Instance]) -> Together:
    """The same with the run and its phases changed."""
    return replace(search, run=change(search.run), phases=tuple(change(phase) for phase in search.phases))


def best_without(search: Together, names: list[str], objective: Term, until: float | None) -> Whole | None:
    """The best run of one objective without some of the limits.

    Raises OutOfTime where that is not proved by `until` (of time.monotonic).
    """
    run = without(search.run, names)
    phases = [metered_as(search.run, without(phase, names)) for phase in search.phases]
    effort = Effort(until=until)
    best = Together.of(metered_as(search.run, run), phases, effort, run.limits, objective).best()[0]
    effort.conclude()
    return best


def metered_as(run: Instance, instance: Instance) -> Instance:
    """An instance whose plans are counted in energy and carbon if the run's are, whatever limits hold."""
    limits = replace(instance.limits, energy=run.limits.energy, carbon=run.limits.carbon)
    return replace(instance, limits=limits)
