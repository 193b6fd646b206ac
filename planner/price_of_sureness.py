"""What it costs that deadline and budget hold at the confidence that is asked for."""

from __future__ import annotations

from planner.account import Account, effect_of
from planner.instance import Instance
from planner.reason_words import days_words, money_words
from planner.search import Plan
from planner.solution import Sure
from planner.sureness import probabilities
from planner.variants import best_plan, with_limits


def price_of_sureness(instance: Instance, plan: Plan, until: float | None = None) -> Sure | None:
    """The plan against the best one whose limits hold as predicted; None where no confidence is asked for.

    Raises OutOfTime where that one is not known by `until` (of time.monotonic).
    """
    asked = instance.limits.chance
    if asked is None:
        return None
    loose = with_limits(instance, confidence=None)
    other = best_plan(loose, until=until)
    assert other is not None, "fewer demands leave no plan"
    theirs, mine = Account.within(loose, other), Account.within(instance, plan)
    effect, without = effect_of(theirs, mine), probabilities(loose, other)
    holds = " and ".join(f"its {name} at {share:.0%}" for name, share in without.items())
    if other.key == plan.key:
        text = f"Being {asked:.0%} sure costs nothing: the best plan without it is the same."
    else:
        text = (
            f"Being {asked:.0%} sure: {money_words(effect['dollars'])} and {days_words(effect['days'])} than "
            f"the best plan without ({other.of('num_gpus')} GPUs), which meets {holds}."
        )
    return Sure(confidence=asked, effect=effect, without=without, text=text)
