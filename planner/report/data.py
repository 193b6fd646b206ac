"""Everything that a report shows, computed once, from a solution and its problem."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from planner.instance import Instance
from planner.problem import Problem, parse_problem
from planner.report.candidates import Candidate, Found, candidates, known_already
from planner.report.choice import Setting, choose
from planner.report.sensitivity import sensitivity
from planner.report.stages import Ranks
from planner.report.timeline import Pass
from planner.resolve import instance_of
from planner.solution import Explored, Plan, Solution, Swing
from planner.validate import violations
from planner.validate_mixed import mixed_of_decisions, pairs_of

SEARCH = 1.5
"""Seconds that looking for alternatives may take unless told otherwise: with start and page, less than 3."""


@dataclass(frozen=True, slots=True)
class ReportData:
    """What the page and its charts are drawn from."""

    solution: Solution
    problem: Problem
    instance: Instance
    ranks: Ranks | None
    """The plan, rank by rank; None without a plan, and where its time is agreed rather than modelled."""
    passes: tuple[Pass, ...]
    found: Found
    swings: tuple[Swing, ...]
    left_out: tuple[str, ...]
    """Of what the swings are about, what nobody knows as the time ran out."""
    stale: str
    """Why nothing beside the solution's own figures is shown; empty where all is."""

    @property
    def plan(self) -> Plan | None:
        """The plan that is reported on."""
        return self.solution.plans[0] if self.solution.plans else None

    @property
    def chosen(self) -> int | None:
        """Which candidate it is."""
        mine = [i for i, one in enumerate(self.found.candidates) if one.plan is self.plan]
        return mine[0] if mine else None

    def frontier(self) -> list[int]:
        """Candidates within the limits that none of them beats in both days and dollars, quickest first."""
        limits, inside = self.instance.limits, []
        for index, one in enumerate(self.found.candidates):
            length = one.seconds * one.margin
            late = limits.deadline is not None and length > limits.deadline
            dear = limits.budget is not None and one.rent * max(length, one.committed) > limits.budget
            if not late and not dear:
                inside.append(index)
        return lower_left([(self.found.candidates[i], i) for i in inside])


def lower_left(points: list[tuple[Candidate, int]]) -> list[int]:
    """Indices of points that no other one is at least as good as in both, by time."""
    kept: list[int] = []
    least = float("inf")
    for one, index in sorted(points, key=lambda pair: (pair[0].seconds, pair[0].dollars)):
        if one.dollars < least * (1 - 1e-9):
            kept.append(index)
            least = one.dollars
    return kept


def report_data(
    solution: Solution,
    progress: Callable[[str], None] = lambda text: None,
    time_limit: float | None = SEARCH,
    alternatives: bool = True,
    file: str | Path = "solution",
) -> ReportData:
    """The data of a solution's report, with other plans unless only the plan itself is asked about.

    Files that the problem names are looked for beside `file`.

    Raises `InvalidInput` where its problem cannot be read any more.
    """
    until = None if time_limit is None else monotonic() + time_limit
    problem = parse_problem(dict(solution.problem), file=f"{file}: problem", folder=Path(file).parent)
    instance = instance_of(problem)
    described = [*solution.plans, *(other.plan for other in solution.runner_ups if other.plan)]
    wrong = [text for plan in described for text in violations(problem, plan)]
    ranks = None if wrong else ranks_of(problem, instance, solution)
    nothing, told = Found((), False), passes(ranks)
    if not wrong and alternatives and any(plan.decisions.mixed for plan in solution.plans):
        return ReportData(solution, problem, instance, ranks, told, nothing, (), (), TOGETHER)
    if wrong or not alternatives:
        return ReportData(solution, problem, instance, ranks, told, nothing, (), (), outdated(wrong))
    held = explored_plans(problem, solution)
    found = (
        candidates(instance, described, until, progress)
        if held is None
        else known_already(instance, described, held)
    )
    best = choose(instance, found.candidates, Setting.of(instance))
    if solution.status != "feasible" and best != (0 if solution.plans else None):
        wrong = ["another plan is better now"]
        return ReportData(solution, problem, instance, ranks, told, nothing, (), (), outdated(wrong))
    swings: tuple[Swing, ...] = () if held is None else held.swings
    left_out: tuple[str, ...] = ()
    if solution.plans and held is None:
        progress("asking what 10 % more or less would change")
        swings, left_out = sensitivity(problem, instance, found.candidates, until)
    return ReportData(solution, problem, instance, ranks, told, found, swings, left_out, "")


def explored_plans(problem: Problem, solution: Solution) -> Explored | None:
    """What the solution holds beside its answer, if all of it is still what the cost model says."""
    of = solution.explored
    if of is None:
        return None
    limits = {"deadline": None, "budget": None, "confidence": None}
    # They are plans of the problem but for those limits, which the sliders move.
    free = problem.model_copy(update={"limits": problem.limits.model_copy(update=limits)})
    return None if any(violations(free, plan) for plan in of.plans) else of


def explore(
    solution: Solution, progress: Callable[[str], None] = lambda text: None, time_limit: float | None = None
) -> Solution:
    """The solution with all that its report has to look for; unchanged where that is nothing."""
    data = report_data(solution.model_copy(update={"explored": None}), progress, time_limit)
    if not data.found.candidates:
        return solution
    told = {id(plan) for plan in (*solution.plans, *(other.plan for other in solution.runner_ups))}
    plans = tuple(one.plan for one in data.found.candidates if one.exact and id(one.plan) not in told)
    explored = Explored(plans=plans, complete=data.found.complete, swings=data.swings)
    return solution.model_copy(update={"explored": explored})


TOGETHER = (
    "The plan uses two pools. Sliders that choose again, and what 10 % more or less would change, are only "
    "worked out for plans on one pool; `planner frontier` and `planner explain` look at both kinds."
)


def outdated(wrong: list[str]) -> str:
    """What to say of a solution that today's cost model disagrees with; nothing where it agrees."""
    if not wrong:
        return ""
    return (
        "The cost model or the hardware facts have changed since this solution was computed "
        f"({wrong[0]}). The page shows the solution's own figures only; solve the problem again for the rest."
    )


def ranks_of(problem: Problem, instance: Instance, solution: Solution) -> Ranks | None:
    """The plan, rank by rank."""
    if not solution.plans or problem.assume_mfu is not None:
        return None
    from planner.report.candidates import pool_of

    plan = solution.plans[0]
    if plan.decisions.mixed:
        # Pools of one GPU type differ in price alone, of which nothing is said here.
        pools = pairs_of(problem, plan.decisions)[0]
        return Ranks.of_mixed(mixed_of_decisions(problem, pools, plan.decisions), plan.decisions)
    return Ranks.of(problem, instance.pools[pool_of(instance, plan)].entry, plan.decisions)


def passes(ranks: Ranks | None) -> tuple[Pass, ...]:
    """The timeline of its step."""
    return () if ranks is None else tuple(ranks.timeline())
