"""Explains a plan on two pools: reasons, what limits cost, how sure. Plans of both kinds are asked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from planner.explained import objective_words, since
from planner.explanation import ExplainedReason, Explanation, LimitMoved, Sureness
from planner.instance import Instance
from planner.limit_move import Change, Move, capital
from planner.marginal import moves
from planner.mixed.best import BestOfPairs
from planner.mixed.reasons import better_than, effect_of, keys_if_any, reasons, told
from planner.mixed.search import Memo
from planner.problem import Problem
from planner.search import Plan, Table
from planner.solution import Decisions, Scalar, Solution
from planner.solution import Plan as Told
from planner.variants import best_plan

LEFT_OUT = {
    "prices": "prices that decide",
    "paying": "ways to pay",
    "hardware": "other hardware",
}
"""Parts of an explanation that are worked out for plans on one pool."""
SAID = (
    "tp", "cp", "pp", "vpp", "dp", "ep", "etp", "micro_batch", "num_microbatches", "global_batch", "zero",
    "recompute",
)  # fmt: skip


def explained_pair(
    problem: Problem,
    search: BestOfPairs,
    table: Table,
    single: Plan | None,
    parts: Collection[str],
    progress: Callable[[str], None],
    of: Solution | None,
) -> Explanation:
    """The explanation of the best plan of a search, which is better than the best one on one pool."""
    instance, plan = search.instance, search.best
    assert plan is not None
    progress("asking what each decision would cost otherwise")
    why = reasons(search, table, single) if "why" in parts else ()
    progress("moving limits")
    mine = told(instance, plan).model_copy(update={"reasons": why})
    limits = moves(instance) if "limits" in parts else ()
    return Explanation(
        name=problem.name,
        status="optimal",
        objective=objective_words(instance),
        plan=mine,
        reasons=tuple(ExplainedReason(**reason.model_dump()) for reason in why),
        limits=tuple(moved(instance, mine, move, search.memo) for move in limits),
        sureness=sureness(mine) if "sure" in parts else Sureness(),
        notes=(*problem.assumptions, *left_out(parts), *since(of, mine.decisions)),
    )


def left_out(parts: Collection[str]) -> Iterator[str]:
    """What is not worked out for plans on two pools, of what was asked for."""
    names = [words for part, words in LEFT_OUT.items() if part in parts]
    if names:
        words = ", ".join(names)
        yield f"{capital(words)}: worked out for plans on one pool only, and the best plan is on two."


def moved(instance: Instance, mine: Told, move: Move, memo: Memo) -> LimitMoved:
    """What a limit in another place changes, with the best plan of either kind there."""
    # Stages are as good as before wherever memory and batch, which decide them, are what they were.
    theirs = best_of_both(move.instance, memo if same_stages(instance, move.instance) else {})
    if theirs is None:
        return move.moved(None)
    change = Change(
        before=value_of(instance, mine),
        after=value_of(instance, theirs),
        effect=effect_of(mine, theirs),
        decisions=decided_otherwise(mine.decisions, theirs.decisions),
        machines=theirs.decisions.machines,
    )
    return move.moved(change)


def same_stages(one: Instance, other: Instance) -> bool:
    """Whether a layout has the same best stages in both."""
    return one.limits.memory_headroom == other.limits.memory_headroom


def best_of_both(instance: Instance, memo: Memo) -> Told | None:
    """The best plan of either kind, as the solution file has it."""
    single = best_plan(instance)
    mixed = better_than(instance, keys_if_any(instance, single), memo=memo)[0]
    best = single if mixed is None else mixed
    return None if best is None else told(instance, best)


def value_of(instance: Instance, plan: Told) -> float:
    """The objective's first term: dollars, days, or dollars with a value of time."""
    values = {"cost": plan.estimate.dollars, "time": plan.estimate.days}
    if plan.estimate.energy is not None:
        values |= {"energy": plan.estimate.energy.mwh, "carbon": plan.estimate.energy.tonnes_co2}
    if instance.lexicographic:
        return values[instance.objective[0][0]]
    return sum(values[name] * weight for name, weight in instance.objective)


def decided_otherwise(mine: Decisions, theirs: Decisions) -> dict[str, Scalar]:
    """What another plan decides otherwise, its machines first."""
    found: dict[str, Scalar] = {"gpus": theirs.machines} if theirs.machines != mine.machines else {}
    return found | {
        name: getattr(theirs, name) for name in SAID if getattr(theirs, name) != getattr(mine, name)
    }


def sureness(mine: Told) -> Sureness:
    """How sure the plan's figures are; no run on two types was measured, so the evidence is weak."""
    of = mine.estimate
    said = [f"The {name} holds with {share:.1%}." for name, share in of.probability.items()]
    if of.interval_80_days is not None:
        low, high = of.interval_80_days
        said.insert(0, f"Four of five such runs take {low:.1f} to {high:.1f} days ({of.evidence} evidence).")
    return Sureness(
        interval_80_days=of.interval_80_days,
        evidence=of.evidence or "",
        probability=of.probability,
        text=tuple(said),
    )
