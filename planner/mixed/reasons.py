"""Why each decision of a plan on two pools is as it is: the best plan, mixed or not, that decides otherwise.

All questions are asked at once. Of each the best plan on one pool is what a mixed one has to beat, where it
decides otherwise; where it does not, plans on one pool are only looked for if it would beat the mixed one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner import economics, solution
from planner.account import by_money, changes
from planner.difference import Difference
from planner.economics import Economy
from planner.instance import Instance
from planner.mixed.answer import reported
from planner.mixed.best import Asked, BestOfPairs, Keys, best_of_each
from planner.mixed.decided import MixedMask
from planner.mixed.plan import MixedPlan
from planner.mixed.questions import Either, MixedQuestion, questions
from planner.mixed.search import Memo, memo_of
from planner.mixed.shortfall import loosened
from planner.mixed.words import head_words, label_of
from planner.narrowed import keys_of, nothing_left
from planner.relaxed import every_family
from planner.search import Effort, Plan, Table, best, best_each, goal_of
from planner.search.goal import OutOfTime, in_families
from planner.solution import Reason
from planner.space.recompute import HIDDEN, recompute_families
from planner.variants import best_plan

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Answered:
    """A question and the best plan that decides otherwise; None if there is none."""

    question: MixedQuestion
    plan: Either | None


def reasons(
    search: BestOfPairs, table: Table, single: Plan | None, until: float | None = None
) -> Iterator[Reason]:
    """Of the best plan of a search; `table` holds plans on one pool, of which `single` is the best.

    Raises OutOfTime where not all is proved by `until` (of time.monotonic), after what is.
    """
    instance, plan, effort = search.instance, search.best, Effort(until=until)
    assert plan is not None
    mine = reported(instance, plan)
    asked = list(questions(instance, plan))
    found = answers(instance, asked, table, single, effort, search.memo)
    missing = [of.question for of in found if of.plan is None]
    why = why_none(instance, missing, effort, search.memo)
    short = dict(zip((question.decision for question in missing), why, strict=True))
    for of in found:
        known = short.get(of.question.decision)
        if of.plan is not None or known is not None:
            yield reason_of(instance, mine, of, known)
    effort.conclude()


def why_none(
    instance: Instance, asked: Sequence[MixedQuestion], effort: Effort, memo: Memo
) -> list[tuple[str, str] | None]:
    """For each question that no plan answers the limit that leaves none, and how near the nearest comes.

    None for those of which that is not known in time.
    """
    found: dict[int, tuple[str, str]] = {}
    for free in loosened(instance):
        left = [place for place in range(len(asked)) if place not in found]
        if not left:
            break
        of = free.instance
        some, known = [asked[place] for place in left], memo_of(instance, of, memo)
        try:
            table = Table.of(of, goal_of(of), every_family(of), effort.check)
            single = best(table, in_families(recompute_families(of)), effort)
            answered = answers(of, some, table, single, effort, known)
        except OutOfTime:
            return [found.get(place) for place in range(len(asked))]
        for place, each in zip(left, answered, strict=True):
            if each.plan is not None:
                found[place] = free.limit, free.words(told(of, each.plan))
    none = "search", nothing_left("other value", keys_of(instance))
    return [found.get(place, none) for place in range(len(asked))]


def answers(
    instance: Instance,
    asked: Sequence[MixedQuestion],
    table: Table,
    single: Plan | None,
    effort: Effort,
    memo: Memo,
) -> list[Answered]:
    """The answer to each question, in their order. Raises OutOfTime if that is not proved in time."""
    known = keys_if_any(instance, single)
    to_beat = [known if otherwise(instance, each, single) else None for each in asked]
    open_ones = [Asked(q.mask, keys, split=q.split) for q, keys in zip(asked, to_beat, strict=True)]
    every = tuple(family for family in every_family(instance) if family < HIDDEN)
    found = best_of_each(instance, open_ones, effort, memo, every)
    effort.conclude()
    if single is None or known is None:
        plans: list[Either | None] = [of.plan for of in found.asked]
    else:
        # Where the best plan on one pool decides otherwise it is the answer unless a mixed one beats it.
        plans = [of.plan or (single if keys else None) for of, keys in zip(found.asked, to_beat, strict=True)]
        left = [
            place
            for place, (question, of) in enumerate(zip(asked, found.asked, strict=True))
            if question.of_both and to_beat[place] is None and not beats(of, known)
        ]
        others = on_one_pool(instance, [asked[place] for place in left], table, effort)
        for place, other in zip(left, others, strict=True):
            if other is not None and not beats(found.asked[place], keys_of_single(instance, other)):
                plans[place] = other
    effort.conclude()
    return [Answered(*each) for each in zip(asked, plans, strict=True)]


def beats(of: Asked, keys: Keys) -> bool:
    """Whether a question's mixed answer comes before a plan with such sort keys."""
    return of.plan is not None and of.achieved is not None and first_wins(of.achieved, keys)


