"""What is asked of a plan on two pools: one question for each decision that the problem leaves open.

A decision that plans on one pool have as well (TP, GPUs, recompute, ...) is answered by the best plan of
either kind; one that only plans on two pools have (form, order, what each pool does) by these alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.account import mode_of
from planner.explain import other_chunks
from planner.instance import Instance
from planner.mixed.arrangement import alike_in
from planner.mixed.decided import Decided, MixedMask
from planner.mixed.plan import MixedPlan
from planner.narrowing import set_name
from planner.requirements import requirement
from planner.search import Mask, Plan
from planner.search.goal import differs, in_families
from planner.space.columns import LayerKeys
from planner.space.recompute import (
    FAMILIES,
    modules_of,
    offered_sets,
    recompute_families,
    recompute_modes,
    variants,
)
from planner.variants import pool_name

Array = NDArray[Any]
Either = MixedPlan | Plan


@dataclass(frozen=True, slots=True)
class MixedQuestion:
    """A decision and what counts as deciding otherwise."""

    decision: str
    chosen: Any
    value: Callable[[Instance, Either], Any]
    mask: MixedMask
    single: Mask | None = None
    """The same of plans on one pool; None where these have no such decision, or `narrowed` asks for it."""
    narrowed: Callable[[Instance], Instance] | None = None
    """An instance without the chosen value: where plans on one pool have to be looked for anew."""
    split: int | None = None
    """Another number of layers on the first pool's ranks than this."""

    @property
    def of_both(self) -> bool:
        """Whether plans on one pool decide it too."""
        return self.single is not None or self.narrowed is not None


def questions(instance: Instance, plan: MixedPlan) -> Iterator[MixedQuestion]:
    """All of them, in the order in which reasons are told."""
    yield _gpu(instance, plan)
    yield from _arranged(instance, plan)
    yield from _nodes(instance, plan)
    moe = ("ep", "etp") if instance.architecture.moe else ()
    for name in ("num_gpus", "tp", "cp", "pp", "vpp", "dp", *moe, "micro_batch", "zero"):
        if instance.narrowing.open(name):
            yield _single_value(instance, plan, name)
    if instance.narrowing.open("precision") and len(instance.precisions) > 1:
        yield _precision(instance, plan)
    yield from _recompute(instance, plan)
    yield from _micro_batches(instance, plan)
    yield from _split(instance, plan)


def value_of(name: str, instance: Instance, plan: Either) -> Any:
    """A decision of a plan, mixed or not, by its name in a solution."""
    if isinstance(plan, Plan):
        return plan.of("m_high" if name == "num_microbatches" else name)
    own = {
        "num_gpus": sum(plan.num_gpus),
        "dp": plan.replicas,
        "num_microbatches": plan.num_microbatches[0],
    }
    return own[name] if name in own else getattr(plan, name)


def gpus_of(instance: Instance, plan: Either) -> str:
    """GPU types: `H20 + H800`, in the order of the ranks."""
    pools = (plan.of("pool"),) if isinstance(plan, Plan) else plan.pools
    return " + ".join(pool_name(instance, index) for index in pools)


def entries(instance: Instance, pools: tuple[int, ...]) -> frozenset[int]:
    """Pools of the problem's hardware."""
    return frozenset(instance.pools[index].entry for index in pools)


