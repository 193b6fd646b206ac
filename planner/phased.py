"""Solves a problem whose run has phases: a plan for each, all on the same nodes, and why on so many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from time import monotonic
from typing import Any

from costmodel.units import DAY, HOUR
from planner import answer, solution
from planner.asking import Asking
from planner.census import Census, narrows
from planner.conflict import HOW_FAR
from planner.economics import gap
from planner.english import counted
from planner.errors import nothing_found
from planner.not_alone import with_nearest
from planner.outlook import Outlook
from planner.phased_conflict import infeasible
from planner.phased_near import moved_requirements, nearest_run
from planner.phases import ResolvedPhase
from planner.problem import Problem
from planner.relaxed import TERMS
from planner.resolve import instance_of, whole_instance
from planner.same_job import goes_on
from planner.search import Effort
from planner.search.goal import OutOfTime
from planner.search.ledger import Ledger
from planner.solution import PhasedRun, PhasePlan, Slack, Solution
from planner.space.recompute import recompute_families
from planner.space.values import lattice_size
from planner.together import Together, Whole
from planner.validate import violations
from planner.validate_phases import wrong_together

ROUNDING = 1e-9
"""Of the objective: a smaller gap is rounding."""
NEAR = 3
"""Other numbers of nodes that are told of."""


def solve_phases(
    problem: Problem, progress: Callable[[str], None] = lambda text: None, time_limit: float | None = None
) -> Solution:
    """The solution of a problem with phases.

    Raises TimeLimit when `time_limit` seconds pass before any plan is found.
    """
    started = monotonic()
    until = None if time_limit is None else started + time_limit
    effort, asking = Effort(until=until, progress=progress), Asking(until)
    parts = problem.resolved_phases()
    problems = [problem.of_phase(part) for part in parts]
    search = Together.of(whole_instance(problem), [instance_of(each) for each in problems], effort)
    progress("planning phases together")
    try:
        best, others = search.best()
    except OutOfTime:
        raise nothing_found(time_limit) from None
    if best is None and effort.out_of_time:
        raise nothing_found(time_limit)
    proof = proved(search, best, others, started)
    run = None if best is None else reported(search, parts, best, others)
    if run is not None:
        checked(problem, problems, run)
    names = [part.name for part in parts]
    conflict = in_conflict(search, names, asking) if run is None else None
    longest = None if run is None else max(run.phases, key=lambda phase: phase.days).plan
    return Solution(
        status="infeasible" if run is None else "optimal" if proof.gap <= ROUNDING else "feasible",
        problem=problem.as_written(),
        provenance=answer.provenance(problem.problem_hash, problem.files),
        plans=() if longest is None else (longest,),
        run=run,
        proof=proof.model_copy(update={"seconds": monotonic() - started}),
        conflict=conflict,
        notes=(*problem.assumptions, *([] if best is None else advice(search, best)), *asking.note()),
    )


def in_conflict(search: Together, names: Sequence[str], asking: Asking) -> solution.Conflict:
    """Limits that cannot hold together, and the nearest run that breaks them; as much as is known in time."""
    found = infeasible(search, asking)
    moves = (*found.relaxations, *asking.every(HOW_FAR, moved_requirements(search, asking.until)))
    nearest = nearest_run(search, names, asking.until)
    found = found.model_copy(update={"relaxations": moves})
    return with_nearest(found, nearest, asking)


def checked(problem: Problem, problems: list[Problem], run: PhasedRun) -> None:
    """Every phase, and all of them together, pass the validator."""
    wrong = [
        text
        for each, phase in zip(problems, run.phases, strict=True)
        for text in violations(each, phase.plan)
    ]
    if wrong := wrong + wrong_together(problem, problems, run):
        raise AssertionError(f"the validator refuses a run in phases: {'; '.join(wrong)}")


def gap_of(search: Together, best: Whole, others: list[Whole]) -> float:
    """How far the run can be from the best, as a share of it.

    Out of time, from what each phase takes at least. Else a better run could only have phases go on in a
    layout that is the best of none of them: it would save some changes of phase at most.
    """
    mine = search.value(best.totals)
    if search.effort.out_of_time:
        return gap(mine, search.floor())
    # Where none of these could be within the limits, there is nothing better.
    open_runs = [search.value(of.least) for of in others if search.inside(of.place, of.least)]
    return gap(mine, min(open_runs, default=mine))


def proved(search: Together, best: Whole | None, others: list[Whole], started: float) -> solution.Proof:
    """What was looked at: candidates of all phases."""
    ledgers = [
        Ledger.in_time(search.tables.get(phase), recompute_families(instance), search.effort)
        for phase, instance in enumerate(search.phases)
    ]
    known = [ledger for ledger in ledgers if ledger is not None]
    counts: dict[str, Any] = {}
    if len(known) == len(ledgers):
        counts = together(known, best is None) | {"solved": search.effort.solved}
    share = 0.0 if best is None else gap_of(search, best, others)
    lattice = sum(map(lattice_size, search.phases))
    proof = solution.Proof(lattice=lattice, gap=share, seconds=monotonic() - started, **counts)
    if search.effort.out_of_time or not counts or not (best is None or narrows(search.run)):
        return proof
    return reduce(Census.beside, map(Census.of, search.phases)).within(proof)


def together(ledgers: list[Ledger], none: bool) -> dict[str, Any]:
    """The counts of all phases; `none`: whether no run is within the limits."""
    names = ("valid", "feasible", "screened", "bounded")
    counts = {name: sum(getattr(of, name) for of in ledgers) for name in names}
    rejected: dict[str, int] = {}
    for name, number in (each for of in ledgers for each in of.rejected.items()):
        if none or name in ("memory", "storage"):
            rejected[name] = rejected.get(name, 0) + number
        else:
            # The phases' own limits are what the best run leaves them, not what the problem says.
            counts["bounded"] += number
            counts["feasible"] += number
    return counts | {"rejected": rejected}


def reported(
    search: Together, parts: tuple[ResolvedPhase, ...], best: Whole, others: list[Whole]
) -> PhasedRun:
    """A run in phases as the solution file has it."""
    seconds, alone = list(best.seconds), [replace(of, saves=False) for of in search.phases]
    plans = [of_phase(answer.reported(of, plan)) for of, plan in zip(alone, best.plans, strict=True)]
    going = [False, *(goes_on(*pair) for pair in pairwise(zip(alone, best.plans, strict=True)))]
    phases = tuple(
        PhasePlan(
            name=part.name, tokens=part.tokens, seq_len=part.seq_len, days=took / DAY, goes_on=on, plan=plan
        )
        for part, took, on, plan in zip(parts, seconds, going, plans, strict=True)
    )
    ahead = [Outlook.of(of, plan) for of, plan in zip(alone, best.plans, strict=True)]
    extra = (sum(seconds) - sum(each.seconds for each in ahead)) / DAY
    switching = extra * DAY + sum(float(each.losses.startup) for each in ahead[1:])
    ideal = sum(each.steps * each.step for each in ahead) + switching
    bands = [plan.estimate.interval_80_days for plan in plans]
    known = [band for band in bands if band is not None]
    first = plans[0].decisions
    return PhasedRun(
        gpu=first.gpu,
        num_gpus=first.num_gpus,
        nodes=first.nodes,
        days=sum(seconds) / DAY,
        dollars=best.totals["cost"],
        ideal_days=ideal / DAY,
        goodput=goodput_of(ahead),
        switching_hours=max(switching, 0.0) / HOUR,
        interval_80_days=(sum(low for low, _ in known) + extra, sum(high for _, high in known) + extra)
        if len(known) == len(bands)
        else None,
        energy=meter(ahead, seconds),
        slack=slack(search, best, ahead[0]),
        phases=phases,
        texts=(
            *going_on(phases),
            *(compared(search, best, other) for other in nearest(search, best, others)),
        ),
    )


def goodput_of(ahead: list[Outlook]) -> float:
    """That of each phase, by the time that it trains or evaluates."""
    busy = [each.steps * (each.step + each.losses.evaluation) for each in ahead]
    took = [seconds * float(each.losses.slowdown) for seconds, each in zip(busy, ahead, strict=True)]
    return sum(busy) / sum(took)


def going_on(phases: tuple[PhasePlan, ...]) -> list[str]:
    """Phases that need no start of their own, and how a launch says so."""
    told = []
    for before, phase in pairwise(phases):
        if phase.goes_on:
            batches = [each.plan.decisions.global_batch for each in (before, phase)]
            grows = f"only the batch grows, from {batches[0]} to {batches[1]} sequences (Megatron-LM: "
            grows = f"{grows}--rampup-batch-size)" if batches[0] < batches[1] else "nothing changes"
            told.append(
                f"{phase.name} goes on in the job of {before.name}, without a save and a start: {grows}."
            )
    return told


def of_phase(plan: solution.Plan) -> solution.Plan:
    """A phase's plan without what is said of limits that the whole run has to keep to."""
    slack = {name: each for name, each in plan.slack.items() if name in ("memory", "nodes")}
    estimate = plan.estimate.model_copy(update={"probability": {}, "storage": None})
    return plan.model_copy(update={"estimate": estimate, "slack": slack})


