"""When neither one pool nor two have a plan: which limits conflict, and how far each would have to move."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from costmodel.units import DAY, TB
from planner.asking import Asking
from planner.conflict import WHICH, conflicting, told, with_search
from planner.finding import Finding
from planner.instance import Instance, Term
from planner.limit_words import limit_words
from planner.looser import best_found, looser, may_help
from planner.mixed.known import Searches
from planner.mixed.layouts import any_layout
from planner.near import value_told
from planner.relaxed import TERMS, limited, optimum, smallest, tables_until, without
from planner.solution import Conflict, Relaxation
from planner.solution import Plan as Told
from planner.switches import SWITCHES
from planner.variants import aimed, with_pool
from planner.ways_out import OnMore, alone, less_headroom, moved_nodes, relaxation


def infeasible_of_both(instance: Instance, asking: Asking) -> Conflict:
    """`conflict.infeasible`, of plans of either kind."""
    searches = Searches.of(instance, asking.until)
    limits = asking.ask(WHICH, lambda: conflicting_of_both(instance, searches)) or ()
    return told(instance, limits, ways_out_of_both(instance, limits, searches), asking)


def ways_out_of_both(instance: Instance, limits: Sequence[str], searches: Searches) -> Iterator[Relaxation]:
    """How far limits would have to move, each alone; `limits` are those that conflict."""
    of, until = of_both(searches), searches.until
    # More nodes last: it takes the longest to know how many.
    by_itself = (
        moved_limits_of_both(instance, searches, limits),
        looser(instance, of.fastest, lambda _, plan, name: value_told(plan, name), limits),
        less_headroom(instance, of.possible),
        moved_nodes(
            instance,
            alone(instance, partial(optimum, until=until), tables_until(until)),
            beside_another(instance, searches),
        ),
    )
    return with_search(instance, limits, chain(*by_itself), of)


def beside_another(instance: Instance, searches: Searches) -> OnMore:
    """Plans on two pools, where there are more nodes of one."""
    assert instance.mixing is not None
    some = any(any_layout(instance, form) for form in instance.mixing.forms)

    def plans(index: int, fewer: int, nodes: int) -> bool:
        return searches.any_of_pairs(with_pool(instance, index, min_nodes=fewer + 1, max_nodes=nodes))

    return OnMore(lambda *_: some, plans)


def of_both(searches: Searches) -> Finding[Told]:
    """How plans of either kind are found."""
    return Finding(
        fastest=lambda instance, limits: searches.told(aimed(replace(instance, limits=limits), "time")),
        possible=lambda instance, limits: searches.any(replace(instance, limits=limits)),
        moved_limits=partial(moved_limits_of_both, searches=searches),
        took=lambda instance, plan: (plan.estimate.days, plan.estimate.dollars),
        decided=decision_told,
    )


def conflicting_of_both(instance: Instance, searches: Searches) -> tuple[str, ...]:
    """A smallest set of limits that cannot hold together, by trial."""
    named = limited(instance, instance.limits)

    def helps(names: list[str]) -> bool:
        return searches.any(without(instance, names))

    if helps(named):
        return smallest(named, helps)
    # What leaves no plan whatever the limits leaves none on two pools as on one.
    until = searches.until
    return conflicting(without(instance, named), partial(optimum, until=until), tables_until(until))


def moved_limits_of_both(
    instance: Instance, searches: Searches, among: Sequence[str] = ()
) -> Iterator[Relaxation]:
    """How far each limit on the run itself would have to move alone; of some that conflict, if known."""

    def words(name: str, plan: Told) -> Relaxation:
        least = spent(plan)[TERMS[name]]
        return relaxation(name, *limit_words(name, getattr(instance.limits, name), least))

    for name in limited(instance, instance.limits):
        if not may_help(name, among):
            continue
        if name == "storage" and (room := _room_words(instance, searches)) is not None:
            yield relaxation(name, *room)
        if name not in TERMS:
            continue
        free = aimed(without(instance, [name]), TERMS[name])
        yield from best_found(partial(searches.told, free), partial(words, name))


def _room_words(instance: Instance, searches: Searches) -> tuple[str, str] | None:
    """The storage there is, and what the quickest or the cheapest plan of either kind keeps."""
    free = without(instance, ["storage"])
    each = [searches.told(aimed(free, term)) for term in ("time", "cost")]
    plans = [plan for plan in each if plan is not None]
    kept = {plan.estimate.storage.total_tb: plan for plan in plans if plan.estimate.storage is not None}
    site = instance.pools[0].site
    if not kept or site is None:
        return None
    room = site.storage.resolved(kept[min(kept)].decisions.nodes).capacity
    return limit_words("storage", float(np.asarray(room)), min(kept) * TB)


def spent(plan: Told) -> dict[Term, float]:
    """What a plan takes, in the units of limits: seconds, USD, kWh, tonnes of CO2."""
    of = plan.estimate
    found: dict[Term, float] = {"time": of.days * DAY, "cost": of.dollars}
    if of.energy is not None:
        found |= {"energy": of.energy.mwh * 1e3, "carbon": of.energy.tonnes_co2}
    return found


def decision_told(instance: Instance, plan: Told, name: str) -> Any:
    """A decision of a plan, by its key of `search`; None of software, which is switched and not decided."""
    return None if name in SWITCHES else value_told(plan, name)
