"""When neither one pool nor two have a plan: which limits conflict, and how far each would have to move."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from costmodel.units import DAY, TB
from planner.conflict import conflicting
from planner.instance import Instance, Limits, Term
from planner.limit_words import limit_words
from planner.looser import looser
from planner.mixed.either import best_of_both
from planner.mixed.reasons import better_than
from planner.near import value_told
from planner.node_reach import no_number_of_nodes
from planner.relaxed import TERMS, limited, possible, smallest, without
from planner.solution import Conflict, Relaxation
from planner.solution import Plan as Told
from planner.variants import aimed, with_pool
from planner.ways_out import less_headroom, moved_nodes, relaxation


def infeasible_of_both(instance: Instance) -> Conflict:
    """The minimal set of limits in conflict, and for each limit how far it would have to move alone."""

    def enough(index: int, nodes: int) -> bool:
        return possible_on_both(with_pool(instance, index, max_nodes=nodes), instance.limits)

    moves = [*moved_limits_of_both(instance), *moved_nodes(instance, enough)]
    moves += [*less_headroom(instance, possible_on_both), *looser(instance, quickest_of_both, _value)]
    limits = conflicting_of_both(instance)
    stuck = no_number_of_nodes(instance, limits, moves)
    return Conflict(limits=limits, relaxations=tuple(moves), stuck=stuck)


def _value(_: Instance, plan: Told, name: str) -> Any:
    return value_told(plan, name)


def conflicting_of_both(instance: Instance) -> tuple[str, ...]:
    """A smallest set of limits that cannot hold together, by trial."""
    named = limited(instance, instance.limits)

    def helps(names: list[str]) -> bool:
        free = without(instance, names)
        return possible_on_both(free, free.limits)

    # What leaves no plan whatever the limits leaves none on two pools as on one.
    return smallest(named, helps) if helps(named) else conflicting(without(instance, named))


def moved_limits_of_both(instance: Instance) -> list[Relaxation]:
    """How far each limit on the run itself would have to move alone."""
    moves = []
    for name in limited(instance, instance.limits):
        if name == "storage" and (words := _room_words(instance)) is not None:
            moves.append(relaxation(name, *words))
        if name not in TERMS:
            continue
        plan = best_of_both(aimed(without(instance, [name]), TERMS[name]))
        if plan is not None:
            least = spent(plan)[TERMS[name]]
            moves.append(relaxation(name, *limit_words(name, getattr(instance.limits, name), least)))
    return moves


def _room_words(instance: Instance) -> tuple[str, str] | None:
    """The storage there is, and what the quickest or the cheapest plan of either kind keeps."""
    free = without(instance, ["storage"])
    plans = [plan for term in ("time", "cost") if (plan := best_of_both(aimed(free, term))) is not None]
    kept = {plan.estimate.storage.total_tb: plan for plan in plans if plan.estimate.storage is not None}
    site = instance.pools[0].site
    if not kept or site is None:
        return None
    room = site.storage.resolved(kept[min(kept)].decisions.nodes).capacity
    return limit_words("storage", float(np.asarray(room)), min(kept) * TB)


def possible_on_both(instance: Instance, limits: Limits) -> bool:
    """Whether any plan of either kind is within limits."""
    on_two = aimed(replace(instance, limits=limits), "time")
    return possible(instance, limits) or better_than(on_two, None)[0] is not None


def quickest_of_both(instance: Instance, limits: Limits) -> Told | None:
    """The quickest plan of either kind within limits."""
    return best_of_both(aimed(replace(instance, limits=limits), "time"))


def spent(plan: Told) -> dict[Term, float]:
    """What a plan takes, in the units of limits: seconds, USD, kWh, tonnes of CO2."""
    of = plan.estimate
    found: dict[Term, float] = {"time": of.days * DAY, "cost": of.dollars}
    if of.energy is not None:
        found |= {"energy": of.energy.mwh * 1e3, "carbon": of.energy.tonnes_co2}
    return found
