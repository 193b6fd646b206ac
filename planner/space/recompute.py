"""How layers are executed: what is recomputed, and whether the experts' traffic overlaps with compute.

Rows of the search carry a family, and a variant of it. Families are what rules tell apart: whether whole
layers are recomputed, or sets of modules in every layer, or nothing, with or without overlap. Variants are
what costs tell apart: a set of modules, and overlap. Where a family has several variants, rows leave theirs
open until they are candidates.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Any

from costmodel.architecture import LayerKind
from costmodel.calibration.apply import calibrated_stack
from costmodel.memory.activations import layer_bytes
from costmodel.modules import COVERED
from costmodel.overlap import with_expert_overlap
from costmodel.run import Column, Run
from costmodel.stack import Stack
from planner.frameworks.rules import overlaps_experts, recomputes_all_or_none, selective_by
from planner.frameworks.table import MOST_MTP
from planner.instance import Instance, Pool
from planner.narrowing import NAMEABLE, OPERATIONS, RECOMPUTE, Modules, set_name
from planner.requirements import MODULES, NO_MODULES, Requirement

FAMILIES = 6
SOME, ALL, NONE, SELECTIVE, HIDDEN_NONE, HIDDEN_SELECTIVE = range(FAMILIES)
"""Full recompute of as many layers as it takes (or none at all), of every layer, of nothing; of modules; and
the last two with the experts' all-to-all hidden behind compute, which goes with no full recompute."""
HIDDEN = HIDDEN_NONE
"""Families from here on overlap the experts' traffic."""
OPEN, PLAIN = -1, 0
"""Variants: any of the family; nothing recomputed by module, and no overlap."""
VARIANTS = 256
"""More than there are."""
WORTH = 0.01
"""A module is offered where recomputing it frees at least this share of what a layer keeps. Others cost time
and free next to nothing: `core_attn` under flash attention only frees the log-sum-exp."""
WHOLE_BLOCK = "moe"
"""What overlap rules out, as it runs the parts of this block one by one."""


@dataclass(frozen=True, slots=True)
class Variant:
    """What the cost of a layer depends on."""

    modules: Modules
    overlapped: bool


BARE = Variant(frozenset(), overlapped=False)
"""Nothing recomputed, and no overlap."""


@cache
def variants(framework: str) -> tuple[Variant, ...]:
    """Every variant that there is, in the order of their numbers."""
    sets = module_sets(framework)
    hidden = (modules for modules in sets if WHOLE_BLOCK not in modules)
    every = [Variant(of, overlapped=False) for of in (frozenset[str](), *sets)]
    return (*every, *(Variant(of, overlapped=True) for of in (frozenset[str](), *hidden)))


@cache
def module_sets(framework: str) -> tuple[Modules, ...]:
    """Every set of modules that selective recompute of a framework can name."""
    by = selective_by(framework)
    if by == "none":
        return ()
    if by == "operations":
        return (frozenset({OPERATIONS}),)
    subsets = (frozenset(s) for n in range(1, len(NAMEABLE) + 1) for s in combinations(NAMEABLE, n))
    return tuple(s for s in subsets if not any(whole in s and s & parts for whole, parts in COVERED.items()))


def variant_of(framework: str, modules: Modules, overlapped: bool) -> int:
    """The number of a variant."""
    return variants(framework).index(Variant(modules, overlapped))


def family_of(modules: Modules, overlapped: bool) -> int:
    """A family that a plan may belong to."""
    if overlapped:
        return HIDDEN_SELECTIVE if modules else HIDDEN_NONE
    return SELECTIVE if modules else SOME


def modules_of(framework: str, variant: int) -> Modules:
    """The modules that rows of a variant recompute in every layer."""
    return variants(framework)[variant].modules


def stage_recompute(family: int) -> str:
    """Layers that a stage assignment of a family may recompute in full: some, all or none."""
    return {SOME: "some", ALL: "all"}.get(family, "none")


def recompute_modes(instance: Instance) -> frozenset[str]:
    """Recompute modes that the problem allows and its framework has."""
    has = (mode for mode in RECOMPUTE if mode != "selective" or offered_sets(instance))
    if not required_modules_hold(instance, NO_MODULES):
        has = (mode for mode in has if mode == "selective")
    return frozenset(mode for mode in has if instance.narrowing.permits("recompute", mode))


def required_modules_hold(instance: Instance, modules: str) -> bool:
    """Whether plans that recompute a set of modules, or none, keep to what is required of it."""
    return all(of.holds(modules) for of in required_modules(instance))


def required_modules(instance: Instance) -> list[Requirement]:
    """Requirements on the modules that are recomputed."""
    return [of for of in instance.narrowing.required if of.decision == MODULES]


