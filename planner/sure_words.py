"""How sure a plan's figures are, and what asking for a confidence would cost, in numbers and sentences."""

from __future__ import annotations

from collections.abc import Iterator

from planner import answer
from planner.account import Account
from planner.asking import Asking
from planner.explanation import Sureness
from planner.instance import Instance
from planner.limit_words import safer_words
from planner.price_of_sureness import price_of_sureness
from planner.reason_words import days_words, money_words
from planner.search import Plan
from planner.solution import Estimate
from planner.variants import best_plan, holds, with_limits

USUAL = 0.9
"""The confidence that is looked at where a problem asks for none."""


SURE = "what being sure costs"
"""A question, as it is told of where the time was out before it was answered."""


def sureness(instance: Instance, plan: Plan, asking: Asking) -> Sureness:
    """How sure the plan's figures are, in numbers and sentences, and what a confidence costs."""
    found = sureness_told(answer.reported(instance, plan).estimate)
    costs = asking.every(SURE, asked_for(instance, plan, asking))
    more = {"confidence": instance.limits.confidence, "text": (*found.text, *costs)}
    return found.model_copy(update=more)


def sureness_told(of: Estimate) -> Sureness:
    """How sure the figures of a plan of either kind are, in numbers and sentences."""
    told = [f"The {name} holds with {share:.1%}." for name, share in of.probability.items()]
    if of.interval_80_days is not None:
        low, high = of.interval_80_days
        told.insert(0, f"Four of five such runs take {low:.1f} to {high:.1f} days ({of.evidence} evidence).")
    if of.out_of_memory is not None:
        risk = of.out_of_memory
        safer = "" if risk.headroom is None else f"; {safer_words(risk.headroom)}"
        told.append(f"The risk to run out of memory is {risk.risk} ({risk.probability:.1%}){safer}.")
    return Sureness(
        interval_80_days=of.interval_80_days,
        evidence=of.evidence or "",
        probability=of.probability,
        text=tuple(told),
    )


def asked_for(instance: Instance, plan: Plan, asking: Asking) -> Iterator[str]:
    """What the asked confidence costs, or what a usual one would cost. Raises OutOfTime."""
    asking.check()
    limits = instance.limits
    price = price_of_sureness(instance, plan, asking.until)
    if price is not None:
        yield price.text
        return
    if (limits.deadline is None and limits.budget is None) or instance.assume_mfu:
        return
    surer = with_limits(instance, confidence=USUAL)
    # Only limits are tighter: a plan that meets them stays the best.
    other = plan if holds(surer, plan) else best_plan(surer, until=asking.until)
    if other is None:
        yield f"No plan meets the limits with {USUAL:.0%}."
    elif other.key == plan.key:
        yield f"Asking for {USUAL:.0%} (limits.confidence) would change nothing."
    else:
        mine, theirs = Account.within(instance, plan), Account.within(surer, other)
        yield (
            f"Asking for {USUAL:.0%} (limits.confidence) would take {other.of('num_gpus')} GPUs: "
            f"{money_words(theirs.dollars - mine.dollars)}, {days_words(theirs.days - mine.days)}."
        )
