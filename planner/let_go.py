"""What has to go before looser numbers help: decisions, keys of `search`, the framework; as few as can be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from math import inf

from planner.instance import Instance
from planner.loosening import NumberLimit, loosens, memory_limit, number_limits
from planner.narrowed import keys_of, without_keys
from planner.near import Change, Find, Near
from planner.other_frameworks import FRAMEWORK, others, with_framework
from planner.relaxed import without
from planner.required import requirements_of


@dataclass(frozen=True, slots=True)
class LetGo:
    """What is let go, and a plan without it that may break the limits on numbers by any share."""

    names: tuple[str, ...]
    change: Change
    steps: list[list[NumberLimit]]
    """Limits on numbers that are loosened together, step by step: the memory of GPUs first, where there is no
    plan within it however loose the others are."""
    near: Near


def let_go(instance: Instance, find: Find) -> LetGo | None:
    """The fewest limits without a number to let go; None if there is no plan without all of them.

    No name where looser numbers are enough, or these and the memory of GPUs. Of as many each, what comes
    first: requirements, keys of `search`, the framework. Raises `OutOfTime`.
    """
    if not instance.pools:
        return None
    fitting = [number_limits(instance)]
    roomy = [[memory_limit(instance)], *fitting]

    def without_all(names: Sequence[str], steps: list[list[NumberLimit]]) -> LetGo | None:
        for change in changes(instance, names):
            near = find(change, {of.name: inf for of in chain(*steps)}, "time")
            if near is not None:
                return LetGo(tuple(names), change, steps, near)
        return None

    def either(names: Sequence[str]) -> LetGo | None:
        return without_all(names, fitting) or without_all(names, roomy)

    named = without_number(instance)
    if (found := either(())) is not None or not named or without_all(named, roomy) is None:
        return found
    fewest = list(named)
    for name in reversed(named):
        rest = [other for other in fewest if other != name]
        if rest and without_all(rest, roomy) is not None:
            fewest = rest
    for size in range(1, len(fewest)):
        for some in combinations(named, size):
            if without_all(some, roomy) is not None:
                return either(some)
    return either(fewest)


def without_number(instance: Instance) -> list[str]:
    """Requirements that no share loosens, keys of `search`, and the framework, where there are others."""
    required = [of.text for of in requirements_of(instance) if not loosens(of)]
    return [*required, *keys_of(instance), *[FRAMEWORK] * bool(others(instance))]


def changes(instance: Instance, names: Sequence[str]) -> Iterator[Change]:
    """How an instance is without some of them: with each other framework, if that is let go."""
    keys = [name for name in names if name in keys_of(instance)]
    rest = [name for name in names if name not in keys and name != FRAMEWORK]
    for framework in others(instance) if FRAMEWORK in names else (instance.framework,):

        def change(of: Instance, framework: str = framework) -> Instance:
            return with_framework(without(without_keys(of, keys), rest), framework)

        yield change
