"""Which runs keep to the limits, and how much a run may take of each term."""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.chance import margin_of, most_spreads
from planner.economics import Economy
from planner.instance import Instance, Limits, Term
from planner.requirements import Requirement
from planner.space.columns import Groups

Array = NDArray[Any]


def most_of(limits: Limits) -> dict[Term, float]:
    """The most that a run may take of each term; inf where no limit says so."""
    named: dict[Term, float | None] = {
        "time": limits.deadline,
        "cost": limits.budget,
        "energy": limits.energy,
        "carbon": limits.carbon,
    }
    return {term: np.inf if limit is None else limit for term, limit in named.items()}


def outside(limits: Limits, seconds: Array, cost: Array) -> tuple[Array, Array]:
    """Runs that break the deadline, and runs that break the budget."""
    late = np.zeros(np.shape(seconds), dtype=bool) if limits.deadline is None else seconds > limits.deadline
    dear = np.zeros(np.shape(cost), dtype=bool) if limits.budget is None else cost > limits.budget
    return late, dear


def broken_by(limits: Limits, economy: Economy, seconds: Array, cost: Array) -> dict[str, Array]:
    """Runs of so many seconds and dollars that break a limit beside memory, by the limit's name."""
    late, dear = outside(limits, seconds, cost)
    return {"deadline": late, "budget": dear} | beyond(limits, economy, seconds)


def beyond(limits: Limits, economy: Economy, seconds: Array) -> dict[str, Array]:
    """Runs of so many seconds that break a limit beside deadline and budget, by the limit's name."""
    broken = {}
    if limits.energy is not None:
        broken["energy"] = economy.total("energy", seconds) > limits.energy
    if limits.carbon is not None:
        broken["carbon"] = economy.total("carbon", seconds) > limits.carbon
    if economy.room is not None:
        broken["storage"] = seconds > economy.room
    if economy.required is not None:
        columns = zip(limits.steps, economy.required.T, strict=True)
        # Of several on the step itself the tightest comes first: fewer micro-batches may keep to the others.
        for of, most in sorted(columns, key=lambda pair: _longest(pair[0])):
            broken[of.text] = seconds > most
    return broken


def _longest(of: Requirement) -> float:
    """Seconds of a step that a requirement names; 0 if it is about something else."""
    return float(of.value) if of.name == "step_time_s" else 0.0


def refused(limits: Limits, economy: Economy, step: Array) -> dict[str, Array]:
    """Rows that break a limit beside memory, by the limit's name, with what deadline and budget allow for."""
    seconds, allowed_for = economy.seconds(step), economy.surely.seconds(step)
    late, dear = outside(limits, allowed_for, economy.total("cost", allowed_for))
    return {"deadline": late, "budget": dear} | beyond(limits, economy, seconds)


def within(limits: Limits, economy: Economy, step: Array) -> Array:
    """Rows that meet all limits but memory."""
    inside = np.isfinite(step)
    for which in refused(limits, economy, step).values():
        inside &= ~which
    return inside


def surely_within(instance: Instance, limits: Limits, rows: Groups, economy: Economy, step: Array) -> Array:
    """`within`, with the margins of each row's own run where a confidence is asked for."""
    inside, share = within(limits, economy, step), instance.limits.chance
    if economy.margin is None or share is None or not inside.any():
        return inside
    some = np.flatnonzero(inside)
    few, of, steps = rows.take(some), economy.take(some), step[some]
    # exp(z*sqrt(s^2 + w^2)) is at most exp(z*s) * exp(z*w): what is within that needs no closer look.
    widened = np.exp(NormalDist().inv_cdf(share) * most_spreads(instance, few, steps))
    near = np.flatnonzero(~within(limits, replace(of, margin=economy.margin[some] * widened), steps))
    margin = [margin_of(instance, few.take(np.array([i])), float(steps[i])) for i in near.tolist()]
    inside[some[near]] = within(limits, replace(of.take(near), margin=np.array(margin)), steps[near])
    return inside