def meter(ahead: list[Outlook], seconds: list[float]) -> solution.Meter | None:
    """Electricity of all phases, saving between them included."""
    parts = [each.described().get("energy") for each in ahead]
    if any(part is None for part in parts):
        return None
    scaled = [
        {name: value * took / each.seconds for name, value in part.model_dump().items()}
        for part, each, took in zip(parts, ahead, seconds, strict=True)
        if part is not None
    ]
    return solution.Meter(**{name: sum(part[name] for part in scaled) for name in scaled[0]})


def slack(search: Together, best: Whole, ahead: Outlook) -> dict[str, Slack]:
    """How far the run stays from each limit that is of the whole run."""
    scale = {
        "deadline": (DAY, "days"), "budget": (1.0, "USD"), "energy": (1e3, "MWh"), "carbon": (1.0, "t CO2")
    }  # fmt: skip
    found = {}
    for name, term in TERMS.items():
        limit, (unit, word) = getattr(search.limits, name), scale[name]
        if limit is not None:
            used = best.totals[term]
            found[name] = Slack(limit=limit / unit, used=used / unit, left=(limit - used) / unit, unit=word)
    nodes = ahead.num_gpus // ahead.pool.fabric.gpus_per_node + ahead.spare_nodes
    there = ahead.pool.nodes or ahead.pool.max_nodes
    found["nodes"] = Slack(limit=there, used=nodes, left=there - nodes, unit="nodes")
    return found


