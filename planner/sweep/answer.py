"""The line of one what-if: its overrides, and what came out."""

from __future__ import annotations

from functools import partial
from threading import local
from time import monotonic
from typing import Any

from planner.asking import Asking
from planner.conflict import HOW_FAR, WHICH, conflicting
from planner.errors import InvalidInput, TimeLimit
from planner.instance import Instance
from planner.mixed.plan import MixedPlan
from planner.mixed.reasons import better_than, keys_if_any, told
from planner.mixed.verdict import proof_of
from planner.problem import Problem
from planner.resolve import instance_of
from planner.search import Effort, Plan
from planner.search.ledger import Ledger
from planner.search.physics import Counts, counts_of, widest, with_counts
from planner.search.reuse import Evaluation
from planner.solution import Conflict
from planner.solve import checked, proof
from planner.space.recompute import recompute_families
from planner.sweep.plan import Chunk
from planner.sweep.points import Point
from planner.ways_out import moved_limits

KEPT = 2
"""Evaluations that a worker keeps: those of neighbouring classes of what-ifs."""
Line = dict[str, Any]
_kept = local()


def answers(chunk: Chunk) -> list[Line]:
    """The lines of a chunk, in its order. What a worker runs: it raises nothing."""
    return [line_of(chunk, point) for point in chunk.points]


def line_of(chunk: Chunk, point: Point) -> Line:
    """One line. `error` says what is wrong with the what-if, or with the planner (status `failed`)."""
    started = monotonic()
    line = head(point)
    try:
        problem = chunk.base.changed(point.overrides)
        line |= {"values": resolved(problem, point)} | outcome(problem, chunk.counts)
    except (InvalidInput, TimeLimit) as error:
        status = "error" if isinstance(error, InvalidInput) else "out_of_time"
        line |= {"status": status, "error": str(error)}
    except Exception as error:
        line |= {"status": "failed", "error": f"{type(error).__name__}: {error}"}
    return line | {"seconds": round(monotonic() - started, 4)}


def head(point: Point) -> Line:
    """Which what-if a line is of."""
    return {
        "id": point.id,
        "index": point.index,
        "scenario": point.scenario,
        "overrides": dict(point.overrides),
    }


def resolved(problem: Problem, point: Point) -> dict[str, float]:
    """Overrides that are numbers, in the units of the problem's fields: seconds, USD, USD/gpu-hour."""
    found: dict[str, float] = {}
    for key, _ in point.overrides:
        here: Any = problem
        for part in key.split("."):
            inside = isinstance(here, (list, tuple)) and part.isdecimal() and int(part) < len(here)
            here = here[int(part)] if inside else getattr(here, part, None)
        if isinstance(here, (int, float)) and not isinstance(here, bool):
            found[key] = here
    return found


def outcome(problem: Problem, counts: Counts) -> Line:
    """The best plan and its proof, or which limits conflict. Every plan passes the validator."""
    instance = instance_of(problem)
    families = recompute_families(instance)
    evaluation = evaluation_of(instance, counts, families)
    limit = problem.time_limit
    effort = Effort(until=None if limit is None else monotonic() + limit)
    single, table = evaluation.answer(instance, effort)
    ledger = Ledger.in_time(table, families, effort)
    counted = proof(instance, ledger, effort).model_dump(mode="json", exclude={"seconds"})
    plan, looked_at = single, {}
    if instance.mixing is not None:
        plan, looked_at = better_of_pairs(instance, single, effort)
    if plan is None and effort.out_of_time:
        raise TimeLimit("no plan was found within time_limit; nothing is proved either way")
    status = "infeasible" if plan is None else "feasible" if effort.out_of_time else "optimal"
    found = (
        {"conflict": conflict(instance, evaluation, effort.until)}
        if plan is None
        else chosen(problem, instance, plan)
    )
    return {"status": status} | found | {"proof": counted | looked_at}


def better_of_pairs(
    instance: Instance, single: Plan | None, effort: Effort
) -> tuple[Plan | MixedPlan | None, Line]:
    """The best plan on two pools where it beats the best one on one, else that one; what was looked at."""
    mine = keys_if_any(instance, single)
    plan, search = better_than(instance, mine, effort)
    looked_at = proof_of(search, mine if plan is None else search.achieved).model_dump(
        mode="json", exclude={"seconds"}
    )
    return (single if plan is None else plan), {"mixing": looked_at}


def chosen(problem: Problem, instance: Instance, plan: Plan | MixedPlan) -> Line:
    """Decisions and estimate, as the solution file has them."""
    reported = told(instance, plan)
    checked(problem, [reported])
    written = reported.model_dump(mode="json")
    return {name: written[name] for name in ("decisions", "estimate")}


def conflict(instance: Instance, evaluation: Evaluation, until: float | None) -> dict[str, Any]:
    """Limits that cannot hold together, and how far each limit on the run would have to move alone.

    `planner solve` adds how many nodes more and how much less headroom would do, and whether another
    framework would.
    """
    asking = Asking(until)
    if instance.mixing is not None:
        from planner.mixed.conflict import conflicting_of_both, moved_limits_of_both
        from planner.mixed.known import Searches

        searches = Searches.of(instance, until)
        limits = asking.ask(WHICH, lambda: conflicting_of_both(instance, searches))
        moves = asking.every(HOW_FAR, moved_limits_of_both(instance, searches))
    else:
        find = partial(evaluation.optimum, until=until)
        limits = asking.ask(WHICH, lambda: conflicting(instance, find, evaluation.table, given=True))
        moves = asking.every(HOW_FAR, moved_limits(instance, find))
    found = Conflict(limits=limits or (), relaxations=tuple(moves)).model_dump(mode="json")
    return found | ({"unanswered": " ".join(asking.note())} if asking.unanswered else {})


def evaluation_of(instance: Instance, counts: Counts, families: tuple[int, ...]) -> Evaluation:
    """The evaluation that holds an instance: one of those kept, or a new one.

    It is made for the counts of the whole sweep, so that it does not depend on which what-if comes first.
    """
    kept: list[Evaluation] = _kept.__dict__.setdefault("evaluations", [])
    own = counts_of(instance)
    wide = counts if len(counts) == len(own) and widest([counts, own]) == counts else own
    for evaluation in kept:
        same = evaluation.recompute == families and counts_of(evaluation.book.instance) == wide
        if same and evaluation.holds(instance):
            kept.remove(evaluation)
            break
    else:
        evaluation = Evaluation.of(with_counts(instance, wide), families)
    kept[:] = [*kept, evaluation][-KEPT:]
    return evaluation
