"""Explains a problem's plan: reasons, what limits cost, what prices and hardware would change, how sure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from math import inf, isclose
from time import monotonic
from typing import TYPE_CHECKING, Any

from planner import answer, explain
from planner.account import Account
from planner.alone import CHANGED, alone, neighbours
from planner.asking import Asking
from planner.break_even import break_evens
from planner.conflict import infeasible
from planner.errors import Infeasible, TimeLimit
from planner.explanation import Alone, Answer, ExplainedReason, Explanation, Sureness
from planner.in_time import found_in_time
from planner.instance import Instance
from planner.marginal import moved, moves
from planner.mixing import BETTER_ALONE
from planner.one_pool import OnOnePool
from planner.paying import paying_of
from planner.problem import Problem
from planner.resolve import instance_of
from planner.search import Effort, Plan, Table
from planner.search.goal import OutOfTime
from planner.solution import Conflict, Decisions, Reason, Solution, Status
from planner.space.recompute import recompute_modes
from planner.sure_words import sureness
from planner.variants import decided
from planner.what_if import changed, hardware_changes
from planner.why import answered, parse_question

if TYPE_CHECKING:
    from planner.mixed import BestOfPairs, MixedPlan

Progress = Callable[[str], None]
PARTS = ("why", "limits", "prices", "paying", "hardware", "sure")
"""Parts of an explanation; each takes several searches."""
JUST = "what becomes of the layout when just one decision is changed"
LIMITS = "limits moved a little"
PRICES = "prices that decide"
HARDWARE = "other hardware"
"""Questions, as they are told of where the time was out before they were answered."""
SAME = 1e-9


def explained(
    problem: Problem,
    progress: Progress = lambda text: None,
    of: Solution | None = None,
    parts: Collection[str] = PARTS,
    time_limit: float | None = None,
) -> Explanation:
    """The explanation of a problem's best plan, or parts of it; `of` is a solution file that it is asked of.

    With a time limit (seconds) each question is answered with a proof or not at all, which the notes tell.
    Raises Infeasible where there is no plan, TimeLimit where none was found in time.
    """
    until = None if time_limit is None else monotonic() + time_limit
    instance = instance_of(problem)
    progress("looking for the best plan")
    found = solved(instance, progress, until)
    asking = found.asking(until)
    if found.pairs is not None and found.mixed is not None:
        from planner.mixed.explain import explained_pair

        return explained_pair(
            problem, found.pairs, found.table, found.single, parts, progress, of, asking, found.status
        )
    table, plan = found.table, found.only
    reasons = reasons_of(table, plan, progress, asking) if "why" in parts else ()
    progress("moving limits, asking prices, changing the hardware")
    mine = Account.within(instance, plan)
    limits = moves(instance) if "limits" in parts else ()
    hardware = hardware_changes(instance, {plan.of("pool"): ""}) if "hardware" in parts else ()
    choose: Any = OnOnePool(until)
    change: Any = partial(moved, instance, plan, until=until)
    if found.pairs is not None:
        # With other limits, prices or hardware two pools may be better than one.
        from planner.mixed.explain import OnEither, moved_of_both

        choose = OnEither(instance, found.pairs.memo, until)
        change = partial(moved_of_both, instance, plan, choose)
    prices = break_evens(instance, plan, choose) if "prices" in parts else ()
    explanation = Explanation(
        name=problem.name,
        status=found.status,
        objective=objective_words(instance),
        plan=answer.reported(instance, plan, reasons),
        reasons=tuple(with_alone(instance, mine, reason, asking) for reason in reasons),
        limits=tuple(asking.each(LIMITS, limits, change)),
        break_evens=tuple(asking.each(PRICES, prices, lambda of: of)),
        paying=paying_of(instance, plan, problem.fine_tune) if "paying" in parts else None,
        what_ifs=tuple(asking.each(HARDWARE, hardware, lambda of: changed(instance, plan, of, choose))),
        sureness=sureness(instance, plan, asking) if "sure" in parts else Sureness(),
        notes=(*problem.assumptions, *single_note(problem), *since(of, answer.decisions(instance, plan))),
    )
    return explanation.model_copy(update={"notes": (*explanation.notes, *told_of_time(found.status, asking))})


def told_of_time(status: Status, asking: Asking) -> Iterator[str]:
    """What is not known for want of time: whether the plan is the best, and what was not answered."""
    if status != "optimal":
        yield "The plan is the best that was found in time; whether there is a better one is not known."
    yield from asking.note()


def reasons_of(table: Table, plan: Plan, progress: Progress, asking: Asking) -> tuple[Reason, ...]:
    """Reasons as `planner solve` gives them."""
    progress("asking what each decision would cost otherwise")
    return explain.reasons(table, plan, explain.runner_ups(table, plan, asking), asking)


def answer_to(
    problem: Problem,
    question: str,
    progress: Progress = lambda text: None,
    of: Solution | None = None,
    time_limit: float | None = None,
) -> Answer:
    """The answer to `--why`, in time or that it is not known.

    Raises InvalidInput for what cannot be asked, Infeasible without any plan, TimeLimit where none was found.
    """
    until = None if time_limit is None else monotonic() + time_limit
    instance = instance_of(problem)
    asked = parse_question(question, instance)
    progress("looking for the best plan")
    best_ones = solved(instance, progress, until)
    asking = best_ones.asking(until)
    progress("looking for the best plan that decides so")
    if instance.mixing is not None:
        from planner.mixed.why import answered_of_both

        best_one = best_ones.mixed or best_ones.only
        found, plan = answered_of_both(instance, best_one, asked, problem.name, asking)
    else:
        found = answered(instance, best_ones.only, asked, problem.name, asking)
        plan = answer.decisions(instance, best_ones.only)
    notes = (*found.notes, *since(of, plan), *told_of_time(best_ones.status, asking))
    return found.model_copy(update={"notes": notes})


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
    proved: bool = True
    """Whether the time was enough to prove that none is better."""

    @property
    def status(self) -> Status:
        """As a solution has it."""
        return "optimal" if self.proved else "feasible"

    def asking(self, until: float | None) -> Asking:
        """Takes down answers as long as there is time; none about a plan that may not be the best."""
        return Asking(until if self.proved else -inf)

    @property
    def only(self) -> Plan:
        """The best plan on one pool, where it is the best of all."""
        assert self.single is not None
        return self.single


def solved(instance: Instance, progress: Progress, until: float | None = None) -> Solved:
    """The best plan and the table it was found in.

    Raises Infeasible where there is none, TimeLimit where neither is known by `until` (of time.monotonic).
    """
    effort = Effort(until=until, progress=progress)
    try:
        alone = found_in_time(instance, effort)
    except OutOfTime:
        raise nothing_explained() from None
    table, plan = alone.table, alone.plan
    found = Solved(table, plan, proved=not effort.out_of_time)
    if instance.mixing is not None:
        from planner.mixed.reasons import better_than, keys_if_any

        mixed, pairs = better_than(instance, keys_if_any(instance, plan), effort)
        found = Solved(table, plan, pairs, mixed, proved=not effort.out_of_time)
    if plan is None and found.mixed is None:
        if not found.proved:
            raise nothing_explained()
        asking = Asking(until)
        conflict = infeasible(instance, asking)
        raise Infeasible(conflict_words(conflict, asking, mixing=instance.mixing is not None))
    return found


def nothing_explained() -> TimeLimit:
    """That there is neither a plan to explain nor a proof that there is none."""
    return TimeLimit("no plan was found within the time limit; nothing is proved either way")


def conflict_words(conflict: Conflict, asking: Asking, *, mixing: bool) -> str:
    """Why there is nothing to explain, what would make a plan possible, and what is not known in time."""
    moves = "".join(f"\n  {move.text}" for move in conflict.relaxations)
    kinds = ", on one pool or on two" if mixing else ""
    limits = ", ".join(conflict.limits) or "not known"
    late = "".join(f"\n  {note}" for note in asking.note())
    return f"no plan is within the limits{kinds}; in conflict: {limits}{moves}{late}"


def objective_words(instance: Instance) -> str:
    """cost; time; cost, then time; dollars with 20,000 USD a day."""
    if not instance.lexicographic:
        return " + ".join(f"{weight:g} x {term}" for term, weight in instance.objective)
    return ", then ".join(term for term, _ in instance.objective)


def with_alone(instance: Instance, mine: Account, reason: Reason, asking: Asking) -> ExplainedReason:
    """The reason with what becomes of the layout when just that decision is changed."""
    found = asking.each(
        JUST,
        others(instance, mine, reason),
        lambda value: alone(instance, mine, {reason.decision: value}, asking.until),
    )
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
