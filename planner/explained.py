"""Explains a problem's plan: reasons, what limits cost, what prices and hardware would change, how sure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from math import isclose
from typing import TYPE_CHECKING, Any

from planner import answer, explain
from planner.account import Account
from planner.alone import CHANGED, alone, neighbours
from planner.break_even import break_evens
from planner.conflict import infeasible
from planner.errors import Infeasible
from planner.explanation import Alone, Answer, ExplainedReason, Explanation, Sureness
from planner.instance import Instance
from planner.marginal import moved, moves
from planner.mixing import BETTER_ALONE
from planner.one_pool import ONE_POOL
from planner.paying import paying_of
from planner.problem import Problem
from planner.relaxed import every_family
from planner.resolve import instance_of
from planner.search import Effort, Plan, Table, best, goal_of
from planner.search.goal import in_families
from planner.solution import Conflict, Decisions, Reason, Solution
from planner.space.recompute import recompute_families, recompute_modes
from planner.sure_words import sureness
from planner.variants import decided
from planner.what_if import changed, hardware_changes
from planner.why import answered, parse_question

if TYPE_CHECKING:
    from planner.mixed import BestOfPairs, MixedPlan

Progress = Callable[[str], None]
PARTS = ("why", "limits", "prices", "paying", "hardware", "sure")
"""Parts of an explanation; each takes several searches."""
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
    found = solved(instance, progress)
    if found.pairs is not None and found.mixed is not None:
        from planner.mixed.explain import explained_pair

        return explained_pair(problem, found.pairs, found.table, found.single, parts, progress, of)
    table, plan = found.table, found.only
    reasons = reasons_of(table, plan, progress) if "why" in parts else ()
    progress("moving limits, asking prices, changing the hardware")
    mine = Account.within(instance, plan)
    limits = moves(instance) if "limits" in parts else ()
    hardware = hardware_changes(instance, {plan.of("pool"): ""}) if "hardware" in parts else ()
    choose: Any = ONE_POOL
    change: Any = partial(moved, instance, plan)
    if found.pairs is not None:
        # With other limits, prices or hardware two pools may be better than one.
        from planner.mixed.explain import OnEither, moved_of_both

        choose = OnEither(instance, found.pairs.memo)
        change = partial(moved_of_both, instance, plan, choose)
    return Explanation(
        name=problem.name,
        status="optimal",
        objective=objective_words(instance),
        plan=answer.reported(instance, plan, reasons),
        reasons=tuple(with_alone(instance, mine, reason) for reason in reasons),
        limits=tuple(change(move) for move in limits),
        break_evens=tuple(break_evens(instance, plan, choose)) if "prices" in parts else (),
        paying=paying_of(instance, plan, problem.fine_tune) if "paying" in parts else None,
        what_ifs=tuple(changed(instance, plan, other, choose) for other in hardware),
        sureness=sureness(instance, plan) if "sure" in parts else Sureness(),
        notes=(*problem.assumptions, *single_note(problem), *since(of, answer.decisions(instance, plan))),
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
    best_ones = solved(instance, progress)
    progress("looking for the best plan that decides so")
    if instance.mixing is not None:
        from planner.mixed.why import answered_of_both

        found, plan = answered_of_both(instance, best_ones.mixed or best_ones.only, asked, problem.name)
    else:
        found = answered(instance, best_ones.only, asked, problem.name)
        plan = answer.decisions(instance, best_ones.only)
    return found.model_copy(update={"notes": (*found.notes, *since(of, plan))})


@dataclass(frozen=True, slots=True)
class Solved:
    """The best plan of a problem, of either kind."""

    table: Table
    """Plans on one pool."""
    single: Plan | None
    """The best of them."""
    pairs: BestOfPairs | None = None
    """The search for plans on two pools, where the problem asks for them."""
    mixed: MixedPlan | None = None
    """Its plan, where that is better."""

    @property
    def only(self) -> Plan:
        """The best plan on one pool, where it is the best of all."""
        assert self.single is not None
        return self.single


def solved(instance: Instance, progress: Progress) -> Solved:
    """The best plan and the table it was found in. Raises Infeasible."""
    table = Table.of(instance, goal_of(instance), every_family(instance))
    usual = recompute_families(instance)
    plan = best(table, in_families(usual), Effort(progress=progress))
    found = Solved(table, plan)
    if instance.mixing is not None:
        from planner.mixed.reasons import better_than, keys_if_any

        mixed, pairs = better_than(instance, keys_if_any(instance, plan))
        found = Solved(table, plan, pairs, mixed)
    if plan is None and found.mixed is None:
        raise Infeasible(conflict_words(infeasible(instance), mixing=instance.mixing is not None))
    return found


def conflict_words(conflict: Conflict, *, mixing: bool) -> str:
    """Why there is nothing to explain, and what would make a plan possible."""
    moves = "".join(f"\n  {move.text}" for move in conflict.relaxations)
    kinds = ", on one pool or on two" if mixing else ""
    return f"no plan is within the limits{kinds}; in conflict: {', '.join(conflict.limits)}{moves}"


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


def since(of: Solution | None, decisions: Decisions) -> tuple[str, ...]:
    """What to know about a solution file whose plan is not today's."""
    if of is None or not of.plans or of.plans[0].decisions == decisions:
        return ()
    return ("The file's plan is not the one that is found today; today's is explained.",)


def single_note(problem: Problem) -> tuple[str, ...]:
    """What is explained of a problem whose plans may use two pools, where the best one uses one."""
    return () if problem.mixing is None else (BETTER_ALONE,)
