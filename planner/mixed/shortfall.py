"""Why no plan of either kind decides as asked: the limit, and how near the nearest comes to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from costmodel.units import DAY
from planner.instance import Instance, Limits, Term
from planner.limit_words import limit_words
from planner.mixed.search import Memo
from planner.other_frameworks import without_memory_limit
from planner.relaxed import TERMS, limited, without
from planner.solution import Plan as Told

NOTHING_LEFT = "search", "the layers, the batch and the pools leave no other value"


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
        yield Loosened(" and ".join(named), aimed(without(instance, named), "time"), fastest_words)
    roomy = without_memory_limit(without(instance, named))
    yield Loosened("memory", aimed(roomy, "time"), _memory_words)


def aimed(instance: Instance, term: Term) -> Instance:
    """The instance with a single objective."""
    return replace(instance, objective=((term, 1.0),), lexicographic=True)


def memo_of(instance: Instance, other: Instance, memo: Memo) -> Memo:
    """Stages that are assigned already, where a layout has the same best stages in both."""
    same = other.pools == instance.pools and other.limits.most_memory == instance.limits.most_memory
    return memo if same else {}


def fastest_words(plan: Told) -> str:
    """What the quickest one takes."""
    return f"the fastest takes {plan.estimate.days:.1f} days and costs ${plan.estimate.dollars:,.0f}"


def _words(limits: Limits, name: str) -> Callable[[Told], str]:
    """What is said of the best plan without a limit."""

    def words(plan: Told) -> str:
        of = plan.estimate
        if name == "deadline":
            assert limits.deadline is not None
            return (
                f"the fastest takes {of.days:.1f} days of {limits.deadline / DAY:.1f} "
                f"(and costs ${of.dollars:,.0f})"
            )
        if name == "budget":
            return f"the cheapest costs ${of.dollars:,.0f} of ${limits.budget:,.0f}"
        if name in ("energy", "carbon"):
            assert of.energy is not None
            least = of.energy.mwh * 1e3 if name == "energy" else of.energy.tonnes_co2
            limit, enough = limit_words(name, getattr(limits, name), least)
            return f"the least is {enough} of {limit}"
        return f"without {name} {fastest_words(plan)}"

    return words


def _memory_words(_: Told) -> str:
    """There are layouts, but none that fits."""
    return "none fits into the memory of its GPUs, whatever the other limits"
