"""Explains a plan on two pools: reasons, what limits cost, how sure. Plans of both kinds are asked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial

from planner.asking import Asking
from planner.break_even import break_evens
from planner.explained import (
    HARDWARE,
    LIMITS,
    PRICES,
    objective_words,
    since,
    told_of_time,
)
from planner.explanation import ExplainedReason, Explanation, LimitMoved, Sureness
from planner.instance import Instance
from planner.limit_move import Move, capital
from planner.marginal import moves
from planner.mixed.best import BestOfPairs
from planner.mixed.either import OnEither
from planner.mixed.questions import Either
from planner.mixed.reasons import reasons, told
from planner.mixed.verdict import WHY
from planner.problem import Problem
from planner.search import Plan, Table
from planner.solution import Solution, Status
from planner.sure_words import sureness_told
from planner.variants import pool_name
from planner.what_if import changed, hardware_changes

LEFT_OUT = {"paying": "ways to pay"}
"""Parts of an explanation that are worked out for plans on one pool."""


def explained_pair(
    problem: Problem,
    search: BestOfPairs,
    table: Table,
    single: Plan | None,
    parts: Collection[str],
    progress: Callable[[str], None],
    of: Solution | None,
    asking: Asking,
    status: Status,
) -> Explanation:
    """The explanation of the best plan of a search, which is better than the best one on one pool."""
    instance, plan = search.instance, search.best
    assert plan is not None
    progress("asking what each decision would cost otherwise")
    why = asking.every(WHY, reasons(search, table, single, asking.until)) if "why" in parts else ()
    progress("moving limits, asking prices, changing the hardware")
    mine = told(instance, plan).model_copy(update={"reasons": tuple(why)})
    choose = OnEither(instance, search.memo, asking.until)
    limits = moves(instance) if "limits" in parts else ()
    called = {index: pool_name(instance, index) for index in plan.pools}
    hardware = hardware_changes(instance, called) if "hardware" in parts else ()
    prices = break_evens(instance, plan, choose) if "prices" in parts else ()
    explanation = Explanation(
        name=problem.name,
        status=status,
        objective=objective_words(instance),
        plan=mine,
        reasons=tuple(ExplainedReason(**reason.model_dump()) for reason in why),
        limits=tuple(asking.each(LIMITS, limits, partial(moved_of_both, instance, plan, choose))),
        break_evens=tuple(asking.each(PRICES, prices, lambda of: of)),
        what_ifs=tuple(asking.each(HARDWARE, hardware, lambda of: changed(instance, plan, of, choose))),
        sureness=sureness_told(mine.estimate) if "sure" in parts else Sureness(),
        notes=(*problem.assumptions, *left_out(parts), *since(of, mine.decisions)),
    )
    return explanation.model_copy(update={"notes": (*explanation.notes, *told_of_time(status, asking))})


def left_out(parts: Collection[str]) -> Iterator[str]:
    """What is not worked out for plans on two pools, of what was asked for."""
    names = [words for part, words in LEFT_OUT.items() if part in parts]
    if names:
        words = ", ".join(names)
        yield f"{capital(words)}: worked out for plans on one pool only, and the best plan is on two."


def moved_of_both(instance: Instance, plan: Either, choose: OnEither, move: Move) -> LimitMoved:
    """What a limit in another place changes, with the best plan of either kind there.

    A tighter limit that the plan meets leaves it the best; under a looser one nothing worse is looked at.
    """
    holds = choose.holds(move.instance, plan)
    known = plan if holds else None
    other = known if holds and not move.loosened else choose.best(move.instance, known)
    return move.moved(None if other is None else choose.change(instance, plan, move.instance, other))