def nodes_on(entry: int, instance: Instance, plan: Either) -> int:
    """Nodes that a plan has of one pool of the problem's hardware."""
    pools, gpus = ((plan.of("pool"),), (plan.of("num_gpus"),)) if isinstance(plan, Plan) else (
        plan.pools, plan.num_gpus
    )  # fmt: skip
    of = ((instance.pools[index], n) for index, n in zip(pools, gpus, strict=True))
    return sum(n // pool.fabric.gpus_per_node for pool, n in of if pool.entry == entry)


def recompute_of(instance: Instance, plan: Either) -> str:
    """The recompute mode as a launch file would name it."""
    if isinstance(plan, Plan):
        return mode_of(plan)
    if modules_of(instance.framework, plan.variant):
        return "selective"
    return "full" if any(plan.stages.recomputed) else "none"


def modules_in(instance: Instance, plan: Either) -> str:
    """Modules that are recomputed in every layer, as one word."""
    variant = plan.of("variant") if isinstance(plan, Plan) else plan.variant
    return set_name(modules_of(instance.framework, variant))


def usual(instance: Instance, mask: MixedMask) -> MixedMask:
    """A mask over the recompute families that the search of the best plan looks at."""
    return of_families(recompute_families(instance), mask)


def of_families(families: tuple[int, ...], mask: MixedMask | None = None) -> MixedMask:
    """Lets through rows of recompute families that another mask lets through."""
    member = np.isin(np.arange(FAMILIES), families)

    def both(of: Decided) -> Array | bool:
        family = of.column("family")
        inside = True if family is None else member[family]
        return inside if mask is None else inside & mask(of)

    return both


def other(name: str, chosen: int) -> MixedMask:
    """Lets through rows that decide a number otherwise, or do not decide it yet."""

    def mask(of: Decided) -> Array | bool:
        column = of.column(name)
        return True if column is None else column != chosen

    return mask


def in_arrangement(plan: MixedPlan, mask: MixedMask | None = None) -> MixedMask:
    """Lets through rows of the plan's form and pools, in their order."""

    def both(of: Decided) -> Array | bool:
        same = (of.form, of.pools) == (plan.form, plan.pools)
        return same if mask is None or not same else mask(of)

    return both


def _gpu(instance: Instance, plan: MixedPlan) -> MixedQuestion:
    mine = entries(instance, plan.pools)

    def mask(of: Decided) -> bool:
        return entries(instance, of.pools) != mine

    every = in_families(recompute_families(instance))
    return MixedQuestion("gpu", gpus_of(instance, plan), gpus_of, usual(instance, mask), every)


def _arranged(instance: Instance, plan: MixedPlan) -> Iterator[MixedQuestion]:
    """The form, and of stages which pool holds the first ranks."""
    assert instance.mixing is not None
    if len(instance.mixing.forms) > 1:
        mask = usual(instance, lambda of: of.form != plan.form)
        yield MixedQuestion("mixed", plan.form, partial(value_of, "form"), mask)
    if plan.form == "stages":
        mask = usual(instance, lambda of: of.form == "stages" and of.pools == plan.pools[::-1])
        yield MixedQuestion("first_ranks", _first(instance, plan), _first, mask)


def _first(instance: Instance, plan: Either) -> str:
    assert isinstance(plan, MixedPlan)
    return pool_name(instance, plan.pools[0])


def _nodes(instance: Instance, plan: MixedPlan) -> Iterator[MixedQuestion]:
    """The nodes of each of the two pools; plans on one pool have none of the other's."""
    for index in plan.pools:
        pool = instance.pools[index]
        chosen = nodes_on(pool.entry, instance, plan)
        if pool.min_nodes == pool.max_nodes and len(instance.described) == 2:
            continue  # all of it or none: that is the question of GPU types
        yield MixedQuestion(
            f"nodes of {pool_name(instance, index)}",
            chosen,
            partial(nodes_on, pool.entry),
            usual(instance, lambda of, e=pool.entry, n=chosen: of.nodes_of(e) != n),
            in_families(recompute_families(instance), _other_nodes(instance, pool.entry, chosen)),
        )


def _other_nodes(instance: Instance, entry: int, chosen: int) -> Mask:
    gpus = np.array(
        [chosen * pool.fabric.gpus_per_node if pool.entry == entry else -1 for pool in instance.pools]
    )

    def mask(rows: LayerKeys) -> Array | bool:
        column = getattr(rows, "num_gpus", None)
        return True if column is None else column != gpus[rows.pool]

    return mask


def _single_value(instance: Instance, plan: MixedPlan, name: str) -> MixedQuestion:
    chosen = value_of(name, instance, plan)
    single = other_chunks(instance, name, chosen) if name == "vpp" else differs(name, chosen)
    families = recompute_families(instance)
    mask = usual(instance, other(name, chosen))
    return MixedQuestion(name, chosen, partial(value_of, name), mask, in_families(families, single))


def _precision(instance: Instance, plan: MixedPlan) -> MixedQuestion:
    chosen = precision_of(instance, plan)
    others = [index for index, pool in enumerate(instance.pools) if pool.precision != chosen]
    families = recompute_families(instance)
    mask = usual(instance, lambda of: of.pools[0] in others)
    return MixedQuestion(
        "precision",
        chosen,
        precision_of,
        mask,
        in_families(families, lambda rows: np.isin(rows.pool, others)),
    )


def precision_of(instance: Instance, plan: Either) -> str:
    """The precision that a plan trains in."""
    return instance.pools[plan.of("pool") if isinstance(plan, Plan) else plan.pools[0]].precision


def _recompute(instance: Instance, plan: MixedPlan) -> Iterator[MixedQuestion]:
    mode, modes = recompute_of(instance, plan), recompute_modes(instance)
    if modes - {mode}:
        families = recompute_families(instance, modes - {mode})
        yield MixedQuestion("recompute", mode, recompute_of, of_families(families), in_families(families))
    if mode == "selective" and len(offered_sets(instance)) > 1:
        families, mine = recompute_families(instance, frozenset({mode})), modules_in(instance, plan)
        every = variants(instance.framework)
        same = [number for number, each in enumerate(every) if set_name(each.modules) == mine]

        def others(of: Decided) -> Array | bool:
            column = of.column("variant")
            return True if column is None else ~np.isin(column, same)

        single = in_families(families, lambda rows: ~np.isin(rows.variant, same))
        yield MixedQuestion("recompute_modules", mine, modules_in, of_families(families, others), single)


def _micro_batches(instance: Instance, plan: MixedPlan) -> Iterator[MixedQuestion]:
    """Their number; where each pool's replicas run their own, one question for each pool."""
    if not instance.narrowing.open("num_microbatches"):
        return
    name, chosen = "num_microbatches", plan.num_microbatches[0]
    if alike_in(instance, plan.form):
        asked = requirement(f"{name} != {chosen}")

        def narrowed(of: Instance) -> Instance:
            return replace(of, narrowing=replace(of.narrowing, required=(*of.narrowing.required, asked)))

        mask = usual(instance, other(name, chosen))
        yield MixedQuestion(name, chosen, partial(value_of, name), mask, narrowed=narrowed)
        return
    for side in (0, 1):
        yield _of_side(instance, plan, "micro-batches", side, (name, f"{name}_1")[side], name)


def _split(instance: Instance, plan: MixedPlan) -> Iterator[MixedQuestion]:
    """What each pool does of one run: ranks and layers of stages, replicas of each pool."""
    if plan.form == "replicas":
        yield from (_of_side(instance, plan, "replicas", side, f"dp_{side}", "dp") for side in (0, 1))
        return
    name = pool_name(instance, plan.pools[0])
    if instance.architecture.layers < 3:
        return  # a layer on each of two ranks: there is no other split
    mask = usual(instance, in_arrangement(plan, other("split", plan.split)))
    yield MixedQuestion(f"ranks of {name}", plan.split, partial(value_of, "split"), mask)
    mask, chosen = usual(instance, in_arrangement(plan)), first_layers(instance, plan)
    yield MixedQuestion(f"layers of {name}", chosen, first_layers, mask, split=chosen)


def first_layers(instance: Instance, plan: Either) -> int:
    """Layers on the first pool's ranks."""
    assert isinstance(plan, MixedPlan)
    return sum(plan.stages.layers[: plan.split])


def _of_side(
    instance: Instance, plan: MixedPlan, what: str, side: int, column: str, field: str
) -> MixedQuestion:
    """What one pool's replicas decide, among plans of the same form on the same pools."""
    chosen = getattr(plan, field)[side]

    def value(instance: Instance, of: Either) -> int:
        return getattr(of, field)[side]

    mask = usual(instance, in_arrangement(plan, other(column, chosen)))
    return MixedQuestion(f"{what} of {pool_name(instance, plan.pools[side])}", chosen, value, mask)
