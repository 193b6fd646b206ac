"""Why no plan of either kind decides as asked: the limit, and how near the nearest comes to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from planner.instance import Instance, Limits
from planner.limit_words import limit_words
from planner.other_frameworks import without_memory_limit
from planner.relaxed import TERMS, limited, without
from planner.shortfall import fastest_words, nearest_words
from planner.solution import Plan as Told
from planner.variants import aimed


@dataclass(frozen=True, slots=True)
class Loosened:
    """A problem without one of its limits, and what is said of its best plan."""

    limit: str
    instance: Instance
    words: Callable[[Told], str]


def loosened(instance: Instance) -> Iterator[Loosened]:
    """The problem without each limit in turn, then without all of them, then with ample memory as well."""
    named, limits = limited(instance, instance.limits), instance.limits
    for name in named:
        free = without(instance, [name])
        term = TERMS.get(name, "time")
        yield Loosened(name, aimed(free, term), _words(limits, name))
    if len(named) > 1:
        yield Loosened(" and ".join(named), aimed(without(instance, named), "time"), _fastest_words)
    roomy = without_memory_limit(without(instance, named))
    yield Loosened("memory", aimed(roomy, "time"), _memory_words)


def _words(limits: Limits, name: str) -> Callable[[Told], str]:
    """What is said of the best plan without a limit."""

    def words(plan: Told) -> str:
        of = plan.estimate
        if name not in ("energy", "carbon"):
            return nearest_words(limits, name, of.days, of.dollars)
        assert of.energy is not None
        least = of.energy.mwh * 1e3 if name == "energy" else of.energy.tonnes_co2
        limit, enough = limit_words(name, getattr(limits, name), least)
        return f"the least is {enough} of {limit}"

    return words


def _fastest_words(plan: Told) -> str:
    """What the quickest one takes."""
    return fastest_words(plan.estimate.days, plan.estimate.dollars)


def _memory_words(_: Told) -> str:
    """There are layouts, but none that fits."""
    return "none fits into the memory of its GPUs, whatever the other limits"
