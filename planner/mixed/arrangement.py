"""Two pools in one of the two forms, with the layer keys that both can run."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.mixed import joint_fabric
from costmodel.records import gather
from planner.bound.mix import LayerMix
from planner.instance import Instance, Pool
from planner.keybook import KeyBook
from planner.mixed.bound import favour
from planner.mixing import Form
from planner.space.columns import LayerKeys, families
from planner.space.recompute import ALL, HIDDEN, overlaps, recompute_families

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Arrangement:
    """Which pools, in which form; of stages, which of them comes first."""

    form: Form
    pools: tuple[int, int]
    book: KeyBook
    joint: KeyBook
    """The same costs, with the links between the pools for what crosses them."""
    key: Array
    """(2, keys) rows of the book's keys, of each pool."""
    keys: LayerKeys
    """What the keys of both pools share; their `pool` is the first one."""
    parts: Array
    """(2, keys, kinds + 2) seconds a micro-batch of all layers of each kind, of embedding and of head."""
    seconds: Array
    """(2, keys) of the whole model on one rank of each pool."""
    favour: Array
    """(keys,) `bound.favour` of stages; replicas do whole models."""

    @property
    def instance(self) -> Instance:
        """The problem's."""
        return self.book.instance

    @property
    def both(self) -> tuple[Pool, Pool]:
        first, second = (self.book.instance.pools[index] for index in self.pools)
        return first, second


def alike_in(instance: Instance, form: Form) -> bool:
    """Whether both pools' replicas run the same number of micro-batches in plans of a form."""
    return form == "stages" or instance.framework == "megatron"


def alike(of: Arrangement) -> bool:
    """The same of an arrangement."""
    return alike_in(of.instance, of.form)


def arrangements(instance: Instance, book: KeyBook, forms: tuple[Form, ...]) -> list[Arrangement]:
    """All of an instance: unordered pairs of pools for replicas, ordered ones for stages.

    Both pools of a pair are of one precision, and they are not variants of each other.
    """
    found: list[Arrangement] = []
    for first, second in combinations(range(len(instance.pools)), 2):
        one, other = instance.pools[first], instance.pools[second]
        if one.entry == other.entry or one.precision != other.precision:
            continue
        for form, pools in (
            ("stages", (first, second)),
            ("stages", (second, first)),
            ("replicas", (first, second)),
        ):
            if form in forms:
                of = _arranged(instance, book, form, pools)
                found += [of] if of.key.shape[1] else []
    return found


def _arranged(instance: Instance, book: KeyBook, form: Form, pools: tuple[int, int]) -> Arrangement:
    assert instance.mixing is not None
    names = [f.name for f in fields(LayerKeys) if f.name != "pool"]
    decided = np.stack([getattr(book.keys, name) for name in names], axis=-1)
    rows = [np.flatnonzero(book.keys.pool == pool) for pool in pools]
    places = {tuple(decided[row].tolist()): row for row in rows[1]}
    shared = [(row, places[key]) for row in rows[0] if (key := tuple(decided[row].tolist())) in places]
    key = np.array(shared, dtype=np.int64).reshape(-1, 2).T
    link = instance.mixing.link
    fabrics = [instance.pools[pool].fabric for pool in pools]
    joined = list(instance.pools)
    for index, pool in enumerate(pools):
        fabric = joint_fabric(fabrics[index], fabrics[1 - index], link)
        joined[pool] = replace(instance.pools[pool], fabric=fabric)
    joint = replace(book, instance=replace(instance, pools=tuple(joined)))
    parts = np.stack([_parts(book, pool, of) for pool, of in zip(pools, key, strict=True)])
    whole = np.ones(key.shape[1]) if form == "replicas" else favour(parts)
    return Arrangement(
        form, pools, book, joint, key, book.keys.take(key[0]), parts, parts.sum(axis=-1), whole
    )


def _parts(book: KeyBook, pool: int, keys: Array) -> Array:
    """(keys, kinds + 2)."""
    mix = LayerMix.of(book.instance.architecture)
    parts = np.zeros((len(keys), len(mix.totals) + 2))
    for _, family, at in families(book.keys.take(keys)):
        of = keys[at]
        where = book.start[pool, book.keys.variant[of]] + book.place[of]
        cost = gather(book.costs[pool, family >= HIDDEN].cost, where)
        kinds = cost.total + cost.forward if family == ALL else cost.total
        parts[at, :-2] = mix.totals * kinds
        parts[at, -2], parts[at, -1] = cost.first, cost.last
    return parts


def mixed_families(instance: Instance, modes: frozenset[str] | None = None) -> tuple[int, ...]:
    """Recompute families that plans on two pools may have.

    Without overlap of the experts' traffic: it needs virtual stages, which only replicas have.
    """
    return recompute_families(instance, modes, tuple(each for each in overlaps(instance) if not each))