def overlaps(instance: Instance) -> tuple[bool, ...]:
    """Whether the experts' traffic may overlap, may not, or either."""
    architecture = instance.architecture
    if architecture.moe is None or architecture.mtp_layers > MOST_MTP:
        return (False,)
    can = (False, True) if overlaps_experts(instance.framework) else (False,)
    return tuple(each for each in can if instance.narrowing.permits("ep_overlap", each))


def recompute_families(
    instance: Instance, modes: frozenset[str] | None = None, hidden: tuple[bool, ...] | None = None
) -> tuple[int, ...]:
    """Families that cover the recompute modes and overlap of an instance, or some of them, each once."""
    modes = recompute_modes(instance) if modes is None else modes
    hidden = overlaps(instance) if hidden is None else hidden
    both = (NONE, ALL) if recomputes_all_or_none(instance) else (SOME,)
    full = {(True, True): both, (True, False): (NONE,), (False, True): (ALL,), (False, False): ()}
    found = full["none" in modes, "full" in modes] + ((SELECTIVE,) if "selective" in modes else ())
    names = {"none": HIDDEN_NONE, "selective": HIDDEN_SELECTIVE}
    more = tuple(
        family for mode, family in names.items() if mode in modes and family_variants(instance, family)
    )
    return (found if False in hidden else ()) + (more if True in hidden else ())


def modes_of(instance: Instance, family: int) -> int:
    """Recompute modes that a row of a family stands for, whose variant is known."""
    if family != SOME:
        return 1
    return sum(instance.narrowing.permits("recompute", mode) for mode in ("none", "full"))


def family_variants(instance: Instance, family: int) -> tuple[int, ...]:
    """Variants of a family; computed once."""
    if "family_variants" not in instance.derived:
        of, sets = instance.framework, offered_sets(instance)
        hidden = [modules for modules in sets if WHOLE_BLOCK not in modules]
        plain = dict.fromkeys((SOME, ALL, NONE), (PLAIN,))
        instance.derived["family_variants"] = plain | {
            SELECTIVE: tuple(variant_of(of, modules, overlapped=False) for modules in sets),
            HIDDEN_NONE: (variant_of(of, frozenset(), overlapped=True),),
            HIDDEN_SELECTIVE: tuple(variant_of(of, modules, overlapped=True) for modules in hidden),
        }
    return instance.derived["family_variants"][family]


def offered_sets(instance: Instance) -> tuple[Modules, ...]:
    """Sets of modules that an instance may recompute; computed once.

    Those that the problem names, or requires; else all of modules that are worth it on one of its pools.
    """
    if "offered_sets" not in instance.derived:
        named = MODULES in instance.narrowing.allowed
        named |= any(of.operator in ("==", "in") for of in required_modules(instance))
        whole = named or selective_by(instance.framework) == "operations"
        offered = worthwhile(instance) if not whole else frozenset((*NAMEABLE, OPERATIONS))
        instance.derived["offered_sets"] = tuple(
            modules
            for modules in module_sets(instance.framework)
            if modules <= offered and instance.narrowing.permits(MODULES, set_name(modules))
        )
    return instance.derived["offered_sets"]


def worthwhile(instance: Instance) -> Modules:
    """Modules whose recompute frees at least WORTH of what a layer of some kind keeps, on some pool."""
    kinds: tuple[LayerKind, ...] = instance.architecture.kinds
    pools = {pool.precision: pool for pool in instance.pools}
    found: set[str] = set()
    for pool in pools.values():
        whole: list[tuple[LayerKind, Column]] = [
            (kind, layer_bytes(_bare(instance, pool), kind)) for kind in kinds
        ]
        for module in set(NAMEABLE) - found:
            run = _bare(instance, pool, frozenset({module}))
            if any(layer_bytes(run, kind) <= (1 - WORTH) * kept for kind, kept in whole):
                found.add(module)
    return frozenset(found)


def _bare(instance: Instance, pool: Pool, modules: Modules = frozenset()) -> Run:
    """A run on one GPU."""
    names = ("tp", "cp", "pp", "vpp", "dp", "ep", "etp", "micro_batch", "num_microbatches", "zero")
    return run_of(instance, pool, Variant(modules, overlapped=False), **dict.fromkeys(names, 1))


def run_of(instance: Instance, pool: Pool, variant: Variant, **columns: Any) -> Run:
    """The cost model's noun for rows that share a pool and a variant."""
    return Run(
        architecture=instance.architecture,
        gpu=pool.gpu,
        fabric=pool.fabric,
        stack=calibrated_stack(stack_of(instance, variant.overlapped), pool.gpu),
        seq_len=instance.seq_len,
        precision=pool.precision,
        recompute_modules=variant.modules,
        **columns,
    )


def stack_of(instance: Instance, overlapped: bool) -> Stack:
    """The software profile with the experts' traffic hidden or not; put together once."""
    if instance.architecture.moe is None:
        return instance.stack
    name = f"stack with overlap {overlapped}"
    if name not in instance.derived:
        instance.derived[name] = with_expert_overlap(instance.stack, overlapped)
    return instance.derived[name]
