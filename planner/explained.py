"""Explains a problem's plan: reasons, what limits cost, what prices and hardware would change, how sure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from math import isclose
from typing import Any

from planner import answer, explain
from planner.account import Account
from planner.alone import CHANGED, alone, neighbours
from planner.break_even import break_evens
from planner.conflict import infeasible
from planner.errors import Infeasible
from planner.explanation import Alone, Answer, ExplainedReason, Explanation, Sureness
from planner.instance import Instance
from planner.marginal import moved, moves
from planner.mixing import alone_note
from planner.paying import paying_of
from planner.price_of_sureness import price_of_sureness
from planner.problem import Problem
from planner.reason_words import days_words, money_words
from planner.relaxed import every_family
from planner.resolve import instance_of
from planner.search import Effort, Plan, Table, best, goal_of
from planner.search.goal import in_families
from planner.solution import Conflict, Reason, Solution
from planner.space.recompute import recompute_families, recompute_modes
from planner.variants import best_plan, decided, holds, with_limits
from planner.what_if import changed, hardware_changes
from planner.why import answered, parse_question

Progress = Callable[[str], None]
PARTS = ("why", "limits", "prices", "paying", "hardware", "sure")
"""Parts of an explanation; each takes several searches."""
USUAL = 0.9
"""The confidence that is looked at where a problem asks for none."""
SAME = 1e-9


def explained(
    problem: Problem,
    progress: Progress = lambda text: None,
    of: Solution | None = None,
    parts: Collection[str] = PARTS,
) -> Explanation:
    """The explanation of a problem's best plan, or parts of it; `of` is a solution file that it is asked of.

    Raises Infeasible where there is no plan.
    """
    instance = instance_of(problem)
    progress("looking for the best plan")
    table, plan = solved(instance, progress)
    reasons = reasons_of(table, plan, progress) if "why" in parts else ()
    progress("moving limits, asking prices, changing the hardware")
    mine = Account.within(instance, plan)
    limits = moves(instance) if "limits" in parts else ()
    hardware = hardware_changes(instance, plan) if "hardware" in parts else ()
    return Explanation(
        name=problem.name,
        status="optimal",
        objective=objective_words(instance),
        plan=answer.reported(instance, plan, reasons),
        reasons=tuple(with_alone(instance, mine, reason) for reason in reasons),
        limits=tuple(moved(instance, plan, move) for move in limits),
        break_evens=tuple(break_evens(instance, plan)) if "prices" in parts else (),
        paying=paying_of(instance, plan, problem.fine_tune) if "paying" in parts else None,
        what_ifs=tuple(changed(instance, plan, change) for change in hardware),
        sureness=sureness(instance, plan) if "sure" in parts else Sureness(),
        notes=(*problem.assumptions, *alone_note(problem), *since(of, instance, plan)),
    )


def reasons_of(table: Table, plan: Plan, progress: Progress) -> tuple[Reason, ...]:
    """Reasons as `planner solve` gives them."""
    progress("asking what each decision would cost otherwise")
    return explain.reasons(table, plan, explain.runner_ups(table, plan))


def answer_to(
    problem: Problem, question: str, progress: Progress = lambda text: None, of: Solution | None = None
) -> Answer:
    """The answer to `--why`. Raises InvalidInput for what cannot be asked, Infeasible without any plan."""
    instance = instance_of(problem)
    asked = parse_question(question, instance)
    progress("looking for the best plan")
    plan = solved(instance, progress)[1]
    progress("looking for the best plan that decides so")
    found = answered(instance, plan, asked, problem.name)
    notes = (*found.notes, *alone_note(problem), *since(of, instance, plan))
    return found.model_copy(update={"notes": notes})


def solved(instance: Instance, progress: Progress) -> tuple[Table, Plan]:
    """The best plan and the table it was found in. Raises Infeasible."""
    table = Table.of(instance, goal_of(instance), every_family(instance))
    usual = recompute_families(instance)
    plan = best(table, in_families(usual), Effort(progress=progress))
    if plan is None:
        raise Infeasible(conflict_words(infeasible(instance), mixing=instance.mixing is not None))
    return table, plan


def conflict_words(conflict: Conflict, *, mixing: bool) -> str:
    """Why there is nothing to explain: of plans on one pool, even where the problem lets others use two."""
    moves = "".join(f"\n  {move.text}" for move in conflict.relaxations)
    if mixing:
        single = "no plan on a single pool is within the limits"
        head = f"{single}; `planner solve` gives the reasons of one on two pools"
    else:
        head = "no plan is within the limits"
    return f"{head}; in conflict: {', '.join(conflict.limits)}{moves}"


def objective_words(instance: Instance) -> str:
    """cost; time; cost, then time; dollars with 20,000 USD a day."""
    if not instance.lexicographic:
        return " + ".join(f"{weight:g} x {term}" for term, weight in instance.objective)
    return ", then ".join(term for term, _ in instance.objective)


def with_alone(instance: Instance, mine: Account, reason: Reason) -> ExplainedReason:
    """The reason with what becomes of the layout when just that decision is changed."""
    found = [alone(instance, mine, {reason.decision: value}) for value in others(instance, mine, reason)]
    different = tuple(just for just in found if just is not None and not same(just, reason))
    return ExplainedReason(**reason.model_dump(), alone=different)


def others(instance: Instance, mine: Account, reason: Reason) -> Iterator[Any]:
    """The alternative's value, and the neighbours of the chosen one: the nearest on either side."""
    if reason.decision == "precision":
        yield from (each for each in instance.precisions if each != reason.chosen)
    if reason.decision not in CHANGED:
        return
    if reason.decision == "recompute":
        yield from (mode for mode in sorted(recompute_modes(instance)) if mode != reason.chosen)
        return
    chosen = decided(instance, mine.plan)[reason.decision]
    every = list(neighbours(instance, mine.plan, reason.decision))
    below = max((value for value in every if value < chosen), default=None)
    above = min((value for value in every if value > chosen), default=None)
    yield from dict.fromkeys(value for value in (reason.alternative, below, above) if value is not None)


