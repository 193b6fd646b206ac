"""When no run in phases is within the limits: which of them conflict, and how far each would have to move."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from planner.conflict import obstacle
from planner.instance import Instance, Term
from planner.limit_words import limit_words
from planner.relaxed import TERMS, limited, smallest, without
from planner.search import Effort
from planner.solution import Conflict, Relaxation
from planner.together import Together, Whole
from planner.ways_out import relaxation


def infeasible(search: Together) -> Conflict:
    """The limits in conflict, and how far deadline and budget would have to move alone."""
    named = limited(search.run, search.limits)
    moves: list[Relaxation] = []
    for name in named:
        if name in TERMS and (least := best_without(search, [name], TERMS[name])) is not None:
            moves.append(relaxation(name, *words(search, name, least)))
    if best_without(search, named, "time") is None:
        why = obstacle(lambda change: best_without(changed(search, change), named, "time") is not None)
        return Conflict(limits=(why,), relaxations=tuple(moves))
    moves = moves or moved_together(search, named)
    limits = smallest(named, lambda names: best_without(search, names, "time") is not None)
    return Conflict(limits=limits, relaxations=tuple(moves))


def moved_together(search: Together, named: list[str]) -> list[Relaxation]:
    """How far the limits on the run would have to move together, where moving one is not enough."""
    names = [name for name in named if name in TERMS]
    least = best_without(search, names, "time")
    if least is None:
        return []
    broken = [name for name in names if least.totals[TERMS[name]] > getattr(search.limits, name)]
    pairs = [words(search, name, least) for name in broken]
    old, new = (" and ".join(each) for each in zip(*pairs, strict=True))
    return [relaxation(" and ".join(broken), old, new)]


def words(search: Together, name: str, least: Whole) -> tuple[str, str]:
    """A limit on the run, and what would be enough for a run without it."""
    return limit_words(name, getattr(search.limits, name), least.totals[TERMS[name]])


def changed(search: Together, change: Callable[[Instance], Instance]) -> Together:
    """The same with the run and its phases changed."""
    return replace(search, run=change(search.run), phases=tuple(change(phase) for phase in search.phases))


def best_without(search: Together, names: list[str], objective: Term) -> Whole | None:
    """The best run of one objective without some of the limits."""
    run = without(search.run, names)
    phases = [metered_as(search.run, without(phase, names)) for phase in search.phases]
    return Together.of(metered_as(search.run, run), phases, Effort(), run.limits, objective).best()[0]


def metered_as(run: Instance, instance: Instance) -> Instance:
    """An instance whose plans are counted in energy and carbon if the run's are, whatever limits hold."""
    limits = replace(instance.limits, energy=run.limits.energy, carbon=run.limits.carbon)
    return replace(instance, limits=limits)
