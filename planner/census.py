"""Valid candidates before anything narrows the decisions, and how many each thing that does removes.

One after the other: the framework, then the keys of `search`, then required decisions, each in the order of
the problem. What is left at each step is part of what was left before, and is counted as the search counts
(`space.counting`): nothing is written down, and nothing is priced.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise, product
from typing import Any

import numpy as np

from planner.frameworks.rules import selective_by
from planner.frameworks.table import ANY
from planner.instance import Instance, Narrowing
from planner.narrowed import PREFIX
from planner.narrowing import OPERATIONS, set_name
from planner.other_frameworks import FRAMEWORK
from planner.search.table import places_of
from planner.solution import Proof
from planner.space.columns import LayerKeys
from planner.space.counting import Counter, classes
from planner.space.layouts import Multiplicity
from planner.space.recompute import (
    HIDDEN,
    OPEN,
    SELECTIVE,
    family_variants,
    modes_of,
    offered_sets,
    recompute_families,
)
from planner.space.values import MICRO_BATCHES, base_keys


@dataclass(frozen=True, slots=True)
class Census:
    """Counts of valid candidates, sets of recomputed modules that the search drops as needless among them."""

    valid: int
    """On any framework, whatever `search` and required decisions say."""
    removed: dict[str, int]
    """By what removes them of those that are left before it."""

    @classmethod
    def of(cls, instance: Instance) -> Census:
        """Counted afresh for each thing that narrows."""
        free, known = unrestricted(instance), Known()
        by_operations = selective_by(instance.framework) == "operations"
        counts = {"": known.number_of(free, by_operations)}
        counts |= {name: known.number_of(narrowed) for name, narrowed in steps(instance, free)}
        removed = {name: counts[before] - counts[name] for before, name in pairwise(counts)}
        return cls(counts[""], removed)

    def beside(self, other: Census) -> Census:
        """Of both together."""
        names = dict.fromkeys((*self.removed, *other.removed))
        each = {name: self.removed.get(name, 0) + other.removed.get(name, 0) for name in names}
        return Census(self.valid + other.valid, each)

    def within(self, proof: Proof) -> Proof:
        """The proof with the counts; what they leave beyond what was searched is needless."""
        assert proof.valid is not None
        left = self.valid - sum(self.removed.values())
        more = {"unrestricted": self.valid, "narrowed": self.removed, "needless": left - proof.valid}
        return proof.model_copy(update=more)


def narrows(instance: Instance) -> bool:
    """Whether the problem itself narrows decisions, beside the framework."""
    return bool(instance.narrowing.allowed or instance.narrowing.required)


def unrestricted(instance: Instance) -> Instance:
    """The problem on any framework, with nothing narrowed.

    Micro-batches and sets of modules that `search` names are in it beside the usual ones.
    """
    free, named = replace(instance, framework=ANY, narrowing=Narrowing()), instance.narrowing.allowed
    more: dict[str, tuple[int | str, ...]] = {}
    if "micro_batch" in named:
        more["micro_batch"] = tuple(sorted({*MICRO_BATCHES, *map(int, named["micro_batch"])}))
    if "recompute_modules" in named:
        usual = (*map(set_name, offered_sets(free)), OPERATIONS)
        more["recompute_modules"] = tuple(dict.fromkeys((*usual, *named["recompute_modules"])))
    return replace(free, narrowing=Narrowing(more))


def steps(instance: Instance, free: Instance) -> Iterator[tuple[str, Instance]]:
    """The unrestricted problem with ever more of what narrows it, each by its name."""
    own, now = instance.narrowing, free
    if instance.framework != ANY:
        now = replace(now, framework=instance.framework)
        yield FRAMEWORK, now
    for name, values in own.allowed.items():
        allowed = {**now.narrowing.allowed, name: values}
        now = replace(now, narrowing=replace(now.narrowing, allowed=allowed))
        yield f"{PREFIX}{name}", now
    for each in own.required:
        now = replace(now, narrowing=replace(now.narrowing, required=(*now.narrowing.required, each)))
        yield each.text, now


@dataclass(frozen=True, slots=True)
class Known:
    """Counts that are known of the layouts of a class of keys: much of a problem stays as it is in a step."""

    counts: dict[tuple[Any, ...], int] = field(default_factory=dict[tuple[Any, ...], int])

    def number_of(self, instance: Instance, by_operations: bool = False) -> int:
        """Valid candidates; `by_operations`: recompute by operation is one of the sets of modules."""
        keys = every_key(instance, by_operations)
        counter = Counter(instance, places_of(instance, keys))
        shapes = {place: (of.pp.tobytes(), of.dp.tobytes()) for place, of in counter.layouts.items()}
        both = product(range(len(instance.pools)), range(2))
        rules = {(pool, hidden): rules_of(counter.many, pool, hidden) for pool, hidden in both}
        total = 0
        for of, rows in classes(keys):
            (pool, ranks), hidden = of[:2], of[-1]
            of_class = (of, rules[pool, hidden], shapes[pool, ranks])
            if of_class not in self.counts:
                self.counts[of_class] = int(counter.by_layout(of).sum())
            total += self.counts[of_class] * int(keys.modes[rows].sum())
        return total


def rules_of(many: Multiplicity, pool: int, hidden: int) -> tuple[Any, ...]:
    """What the number of candidates on a layout depends on, of keys of a pool that hide traffic or do not."""
    sharding = many.zero[:, pool, hidden], many.node[:, pool, hidden], many.in_chunks
    return (*(table.tobytes() for table in (many.plain, many.interleaved, *sharding)), many.spans)


def every_key(instance: Instance, by_operations: bool) -> LayerKeys:
    """Layer keys of all recompute families, as of a `KeyBook` in which no variant is needless."""
    families = recompute_families(instance)
    modes = {of: modes_of(instance, of) * len(family_variants(instance, of)) for of in families}
    if by_operations:
        modes[SELECTIVE] = modes.get(SELECTIVE, 0) + 1
    parts = [LayerKeys.empty()]
    for pool in range(len(instance.pools)):
        base = base_keys(instance, pool)
        for family, number in modes.items():
            # Without experts on other ranks there is no traffic to hide.
            of = base[:, base[2] > 1] if family >= HIDDEN else base
            fixed = (np.full(of.shape[1], value) for value in (pool, family, OPEN))
            parts.append(LayerKeys(*fixed, *of, modes=np.full(of.shape[1], number)))
    return LayerKeys.concatenate(parts)
