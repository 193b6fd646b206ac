"""When nothing is valid: which keys of the problem's `search` leave no layout, and which values would do."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from planner.english import enumerated
from planner.finding import Finding, P
from planner.instance import Instance
from planner.narrowing import RECOMPUTE, ZERO_SCOPES
from planner.relaxed import Tables, smallest
from planner.search import Table, goal_of
from planner.solution import Relaxation
from planner.space.recompute import recompute_families
from planner.space.values import (
    MICRO_BATCHES,
    context_parallel_sizes,
    expert_layouts,
    tensor_parallel_sizes,
)
from planner.switches import SWITCHES, software, spoken

PREFIX = "search."
"""Before the name of a key, in conflicts: as in the problem file."""


def keys_of(instance: Instance) -> list[str]:
    """Keys of `search` that narrow a decision or switch overlap: search.tp, search.zero, ..."""
    return [f"{PREFIX}{name}" for name in (*instance.narrowing.allowed, *instance.switches)]


def without_keys(instance: Instance, keys: Sequence[str]) -> Instance:
    """The instance whose `search` leaves out some keys."""
    names = {key.removeprefix(PREFIX) for key in keys}
    allowed = {name: values for name, values in instance.narrowing.allowed.items() if name not in names}
    free = replace(instance, narrowing=replace(instance.narrowing, allowed=allowed))
    if not names & set(SWITCHES):
        return free
    chosen = {name: on for name, on in instance.switches.items() if name not in names}
    return replace(free, switches=chosen, stack=software(instance.stack.name, chosen))


def keys_in_conflict(
    instance: Instance, tables: Tables = Table.of, asked: Collection[str] = ()
) -> tuple[str, ...]:
    """A smallest set of keys that leaves no layout; empty if there is one, or none without any key.

    `asked`: decisions whose values are those of a question, and not of the problem's `search`.
    """

    def helps(keys: list[str]) -> bool:
        return valid(without_keys(instance, keys), tables)

    named = [key for key in keys_of(instance) if key.removeprefix(PREFIX) not in asked]
    return smallest(named, helps) if named and helps(named) and not valid(instance, tables) else ()


def why_no_layout(
    instance: Instance,
    of: Finding[P],
    asked: Collection[str] = (),
    sizes: str = "",
) -> str:
    """Why nothing is valid: the keys that leave no layout and the values that would do, if it is `search`.

    `sizes`: what is said where it is not.
    """
    keys = keys_in_conflict(instance, asked=asked)
    if not keys:
        return sizes or nothing_left("such layout")
    leave = f"{' and '.join(keys)} {'leaves' if len(keys) == 1 else 'leave'} no such layout"
    return "; ".join([leave, *(move.text for move in other_values(instance, keys, of))])


def nothing_left(what: str, keys: Sequence[str] = ()) -> str:
    """That sizes leave none of what was looked for, with the keys of `search` that may have a part in it."""
    return f"{enumerated(['the batch', 'the layers', 'the pools', *keys])} leave no {what}"


def valid(instance: Instance, tables: Tables = Table.of) -> bool:
    """Whether there is any layout, whatever the limits on its run and the memory."""
    table = tables(instance, goal_of(instance), recompute_families(instance))
    every, _ = table.counter.keys(table.book.keys, table.at_least)
    return bool(every.any())


def other_values(instance: Instance, keys: Sequence[str], of: Finding[P]) -> Iterator[Relaxation]:
    """For each key that alone is in the way of a plan within the limits: the values that would do instead."""
    for key in keys:
        free = without_keys(instance, [key])
        plan = of.fastest(free, free.limits)
        if plan is None:
            continue
        name = key.removeprefix(PREFIX)
        old = enumerated([str(spoken(value)) for value in asked(instance, name)], "or")
        would_do = [str(spoken(value)) for value in tried(instance, name) if does(free, name, value, of)]
        if would_do:
            new = enumerated(would_do, "or")
            text = f"{key}: {new} {'makes' if len(would_do) == 1 else 'make'} a plan possible"
        else:
            found = of.decided(free, plan, name)
            new = "any" if found is None else f"{name} {spoken(found)}"
            text = f"without {key} a plan is possible" + ("" if found is None else f": the fastest has {new}")
        yield Relaxation.of(key, old, new, text)


def fewer_keys(instance: Instance, of: Finding[P]) -> Iterator[Relaxation]:
    """Where no key alone is in the way: keys without which together a plan within the limits exists.

    None of them can stay, in the order in which the problem names them.
    """
    left_out = keys_of(instance)
    free = without_keys(instance, left_out)
    if not of.possible(free, free.limits):
        return
    for key in keys_of(instance):
        rest = [other for other in left_out if other != key]
        back = without_keys(instance, rest)
        if rest and of.possible(back, back.limits):
            left_out = rest
    free = without_keys(instance, left_out)
    plan = of.fastest(free, free.limits)
    assert plan is not None
    names = [key.removeprefix(PREFIX) for key in left_out]
    old = " and ".join(
        enumerated([str(spoken(value)) for value in asked(instance, name)], "or") for name in names
    )
    values, keys = {name: of.decided(free, plan, name) for name in names}, " and ".join(left_out)
    new = ", ".join(f"{name} {spoken(value)}" for name, value in values.items() if value is not None) or "any"
    text = f"without {keys} a plan is possible: the fastest has {new}"
    yield Relaxation.of(keys, old, new, text)


def asked(instance: Instance, name: str) -> tuple[int | str, ...]:
    """The values that a key allows."""
    allowed = instance.narrowing.allowed
    return allowed[name] if name in allowed else (instance.switches[name],)


def does(free: Instance, name: str, value: int | str, of: Finding[P]) -> bool:
    """Whether a plan within the limits exists with that value of a decision."""
    allowed = {**free.narrowing.allowed, name: (value,)}
    narrow = replace(free, narrowing=replace(free.narrowing, allowed=allowed))
    return of.possible(narrow, narrow.limits)


def tried(instance: Instance, name: str) -> Sequence[int | str]:
    """All values of a decision that has few of them, in order; none of one that has many."""
    of, domains = instance.architecture, {pool.fabric.domain for pool in instance.pools}
    tps = sorted({tp for domain in domains for tp in tensor_parallel_sizes(of, domain)})
    experts = [each for tp in tps for each in expert_layouts(of, tp)]
    return {
        "tp": tps,
        "cp": context_parallel_sizes(instance.seq_len),
        "ep": sorted({ep for ep, _ in experts}),
        "etp": sorted({etp for _, etp in experts}),
        "micro_batch": [size for size in MICRO_BATCHES if size <= instance.max_batch],
        "zero": range(4),
        "zero_scope": ZERO_SCOPES,
        "recompute": RECOMPUTE,
        "ep_overlap": (False, True),
    }.get(name, ())