def nearest(search: Together, best: Whole, others: list[Whole]) -> list[Whole]:
    """The next best places; those within the limits first."""
    rest = [other for other in others if other.place != best.place]
    return sorted(rest, key=lambda of: (not search.inside(of.place, of.totals), search.value(of.totals)))[
        :NEAR
    ]


def compared(search: Together, best: Whole, other: Whole) -> str:
    """What another place would change."""
    pool = search.run.pools[other.place[0]]
    days = (other.totals["time"] - best.totals["time"]) / DAY
    cost = other.totals["cost"] - best.totals["cost"]
    nodes = other.place[1] // pool.fabric.gpus_per_node
    on = f"{pool.gpu.name} in {pool.precision.upper()}" if len(search.run.precisions) > 1 else pool.gpu.name
    return (
        f"On {counted(nodes, 'node', '')} of {on}: "
        f"{abs(days):.2f} days {'longer' if days > 0 else 'shorter'}, "
        f"${abs(cost):,.0f} {'dearer' if cost > 0 else 'cheaper'}{outside(search, other)}."
    )


def outside(search: Together, other: Whole) -> str:
    """Limits that another place breaks, as a clause."""
    broken = [
        name
        for name, term in TERMS.items()
        if (limit := getattr(search.limits, name)) is not None and other.totals[term] > limit
    ]
    return f"; beyond the {' and the '.join(broken)}" if broken else ""


def advice(search: Together, best: Whole) -> list[str]:
    """What the described storage is too slow for in the longest phase."""
    pairs = list(zip(search.phases, best.plans, strict=True))
    instance, plan = max(pairs, key=lambda pair: pair[0].tokens)
    return Outlook.of(instance, plan).advice()
