"""When nothing fits: how far each limit would have to move by itself to make a plan possible."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from costmodel.units import DAY
from planner.answer import surely
from planner.english import counted
from planner.finding import Finding, P
from planner.frameworks.table import ANY
from planner.instance import Instance, Limits
from planner.limit_words import limit_words
from planner.looser import best_found, may_help
from planner.narrowed import valid
from planner.node_reach import most_looked_at
from planner.other_frameworks import FRAMEWORK, cannot_launch, none_launches, others, with_framework
from planner.relaxed import (
    OTHERS,
    Optimum,
    Tables,
    cheapest,
    fastest,
    limited,
    optimum,
    other_words,
    possible,
    without,
)
from planner.search import Plan, Table
from planner.solution import Relaxation
from planner.variants import decided, only, pool_name

Enough = Callable[[int, int, int], bool]
"""Of a pool, by its index: whether there is a plan with more nodes than one number, which are too few, and as
many as another one at most."""


@dataclass(frozen=True, slots=True)
class OnMore:
    """Plans of one kind, where more nodes of a pool are looked at."""

    layouts: Enough
    """Whether there is any layout, whatever its run takes and has room for: counted, or a bound."""
    plans: Enough


def of_one_pool(find: Optimum) -> Finding[Plan]:
    """How plans on one pool are found."""
    return Finding(
        fastest=partial(fastest, find=find),
        possible=partial(possible, find=find),
        moved_limits=partial(moved_limits, find=find),
        took=surely,
        decided=lambda instance, plan, name: decided(instance, plan).get(name),
    )


def moved_limits(
    instance: Instance, find: Optimum = optimum, among: Sequence[str] = ()
) -> Iterator[Relaxation]:
    """How far each limit on the run itself would have to move alone; `among`: as `may_help` has it."""
    limits = instance.limits

    def words(name: str, least: float) -> Relaxation:
        return relaxation(name, *limit_words(name, getattr(limits, name), least))

    if limits.deadline is not None and may_help("deadline", among):
        yield from best_found(
            lambda: fastest(instance, replace(limits, deadline=None), find=find),
            lambda plan: words("deadline", surely(instance, plan)[0] * DAY),
        )
    if limits.budget is not None and may_help("budget", among):
        yield from best_found(
            lambda: cheapest(instance, replace(limits, budget=None), find=find),
            lambda plan: words("budget", surely(instance, plan)[1]),
        )
    for name in limited(instance, limits):
        if name not in OTHERS or not may_help(name, among):
            continue
        if (found := other_words(instance, limits, name, find=find)) is not None:
            yield relaxation(name, *found)


def more_nodes(
    instance: Instance, find: Optimum = optimum, tables: Tables = Table.of
) -> Iterator[Relaxation]:
    """For each pool the fewest nodes beyond its own with which a plan on it exists."""
    return moved_nodes(instance, alone(instance, find, tables))


def alone(instance: Instance, find: Optimum = optimum, tables: Tables = Table.of) -> OnMore:
    """Plans on one pool alone."""

    def one(index: int, fewer: int, nodes: int) -> Instance:
        return only(instance, index, min_nodes=fewer + 1, max_nodes=nodes)

    def plans(*of: int) -> bool:
        return possible(one(*of), instance.limits, find)

    return OnMore(lambda *of: valid(one(*of), tables), plans)


def moved_nodes(instance: Instance, *kinds: OnMore) -> Iterator[Relaxation]:
    """For each pool the fewest nodes beyond its own that are enough, as far as it is worth to look.

    Each kind of plan is only looked for where those before it leave none with as few nodes.
    """
    for index in instance.described:
        pool, fewest = instance.pools[index], None
        for of in kinds:
            most = most_looked_at(instance, index) if fewest is None else fewest - 1
            if most <= pool.max_nodes or not of.layouts(index, pool.max_nodes, most):
                continue
            found = fewest_beyond(pool.max_nodes, most, partial(of.plans, index))
            fewest = fewest if found is None else found
        if fewest is None:
            continue
        whole = fewest + (0 if pool.site is None else pool.site.spare_nodes(fewest))
        there = pool.nodes or pool.max_nodes
        old = f"{counted(there, 'node')} of {pool_name(instance, index)}"
        new = counted(max(whole, there + 1), "node")
        yield relaxation("nodes", old, new)


def fewest_beyond(low: int, most: int, enough: Callable[[int, int], bool]) -> int | None:
    """The fewest beyond `low`, and `most` at most, that are enough: doubled, then by bisection.

    `enough` is asked of more than a number that is known not to be, and as many as another one at most.
    """
    high = low
    while high < most:
        low, high = high, min(max(2 * high, 1), most)
        if enough(low, high):
            break
    else:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(low, middle) else (middle, high)
    return high


def less_headroom(
    instance: Instance, possible: Callable[[Instance, Limits], bool] = possible
) -> Iterator[Relaxation]:
    """The largest memory headroom with which a plan exists, if giving some up helps."""
    limits = instance.limits
    if limits.memory_headroom <= 0 or not possible(instance, replace(limits, memory_headroom=0.0)):
        return
    most = highest(
        0.0,
        limits.memory_headroom,
        lambda value: possible(instance, replace(limits, memory_headroom=value)),
    )
    yield relaxation("memory_headroom", f"{limits.memory_headroom:.3f}", f"{most:.3f}")


def less_sure(instance: Instance, find: Optimum = optimum) -> Iterator[Relaxation]:
    """The highest confidence with which a plan exists, if being less sure helps."""
    limits = instance.limits

    def holds(confidence: float | None) -> bool:
        return possible(instance, replace(limits, confidence=confidence), find)

    if limits.chance is None or not holds(None):
        return
    most = highest(0.5, limits.chance, holds)
    yield relaxation("confidence", f"{limits.chance:.1%}", f"{most:.1%}")


def highest(low: float, high: float, holds: Callable[[float], bool]) -> float:
    """The highest value that holds, to a thousandth, by bisection: `low` does, `high` does not."""
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def another_framework(instance: Instance, of: Finding[P]) -> Iterator[Relaxation]:
    """The first other framework with which a plan exists, and why the problem's own has no such model."""
    for name in others(instance):
        other = with_framework(instance, name)
        if of.possible(other, other.limits):
            move = relaxation(FRAMEWORK, instance.framework, name)
            said = [f"{move.text}, {none_launches(instance)}" if name == ANY else move.text]
            yield move.model_copy(update={"text": "; ".join([*reason(instance), *said])})
            return


