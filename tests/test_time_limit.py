"""Whenever the time is out, the answer ends there, and says nothing but what is known by then.

The clock of these tests counts how often it is looked at, so that a limit of k ends at the k-th look.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, partial
from itertools import count
from typing import Any

import pytest

from planner import asking, frontier, phased, solve
from planner.asking import Asking
from planner.cli.proof_words import proof_words
from planner.conflict import HOW_FAR, WHICH, infeasible
from planner.errors import TimeLimit
from planner.looser import best_found
from planner.problem import Problem, parse_problem
from planner.resolve import instance_of
from planner.search import branch, goal
from planner.search.goal import OutOfTime
from planner.solution import Conflict, Plan, Relaxation, Solution
from planner.ways_out import fewest_beyond, relaxation

FOREVER = 1e12
SHARES = (0.0, 0.1, 0.25, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97)
"""Of all looks at the clock that the whole answer takes: where the time is out."""
LATE = 60
"""Looks at the clock after that: each question that is not asked any more takes one or two."""


def job(mixing: bool = False, **changes: Any) -> Problem:
    data: dict[str, Any] = {
        "model": "llama-2-7b",
        "training": {"tokens": "300B", "seq_len": 4096, "global_batch": "512 sequences"},
        "hardware": [
            {"gpu": "H800", "nodes": 4, "price": "2 USD/gpu-hour"},
            {"gpu": "H20", "nodes": 4, "price": "0.8 USD/gpu-hour"},
        ],
        "objective": "cost",
        "search": {"tp": [1, 2], "cp": 1, "micro_batch": [1, 2], "pp": [1, 2, 4], "framework": "any"},
    }
    return parse_problem(data | ({"mixing": {"network": "25 GB/s"}} if mixing else {}) | changes)


TWO = {"objective": "time"}
PHASES = [
    {"name": "main", "tokens": "270B", "seq_len": 4096},
    {"name": "long", "tokens": "30B", "seq_len": 8192},
]
MEETS = {"deadline": "60 days"}
FAILS = {"deadline": "1 day", "budget": "100 USD"}
PROBLEMS: dict[str, Callable[[], Problem]] = {
    "one pool": partial(job, limits=MEETS),
    "sure": partial(job, limits={**MEETS, "confidence": "80%"}),
    "one pool, none": partial(job, limits=FAILS),
    "short steps, none": partial(job, limits={"require": ["step_time_s <= 0.2"]}),
    "two pools": partial(job, mixing=True, **TWO),
    "two pools, none": partial(job, mixing=True, limits=FAILS, **TWO),
    "phases": partial(job, phases=PHASES),
    "phases, none": partial(job, phases=PHASES, limits=FAILS),
}


def ticking(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A clock that goes on by one whenever it is looked at; searches begin at 0."""
    looks = count()
    for module in (goal, asking):
        monkeypatch.setattr(module, "monotonic", lambda: next(looks))
    for module in (solve, phased, frontier):
        monkeypatch.setattr(module, "monotonic", lambda: 0.0)
    return looks


@cache
def whole(name: str) -> tuple[Solution, int]:
    """The answer with all the time in the world, and how often it looks at the clock."""
    with pytest.MonkeyPatch.context() as patch:
        looks = ticking(patch)
        return solve.solve(PROBLEMS[name](), time_limit=FOREVER), next(looks)


def unanswered(notes: tuple[str, ...]) -> bool:
    return any(note.startswith("The time was out before all was known of: ") for note in notes)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_answer_ends_in_time_and_claims_nothing_that_is_not_known(
    monkeypatch: pytest.MonkeyPatch, name: str, share: float
) -> None:
    full, every = whole(name)
    limit, looks = int(share * every), ticking(monkeypatch)
    try:
        found = solve.solve(PROBLEMS[name](), time_limit=limit)
    except TimeLimit:
        assert next(looks) <= limit + LATE
        return
    assert next(looks) <= limit + LATE
    if full.conflict is None:
        plan_is_honest(full, found)
        return
    assert found.status == "infeasible"
    assert found.conflict is not None
    conflict_is_honest(full.conflict, found.conflict)
    if found.conflict != full.conflict:
        assert unanswered(found.notes)


def test_a_plan_is_there_before_all_recompute_families_are_priced() -> None:
    """The first one that any limit leaves time for; its candidates are not counted, and that is said."""
    full, found, limit = whole("one pool")[0], None, 0
    while found is None:
        limit += 1
        with pytest.MonkeyPatch.context() as patch, suppress(TimeLimit):
            ticking(patch)
            found = solve.solve(PROBLEMS["one pool"](), time_limit=limit)
    assert found.status == "feasible"
    assert 0 < found.proof.gap < 0.5
    plan_is_honest(full, found)
    assert (found.proof.valid, found.proof.feasible, found.proof.rejected) == (None, None, {})
    assert "not counted: the time was out" in proof_words(found)