def on_one_pool(
    instance: Instance, asked: Sequence[MixedQuestion], table: Table, effort: Effort
) -> list[Plan | None]:
    """The best plan on one pool that decides otherwise, of each question."""
    masks = [question.single for question in asked if question.narrowed is None]
    found = iter(best_each(table, masks, effort) if masks else ())
    return [
        next(found) if of.narrowed is None else best_plan(of.narrowed(instance), until=effort.until)
        for of in asked
    ]


def otherwise(instance: Instance, question: MixedQuestion, single: Plan | None) -> bool:
    """Whether the best plan on one pool answers a question."""
    if single is None or not question.of_both:
        return False
    if question.single is None:
        return bool(question.value(instance, single) != question.chosen)
    return bool(np.all(question.single(single.row)))


def keys_if_any(instance: Instance, plan: Plan | None) -> Keys | None:
    """Sort keys of a plan on one pool, where there is one."""
    return None if plan is None else keys_of_single(instance, plan)


def keys_of_single(instance: Instance, plan: Plan) -> Keys:
    """Sort keys of a plan on one pool, as the search on two pools has them."""
    economy = Economy.of(instance, plan.row, surely=False)
    return goal_of(instance).keys(economy, np.array([plan.step]))


def first_wins(one: Keys, other: Keys) -> bool:
    """Whether sort keys come before others."""
    both = tuple(np.concatenate(pair) for pair in zip(one, other, strict=True))
    first, second = economics.ranks(both).tolist()
    return first < second


def better_than(
    instance: Instance,
    known: Keys | None,
    effort: Effort | None = None,
    memo: Memo | None = None,
    mask: MixedMask | None = None,
) -> tuple[MixedPlan | None, BestOfPairs]:
    """The best mixed plan of a mask if it beats sort keys, which bound the search; and that search."""
    search = best_of_each(instance, [Asked(mask, known)], effort, memo)
    plan, achieved = search.best, search.achieved
    wins = achieved is not None and (known is None or first_wins(achieved, known))
    return (plan if wins else None), search


def told(instance: Instance, plan: Either) -> solution.Plan:
    """A plan of either kind as the solution file has it."""
    if isinstance(plan, MixedPlan):
        return reported(instance, plan)
    from planner import answer

    return answer.reported(instance, plan)


def reason_of(instance: Instance, mine: solution.Plan, of: Answered, short: tuple[str, str] | None) -> Reason:
    """What the best plan that decides otherwise would change, and which part of the step changes most.

    Where there is none, `short` is the limit that leaves none and how near the nearest comes.
    """
    question = of.question
    decision, chosen = question.decision, question.chosen
    if of.plan is None:
        assert short is not None
        limit, words = short
        text = f"{label_of(decision)} {chosen}: no plan that decides otherwise is within the limits; {words}."
        return Reason(decision=decision, chosen=chosen, because=limit, text=text)
    theirs = told(instance, of.plan)
    alternative = question.value(instance, of.plan)
    head = f"{label_of(decision)} {chosen} -> {alternative}{head_words(mine, theirs, (decision,))}"
    return difference(instance, mine, theirs).reason(decision, chosen, alternative, head)


def difference(instance: Instance, mine: solution.Plan, theirs: solution.Plan) -> Difference:
    """What taking another plan of either kind would change."""
    in_dollars = by_money(instance)
    shares = [shares_of(plan, in_dollars) for plan in (mine, theirs)]
    return Difference(effect_of(mine, theirs), changes(*shares), in_dollars)


def effect_of(mine: solution.Plan, theirs: solution.Plan) -> dict[str, float]:
    """What taking the other plan would change."""
    one, other = mine.estimate, theirs.estimate
    named = ("days", "dollars", "mfu", "step_time_s")
    effect = {name: getattr(other, name) - getattr(one, name) for name in named}
    return effect | {"memory_gib": other.memory_gib.total - one.memory_gib.total}


def shares_of(plan: solution.Plan, in_dollars: bool) -> dict[str, float]:
    """Dollars or days of the run by part of the step."""
    of = plan.estimate
    whole = of.dollars if in_dollars else of.days
    return {name: whole * part / of.step_time_s for name, part in of.breakdown_s.items()}
