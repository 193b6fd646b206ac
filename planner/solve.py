"""Solves a problem: the best plan, why it is the best, the proof, or why there is none."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from planner import answer, explain, relax
from planner.errors import TimeLimit
from planner.instance import Instance
from planner.problem import Problem
from planner.resolve import instance_of
from planner.search import Effort, Plan, Table, best
from planner.solution import Proof, RunnerUp, Solution
from planner.space import count_all, lattice_size
from planner.validate import violations

Progress = Callable[[str], None]


def solve(
    problem: Problem, progress: Progress = lambda text: None, time_limit: float | None = None
) -> Solution:
    """The solution of a problem.

    Raises TimeLimit when `time_limit` seconds pass before any plan is found.
    """
    started = monotonic()
    until = None if time_limit is None else started + time_limit
    instance = instance_of(problem)
    progress("pricing layouts")
    table = Table.of(instance, instance.limits)
    goal, effort = relax.goal_of(instance), Effort(until=until, progress=progress, counts=True)
    plan = best(table, goal, None, effort)
    if plan is None and effort.out_of_time:
        raise TimeLimit(f"no plan was found in {time_limit:.0f} s; nothing is proved either way")
    if plan is None:
        progress("nothing fits: looking for the nearest that would")
        conflict, plans, others = relax.infeasible(instance), (), ()
    else:
        progress("asking what each decision would cost otherwise")
        found = () if effort.out_of_time else explain.runner_ups(table, goal, plan)
        reasons = () if effort.out_of_time else explain.reasons(table, goal, plan, found)
        conflict, plans = None, (answer.reported(instance, plan, reasons),)
        others = tuple(runner_up(instance, plan, other) for other in found)
        checked(problem, [*plans, *(other.plan for other in others if other.plan)])
    status = "infeasible" if plan is None else "feasible" if effort.out_of_time else "optimal"
    return Solution(
        status=status,
        problem=problem.as_written(),
        provenance=answer.provenance(problem.problem_hash),
        plans=plans,
        runner_ups=others,
        proof=proof(instance, table, effort, started),
        conflict=conflict,
        notes=problem.assumptions,
    )


def checked(problem: Problem, plans: list[answer.solution.Plan]) -> None:
    """Every plan passes the validator; one that does not is our error, not the user's."""
    for plan in plans:
        if wrong := violations(problem, plan):
            raise AssertionError(f"the validator refuses a plan: {'; '.join(wrong)}")


def runner_up(instance: Instance, plan: Plan, other: explain.RunnerUp) -> RunnerUp:
    """A runner-up as the solution file has it."""
    if other.found is None:
        return RunnerUp(gpu=other.gpu, text=f"No plan within the limits: {other.why}.")
    text = against(instance, plan, other.found)
    return RunnerUp(gpu=other.gpu, plan=answer.reported(instance, other.found), text=text)


def against(instance: Instance, plan: Plan, other: Plan) -> str:
    """How a runner-up compares with the chosen plan."""
    days, cost = answer.days_and_dollars(instance, plan)
    other_days, other_cost = answer.days_and_dollars(instance, other)
    return (
        f"{abs(other_days - days):.1f} days {'longer' if other_days > days else 'shorter'} and "
        f"${abs(other_cost - cost):,.0f} {'dearer' if other_cost > cost else 'cheaper'} than the chosen plan."
    )


def proof(instance: Instance, table: Table, effort: Effort, started: float) -> Proof:
    """What was looked at, in candidates."""
    valid = count_all(instance)
    open_groups = effort.open_candidates
    return Proof(
        lattice=lattice_size(instance),
        valid=valid,
        feasible=open_groups,
        screened=effort.screened,
        bounded=effort.bounded,
        solved=effort.solved,
        gap=effort.gap,
        seconds=monotonic() - started,
        rejected={"deadline or budget": valid - open_groups},
    )