def another_framework_and_limit(instance: Instance, of: Finding[P]) -> Iterator[Relaxation]:
    """What has to move beside a framework that cannot launch the model, where others miss the limits."""
    if not cannot_launch(instance):
        return
    for name in others(instance):
        other = with_framework(instance, name)
        if moves := list(of.moved_limits(other)) or deadline_and_budget(other, of):
            yield from (also_moved(instance, name, move) for move in moves)
            return


def deadline_and_budget(instance: Instance, of: Finding[P]) -> list[Relaxation]:
    """How far deadline and budget have to move together: to what the fastest plan without them takes."""
    limits = instance.limits
    free = without(instance, [name for name in ("deadline", "budget") if getattr(limits, name) is not None])
    plan = of.fastest(free, free.limits)
    if plan is None or limits.deadline is None or limits.budget is None:
        return []
    days, cost = of.took(free, plan)
    pairs = [
        limit_words("deadline", limits.deadline, days * DAY),
        limit_words("budget", limits.budget, cost),
    ]
    old, new = (" and ".join(each) for each in zip(*pairs, strict=True))
    return [relaxation("deadline and budget", old, new)]


def also_moved(instance: Instance, name: str, move: Relaxation) -> Relaxation:
    """A limit that moves beside the framework."""
    own = instance.framework
    text = f"{FRAMEWORK} from {own} to {name} with {move.limit} from {move.from_} to {move.to}"
    text = "; ".join([*reason(instance), f"{text} makes a plan possible"])
    limit, old, new = f"{FRAMEWORK} and {move.limit}", f"{own} and {move.from_}", f"{name} and {move.to}"
    return Relaxation.of(limit, old, new, text)


def reason(instance: Instance) -> list[str]:
    """Why the framework cannot launch the model, where it cannot."""
    return [words] if (words := cannot_launch(instance)) else []


def relaxation(limit: str, old: str, new: str) -> Relaxation:
    """One limit moved, in the words of a solution."""
    return Relaxation.of(limit, old, new, f"{limit} from {old} to {new} makes a plan possible")
