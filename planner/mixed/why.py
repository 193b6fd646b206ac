"""Questions asked in words, where plans may use two pools: the best plan of either kind that decides so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from planner.asking import Asking
from planner.explanation import Answer
from planner.instance import Instance, Narrowing
from planner.mixed.questions import Either
from planner.mixed.reasons import better_than, difference, keys_if_any, told
from planner.mixed.shortfall import loosened
from planner.mixed.words import head_words
from planner.narrowed import PREFIX, keys_of, nothing_left
from planner.search import Effort
from planner.solution import Decisions
from planner.solution import Plan as Told
from planner.variants import best_plan, fixed
from planner.why import THAT, let_in, no_plan, not_known, question_words


def answered_of_both(
    instance: Instance, best: Either, question: Mapping[str, Any], name: str, asking: Asking | None = None
) -> tuple[Answer, Decisions]:
    """The best plan that decides as asked, or why there is none; and what the best plan decides."""
    asking, mine = asking or Asking(), told(instance, best)
    chosen = {each: value_in(mine.decisions, each) for each in question}
    common: dict[str, Any] = {
        "name": name,
        "question": dict(question),
        "chosen": chosen,
        "notes": let_in(instance, question),
    }
    found = asking.ask(THAT, lambda: answer_in_time(instance, mine, question, common, asking))
    return found or not_known(question, common), mine.decisions


def answer_in_time(
    instance: Instance, mine: Told, question: Mapping[str, Any], common: dict[str, Any], asking: Asking
) -> Answer:
    """The answer. Raises OutOfTime where it is not proved in time."""
    asking.check()
    asked, until = question_words(question), asking.until
    if common["chosen"] == dict(question):
        return Answer(**common, because="chosen", text=f"The plan has {asked} already.")
    other = best_so(instance, question, until)
    if other is None:
        because, why = no_plan_so(instance, question, until)
        return Answer(**common, because=because, text=f"No plan with {asked}: {why}.")
    return Answer(**common, **compared(instance, mine, other, question))


def compared(instance: Instance, mine: Told, other: Told, question: Mapping[str, Any]) -> dict[str, Any]:
    """What the best plan that decides so would change."""
    of = difference(instance, mine, other)
    also = head_words(mine, other, tuple(question))
    head = f"Best plan with {question_words(question)}{also}"
    return {"plan": other, "effect": of.effect, "because": of.because, "text": f"{head}: {of.words}."}


def value_in(decisions: Decisions, name: str) -> Any:
    """A decision by its name; of the form, `none` on one pool."""
    types = {part.gpu for part in decisions.parts}
    if name == "gpu" and len(types) == 1:
        return types.pop()
    value = getattr(decisions, name)
    return "none" if name == "mixed" and value is None else value


def best_so(instance: Instance, question: Mapping[str, Any], until: float | None = None) -> Told | None:
    """The best plan of either kind that decides so. Raises OutOfTime as `best_plan` does."""
    alone, both = alone_that(instance, question), pairs_that(instance, question)
    single = best_plan(alone, until=until) if alone.pools else None
    # The order of plans is the objective's alone: the same whatever is fixed.
    effort = Effort(until=until)
    mixed = None if both is None else better_than(both, keys_if_any(alone, single), effort)[0]
    effort.conclude()
    if both is not None and mixed is not None:
        return told(both, mixed)
    return None if single is None else told(alone, single)


def no_plan_so(
    instance: Instance, question: Mapping[str, Any], until: float | None = None
) -> tuple[str, str]:
    """The limit that leaves no plan of either kind that decides so, and how near the nearest comes."""
    keys = [key for key in keys_of(instance) if key.removeprefix(PREFIX) not in question]
    none = "search", nothing_left("such layout", keys)
    found = next(
        (
            (free.limit, free.words(plan))
            for free in loosened(instance)
            if (plan := best_so(free.instance, question, until)) is not None
        ),
        none,
    )
    alone = alone_that(instance, question)
    # Of plans on one pool it is known how little memory would do, or what a framework cannot launch.
    more = found[0] in ("memory", none[0]) and question.get("mixed", "none") == "none"
    return no_plan(alone, question, until) if more else found


def alone_that(instance: Instance, question: Mapping[str, Any]) -> Instance:
    """The instance of plans on one pool that decide so; without pools where no such plan is on one."""
    alone = fixed(instance, {name: value for name, value in question.items() if name != "mixed"})
    return alone if question.get("mixed", "none") == "none" else replace(alone, pools=())


def pairs_that(instance: Instance, question: Mapping[str, Any]) -> Instance | None:
    """The instance of plans on two pools that decide so; None where no such plan is on two."""
    assert instance.mixing is not None
    rest = {name: value for name, value in question.items() if name != "mixed"}
    form = question.get("mixed")
    if form == "none":
        return None
    if form is not None:
        instance = replace(instance, mixing=replace(instance.mixing, forms=(form,)))
    # GPUs of both pools together, which no pool alone need have.
    narrow = fixed(instance, {name: value for name, value in rest.items() if name != "num_gpus"})
    if "num_gpus" in rest:
        allowed = narrow.narrowing.allowed | {"num_gpus": (rest["num_gpus"],)}
        left = tuple(of for of in narrow.narrowing.required if of.decision != "num_gpus")
        narrow = replace(narrow, narrowing=Narrowing(allowed, left))
    return narrow if len(narrow.described) > 1 else None