def plan_is_honest(full: Solution, found: Solution) -> None:
    """Best where it is called that, and reasons and runner-ups are some of those there are."""
    best, mine = full.plans[0], found.plans[0]
    assert found.status in ("optimal", "feasible")
    if found.status == "feasible":
        assert value(best, full) >= value(mine, found) * (1 - found.proof.gap) * (1 - 1e-9)
        return
    assert mine.decisions == best.decisions
    assert {of.text for of in mine.reasons} <= {of.text for of in best.reasons}
    assert {of.text for of in found.runner_ups} <= {of.text for of in full.runner_ups}
    assert found.sure in (None, full.sure)
    if (mine.reasons, found.runner_ups, found.sure) != (best.reasons, full.runner_ups, full.sure):
        assert unanswered(found.notes)


def value(plan: Plan, of: Solution) -> float:
    """The objective of a plan, or of the run in phases that it is part of."""
    whole = plan.estimate if of.run is None else of.run
    return whole.dollars if of.problem["objective"] == "cost" else whole.days


def conflict_is_honest(full: Conflict, found: Conflict) -> None:
    """Limits only where they are a smallest set; ways out and the nearest plan as far as they are known."""
    assert found.limits in ((), full.limits)
    nearest = {of.limit: of for of in full.relaxations}
    for move in found.relaxations:
        if move.proved:
            assert move == nearest[move.limit]
        else:
            assert "whether a nearer value does is not known" in move.text
            assert number_in(move) >= number_in(nearest[move.limit])
    if found.nearest is not None and found.nearest != full.nearest:
        assert "found in time" in found.nearest.text


def number_in(move: Relaxation) -> float:
    """Of `12.5 days`, `$1,200`, `step_time_s <= 5.3`: all limits here are on what a plan may take at most."""
    return float(re.findall(r"[\d.,]+", str(move.to))[-1].replace(",", ""))


def test_out_of_time_what_the_best_plan_found_takes_would_do_and_is_not_called_the_nearest() -> None:
    def out_of_time() -> float:
        raise OutOfTime(75.0)

    kept = Asking()
    moves = kept.every(
        HOW_FAR, best_found(out_of_time, lambda days: relaxation("deadline", "60 days", f"{days} days"))
    )
    assert [(move.to, move.proved) for move in moves] == [("75.0 days", False)]
    assert not kept.answered(HOW_FAR)


def test_ways_out_are_known_before_the_answer_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    _, every = whole("short steps, none")
    ticking(monkeypatch)
    found = solve.solve(PROBLEMS["short steps, none"](), time_limit=every // 2)
    assert found.conflict is not None
    assert found.conflict.relaxations


@pytest.mark.parametrize("most", range(1, 12))
@pytest.mark.parametrize("fewest", range(2, 14))
def test_each_number_of_nodes_is_looked_at_once_with_those_that_are_known_left_out(
    most: int, fewest: int
) -> None:
    known = [1]

    def enough(fewer: int, nodes: int) -> bool:
        assert fewer == max(known)
        if nodes < fewest:
            known.append(nodes)
        return nodes >= fewest

    assert fewest_beyond(1, most, enough) == (fewest if fewest <= most else None)


@pytest.mark.parametrize("name", ["one pool, none", "short steps, none", "two pools, none"])
def test_without_time_no_search_is_begun_to_explain_that_nothing_fits(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("the time is out")

    monkeypatch.setattr(branch, "open_to", never)
    late = Asking(until=0.0)
    assert infeasible(instance_of(PROBLEMS[name]()), late) == Conflict(limits=())
    assert late.unanswered == [WHICH, HOW_FAR]


@pytest.mark.parametrize("name", ["one pool", "one pool, none", "two pools, none"])
@pytest.mark.parametrize("share", SHARES)
def test_a_frontier_ends_in_time(monkeypatch: pytest.MonkeyPatch, name: str, share: float) -> None:
    problem = PROBLEMS[name]()
    full = frontier.frontier(problem)
    looks = ticking(monkeypatch)
    frontier.frontier(problem, time_limit=FOREVER)
    limit = int(share * next(looks))
    looks = ticking(monkeypatch)
    try:
        found = frontier.frontier(problem, time_limit=limit)
    except TimeLimit:
        found = None
    assert next(looks) <= limit + LATE
    if found is None or found.status == "feasible":
        return
    assert [of.decisions for of in found.points] == [of.decisions for of in full.points]
    if full.conflict is not None:
        assert found.conflict is not None
        conflict_is_honest(full.conflict, found.conflict)


def test_answers_that_came_in_time_are_kept() -> None:
    def answers() -> Iterator[int]:
        yield 1
        yield 2
        raise OutOfTime

    some = Asking()
    assert some.every("the first", answers()) == [1, 2]
    assert some.ask("the second", lambda: 3) == 3
    assert some.unanswered == ["the first"]
    assert list(some.note()) == ["The time was out before all was known of: the first."]
    assert list(Asking().note()) == []