def same(just: Alone, reason: Reason) -> bool:
    """Whether it is the best alternative itself."""
    if not reason.effect or just.breaks:
        return False
    return all(
        isclose(just.effect[name], value, rel_tol=SAME, abs_tol=SAME) for name, value in reason.effect.items()
    )


def sureness(instance: Instance, plan: Plan) -> Sureness:
    """How sure the plan's figures are, in numbers and sentences."""
    of = answer.reported(instance, plan).estimate
    told = [f"The {name} holds with {share:.1%}." for name, share in of.probability.items()]
    if of.interval_80_days is not None:
        low, high = of.interval_80_days
        told.insert(0, f"Four of five such runs take {low:.1f} to {high:.1f} days ({of.evidence} evidence).")
    if of.out_of_memory is not None:
        risk = of.out_of_memory
        told.append(f"The risk to run out of memory is {risk.risk} ({risk.probability:.1%}).")
    return Sureness(
        interval_80_days=of.interval_80_days,
        evidence=of.evidence or "",
        probability=of.probability,
        confidence=instance.limits.confidence,
        text=(*told, *asked_for(instance, plan)),
    )


def asked_for(instance: Instance, plan: Plan) -> Iterator[str]:
    """What the asked confidence costs, or what a usual one would cost."""
    limits = instance.limits
    price = price_of_sureness(instance, plan)
    if price is not None:
        yield price.text
        return
    if (limits.deadline is None and limits.budget is None) or instance.assume_mfu:
        return
    surer = with_limits(instance, confidence=USUAL)
    # Only limits are tighter: a plan that meets them stays the best.
    other = plan if holds(surer, plan) else best_plan(surer)
    if other is None:
        yield f"No plan meets the limits with {USUAL:.0%}."
    elif other.key == plan.key:
        yield f"Asking for {USUAL:.0%} (limits.confidence) would change nothing."
    else:
        mine, theirs = Account.within(instance, plan), Account.within(surer, other)
        yield (
            f"Asking for {USUAL:.0%} (limits.confidence) would take {other.of('num_gpus')} GPUs: "
            f"{money_words(theirs.dollars - mine.dollars)}, {days_words(theirs.days - mine.days)}."
        )


def since(of: Solution | None, instance: Instance, plan: Plan) -> tuple[str, ...]:
    """What to know about a solution file whose plan is not today's."""
    plans = [each for each in of.plans if each.decisions.mixed is None] if of is not None else []
    if not plans or plans[0].decisions == answer.decisions(instance, plan):
        return ()
    return ("The file's plan is not the one that is found today; today's is explained.",)
