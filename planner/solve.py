"""Solves a problem: the best plan, why it is the best, the proof, or why there is none."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any

from planner import answer, explain
from planner.asking import Asking
from planner.census import Census, narrows
from planner.conflict import infeasible
from planner.errors import nothing_found
from planner.in_time import found_in_time
from planner.instance import Instance
from planner.nearest import nearest_miss
from planner.not_alone import with_nearest
from planner.outlook import Outlook
from planner.price_of_sureness import price_of_sureness
from planner.problem import Problem
from planner.resolve import instance_of
from planner.search import Effort, Plan, Table
from planner.search.goal import OutOfTime
from planner.search.ledger import Ledger
from planner.solution import Estimate, Proof, RunnerUp, Solution
from planner.space.recompute import recompute_families
from planner.space.values import lattice_size
from planner.sure_words import SURE
from planner.validate import violations

if TYPE_CHECKING:
    from planner.mixed import BestOfPairs

Progress = Callable[[str], None]


def solve(
    problem: Problem, progress: Progress = lambda text: None, time_limit: float | None = None
) -> Solution:
    """The solution of a problem.

    Raises TimeLimit when `time_limit` seconds pass before any plan is found.
    """
    if problem.phases:
        from planner.phased import solve_phases

        return solve_phases(problem, progress, time_limit)
    started = monotonic()
    until = None if time_limit is None else started + time_limit
    instance = instance_of(problem)
    progress("pricing layouts")
    effort = Effort(until=until, progress=progress)
    try:
        alone = found_in_time(instance, effort)
    except OutOfTime:
        raise nothing_found(time_limit) from None
    table, plan, surely = alone.table, alone.plan, not effort.out_of_time
    if plan is None and not surely:
        raise nothing_found(time_limit)
    ledger = Ledger.in_time(alone.whole, recompute_families(instance), effort)
    proved = proof(instance, ledger, effort)
    if surely and ledger is not None and (plan is None or narrows(instance)):
        proved = Census.of(instance).within(proved)
    # Before anything is explained: what time there is belongs to the search.
    pairs = None if instance.mixing is None else look_at_pairs(instance, effort)
    asking = Asking(until)
    if plan is None:
        plans, others = (), ()
    else:
        progress("asking what each decision would cost otherwise")
        found = explain.runner_ups(table, plan, asking)
        reasons = explain.reasons(table, plan, found, asking)
        plans = (answer.reported(instance, plan, reasons),)
        others = tuple(runner_up(instance, plan, other) for other in found)
        checked(problem, [*plans, *(other.plan for other in others if other.plan)])
    sure = None if plan is None else asking.ask(SURE, lambda: price_of_sureness(instance, plan, until))
    status = "infeasible" if plan is None else "optimal" if surely else "feasible"
    found = Solution(
        status=status,
        problem=problem.as_written(),
        provenance=answer.provenance(problem.problem_hash, problem.files),
        plans=plans,
        runner_ups=others,
        proof=proved.model_copy(update={"seconds": monotonic() - started}),
        sure=sure,
        notes=(*problem.assumptions, *(() if plan is None else Outlook.of(instance, plan).advice())),
    )
    if pairs is not None:
        found = mixed_too(problem, found, plan, pairs, table, asking)
    found = found if found.plans else with_conflict(instance, found, progress, asking)
    return found.model_copy(update={"notes": (*found.notes, *asking.note())})


def look_at_pairs(instance: Instance, effort: Effort) -> BestOfPairs:
    """The search for the best plan on two pools."""
    from planner.mixed import best_of_pairs

    effort.progress("looking for a plan on two pools")
    return best_of_pairs(instance, effort)


def mixed_too(
    problem: Problem, found: Solution, plan: Plan | None, pairs: BestOfPairs, table: Table, asking: Asking
) -> Solution:
    """The solution with the best plan on two pools in it."""
    from planner.mixed.verdict import with_mixing

    whole = with_mixing(found, plan, pairs, table, asking)
    mixing = whole.mixing
    assert mixing is not None
    if mixing.better:
        mine = whole.plans[0].estimate
        whole = whole.model_copy(update={"runner_ups": tuple(beside(mine, of) for of in whole.runner_ups)})
    checked(problem, [*whole.plans, *([mixing.plan] if mixing.plan else [])])
    return whole


def beside(mine: Estimate, other: RunnerUp) -> RunnerUp:
    """A runner-up compared with the plan on two pools that was chosen instead of the best one on one."""
    if other.plan is None:
        return other
    theirs = other.plan.estimate
    text = against((mine.days, mine.dollars), (theirs.days, theirs.dollars))
    return other.model_copy(update={"text": text})


def with_conflict(instance: Instance, found: Solution, progress: Progress, asking: Asking) -> Solution:
    """The solution with the limits that cannot hold together, and the nearest plan that breaks them."""
    progress("nothing fits: looking for what would have to give")
    conflict = infeasible(instance, asking)
    nearest = nearest_miss(instance, asking.until)
    return found.model_copy(update={"conflict": with_nearest(conflict, nearest, asking)})


def checked(problem: Problem, plans: list[answer.solution.Plan]) -> None:
    """Every plan passes the validator; one that does not is our error, not the user's."""
    for plan in plans:
        if wrong := violations(problem, plan):
            raise AssertionError(f"the validator refuses a plan: {'; '.join(wrong)}")


def runner_up(instance: Instance, plan: Plan, other: explain.RunnerUp) -> RunnerUp:
    """A runner-up as the solution file has it."""
    if other.found is None:
        return RunnerUp(gpu=other.gpu, text=f"No plan within the limits: {other.why}.")
    chosen, theirs = (answer.days_and_dollars(instance, each) for each in (plan, other.found))
    return RunnerUp(gpu=other.gpu, plan=answer.reported(instance, other.found), text=against(chosen, theirs))


def against(chosen: tuple[float, float], other: tuple[float, float]) -> str:
    """How a runner-up compares with the chosen plan, in days and dollars."""
    (days, cost), (other_days, other_cost) = chosen, other
    return (
        f"{abs(other_days - days):.1f} days {'longer' if other_days > days else 'shorter'} and "
        f"${abs(other_cost - cost):,.0f} {'dearer' if other_cost > cost else 'cheaper'} than the chosen plan."
    )


def proof(instance: Instance, ledger: Ledger | None, effort: Effort) -> Proof:
    """What was looked at, in candidates, if they are counted."""
    counts: dict[str, Any] = {} if ledger is None else ledger.counts()
    return Proof(lattice=lattice_size(instance), gap=effort.gap, seconds=0.0, **counts)
