"""Whenever the time is out, an explanation ends there, and says nothing but what is known by then.

The clock counts how often it is looked at, as in `test_time_limit`, whose problems these are.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import count
from typing import Any

import pytest
from test_time_limit import FOREVER, LATE, PROBLEMS, SHARES, unanswered

from planner import asking, explained
from planner.errors import Infeasible, TimeLimit
from planner.explanation import Answer, Explanation
from planner.search import goal

FEASIBLE = ("one pool", "sure", "two pools")
NONE = ("one pool, none", "two pools, none")
QUESTIONS = ("tp=1", "tp=8", "gpu=H20", "micro_batch=2,pp=4")
CUTS = [share if share in (0.25, 0.8) else pytest.param(share, marks=pytest.mark.slow) for share in SHARES]
ASKED = [
    pytest.param(name, question, marks=() if (name, question) == ("one pool", "tp=8") else pytest.mark.slow)
    for name in ("one pool", "two pools")
    for question in QUESTIONS
]


def ticking(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A clock that goes on by one whenever it is looked at; explaining begins at 0."""
    looks = count()
    for module in (goal, asking):
        monkeypatch.setattr(module, "monotonic", lambda: next(looks))
    monkeypatch.setattr(explained, "monotonic", lambda: 0.0)
    return looks


@cache
def whole(name: str) -> tuple[Explanation, int]:
    """The explanation with all the time in the world, and how often it looks at the clock."""
    with pytest.MonkeyPatch.context() as patch:
        looks = ticking(patch)
        return explained.explained(PROBLEMS[name](), time_limit=FOREVER), next(looks)


@cache
def refused(name: str) -> tuple[str, int]:
    """What is said first where nothing fits, with all the time in the world, and how many looks that takes."""
    with pytest.raises(Infeasible) as without:
        explained.explained(PROBLEMS[name]())
    with pytest.MonkeyPatch.context() as patch:
        looks = ticking(patch)
        with pytest.raises(Infeasible) as whole_answer:
            explained.explained(PROBLEMS[name](), time_limit=FOREVER)
        assert str(whole_answer.value) == str(without.value)
        return str(without.value).splitlines()[0], next(looks)


def told(of: Explanation) -> dict[str, Any]:
    """All that it is put together from, but for what time has a part in."""
    return of.model_dump(exclude={"notes", "status"})


@pytest.mark.parametrize("name", FEASIBLE)
def test_with_time_enough_it_is_the_explanation_without_a_limit(name: str) -> None:
    assert told(whole(name)[0]) == told(explained.explained(PROBLEMS[name]()))
    assert not unanswered(whole(name)[0].notes)


@pytest.mark.parametrize("share", CUTS)
@pytest.mark.parametrize("name", FEASIBLE)
def test_an_explanation_ends_in_time_and_tells_nothing_that_is_not_proved(
    monkeypatch: pytest.MonkeyPatch, name: str, share: float
) -> None:
    full, every = whole(name)
    limit, looks = int(share * every), ticking(monkeypatch)
    try:
        found = explained.explained(PROBLEMS[name](), time_limit=limit)
    except TimeLimit:
        assert next(looks) <= limit + LATE
        return
    assert next(looks) <= limit + LATE
    assert unanswered(found.notes)
    if found.status == "feasible":
        assert any("whether there is a better one is not known" in note for note in found.notes)
        assert (found.limits, found.break_evens, found.what_ifs) == ((), (), ())
        return
    assert found.plan.decisions == full.plan.decisions
    assert {of.text for of in found.reasons} <= {of.text for of in full.reasons}
    for mine, all_of_them in (
        (found.limits, full.limits),
        (found.break_evens, full.break_evens),
        (found.what_ifs, full.what_ifs),
        (found.sureness.text, full.sureness.text),
    ):
        assert tuple(mine) == tuple(all_of_them)[: len(mine)]
    assert found.paying == full.paying
    just = {each.text for of in full.reasons for each in of.alone}
    assert {each.text for of in found.reasons for each in of.alone} <= just


@pytest.mark.parametrize("share", CUTS)
@pytest.mark.parametrize("name", NONE)
def test_that_nothing_fits_is_said_where_it_is_proved_and_limits_conflict_where_that_is_known(
    monkeypatch: pytest.MonkeyPatch, name: str, share: float
) -> None:
    known, every = refused(name)
    limit, looks = int(share * every), ticking(monkeypatch)
    with pytest.raises((Infeasible, TimeLimit)) as found:
        explained.explained(PROBLEMS[name](), time_limit=limit)
    assert next(looks) <= limit + LATE
    if found.type is TimeLimit:
        return
    first, *_ = str(found.value).splitlines()
    assert first in (known, f"{known.partition('in conflict: ')[0]}in conflict: not known")
    assert "The time was out" in str(found.value)


@pytest.mark.parametrize(("name", "question"), ASKED)
def test_a_question_is_answered_with_a_proof_or_said_not_to_be(
    monkeypatch: pytest.MonkeyPatch, name: str, question: str
) -> None:
    problem = PROBLEMS[name]()
    full = explained.answer_to(problem, question)
    looks = ticking(monkeypatch)
    assert in_full(explained.answer_to(problem, question, time_limit=FOREVER)) == in_full(full)
    every, unknown = next(looks), 0
    for share in SHARES:
        limit, looks = int(share * every), ticking(monkeypatch)
        try:
            found = explained.answer_to(problem, question, time_limit=limit)
        except TimeLimit:
            continue
        finally:
            assert next(looks) <= limit + LATE
        if found.because == "time limit":
            unknown += 1
            assert (found.plan, found.alone, found.effect) == (None, None, {})
            assert unanswered(found.notes)
        else:
            assert in_full(found) == in_full(full)
    assert unknown or full.because == "chosen"


def in_full(of: Answer) -> dict[str, Any]:
    return of.model_dump(exclude={"notes"})
