"""Brute force over plans on two pools: every layout of both forms and every stage assignment, one by one.

As `oracle`, with which it shares the walk over decisions of one pipeline and its assignments. Prices come
from `costmodel.mixed`, days and dollars from `mixed_lasting`; nothing comes from `planner.mixed`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np
from mixed_lasting import Share, mixed_lasting
from mixed_layouts import MixedLayout, layouts
from mixed_problems import mixed_problem
from oracle import assignments, entry, modes, num_assignments, quantile, splits_in_flight, stack_of, widened
from random_problems import with_memory

from costmodel.mixed import Line, Mixed, Part, crossing, end_of_step, mixed_step_time
from costmodel.mixed_estimate import MixedEstimate, estimate_mixed
from costmodel.pipeline import micro_batches_in_flight
from costmodel.run import Run
from costmodel.stage import StageRates, StageSplit, stage_memory, stage_time
from planner.instance import Instance

COLUMNS = ("tp", "cp", "pp", "vpp", "ep", "etp", "micro_batch", "zero")
MOST, MOST_ASSIGNMENTS = 3000, 120_000
Keep = Callable[[MixedLayout, Any, Any], Any]
"""Of a layout and of layers and recomputed layers, (assignments, ranks) each: which assignments count."""


@dataclass(frozen=True, slots=True)
class MixedAnswer:
    """The best assignment of one layout."""

    layout: MixedLayout
    layers: tuple[int, ...]
    recomputed: tuple[int, ...]
    step: float
    memory: tuple[float, float]
    """Bytes of the fullest GPU of each pool."""
    seconds: float
    dollars: float
    kwh: float = 0.0
    tonnes: float = 0.0


# ---------------------------------------------------------------------------------------------------
# Prices


@dataclass(frozen=True, slots=True)
class Family:
    """Layouts that can be priced in columns: of one form, on one pair, with one set of modules recomputed."""

    mixed: Mixed
    rates: tuple[StageRates, StageRates]
    """Of each part, a row a layout."""
    cross: tuple[Any, Any]
    """(steady, fill) of the hop between pools."""

    @classmethod
    def of(cls, instance: Instance, family: list[MixedLayout]) -> Family:
        mixed = mixed_of(instance, family)
        return cls(mixed, (mixed.rates(0), mixed.rates(1)), crossing(mixed.joint_run(0)))


def mixed_of(instance: Instance, family: list[MixedLayout]) -> Mixed:
    """The cost model's noun for layouts of a family; ranks are of its first one."""
    assert instance.mixing is not None
    one = family[0]
    columns = {name: np.array([getattr(of, name) for of in family]) for name in COLUMNS}
    ranges = [range(one.pp), range(one.pp)]
    if one.form == "stages":
        ranges = [range(one.split), range(one.split, one.pp)]
    parts = []
    for index, ranks in enumerate(ranges):
        own = {
            name: np.array([getattr(of, name)[index] for of in family]) for name in ("dp", "num_microbatches")
        }
        pool = instance.pools[one.pools[index]]
        run = Run(
            architecture=instance.architecture,
            gpu=pool.gpu,
            fabric=pool.fabric,
            stack=stack_of(instance, ep_overlap=False),
            seq_len=instance.seq_len,
            precision=pool.precision,
            recompute_modules=one.modules,
            **columns,
            **own,
        )
        parts.append(Part(run, ranks))
    return Mixed((parts[0], parts[1]), instance.mixing.link)


@dataclass(frozen=True, slots=True)
class Priced:
    """Layouts with the same shape of pipeline: (layouts, assignments) of each figure."""

    layouts: list[MixedLayout]
    step: Any
    memory: tuple[Any, Any]
    layers: Any
    recomputed: Any


def priced(instance: Instance, of: Family, members: list[MixedLayout], rows: Any) -> Priced:
    """`members` are rows of a family with the same ranks and micro-batches in flight."""
    one, uniform = members[0], not instance.per_stage_recompute
    recompute = modes(instance, one.modules)
    splits = [split_of(instance, one.pp, one.vpp, m, recompute, uniform) for m in one.num_microbatches]
    rates = [widened(entry(each, rows)) for each in of.rates]
    ranks = [list(range(one.pp))] * 2
    if one.form == "stages":
        ranks = [list(range(one.split)), list(range(one.split, one.pp))]
    busy = [stage_time(*each)[..., held] for *each, held in zip(rates, splits, ranks, strict=True)]
    ends = [end_of_step(*each)[..., held] for *each, held in zip(rates, splits, ranks, strict=True)]
    memory = [
        stage_memory(*each)[..., held].max(axis=-1) for *each, held in zip(rates, splits, ranks, strict=True)
    ]
    pieces = np.array([each.num_microbatches for each in members])[:, None, :]
    if one.form == "replicas":
        lines = [
            Line(time, pieces[..., i], rate.p2p_steady, (one.pp - 1) * rate.p2p_fill, rate.bubble, one.vpp)
            for i, (time, rate) in enumerate(zip(busy, rates, strict=True))
        ]
    else:
        # One pipeline: the slowest of its hops in the steady state, all of them while it fills.
        steady, fill = (np.asarray(each)[rows][:, None] for each in of.cross)
        for held, rate in zip(ranks, rates, strict=True):
            fill = fill + (len(held) - 1) * rate.p2p_fill
            steady = np.maximum(steady, rate.p2p_steady)
        lines = [Line(np.concatenate(busy, axis=-1), pieces[..., 0], steady, fill, rates[0].bubble)]
    fixed = np.maximum(rates[0].fixed, rates[1].fixed)
    scale = np.maximum(rates[0].scale, rates[1].scale)
    step = mixed_step_time(lines, np.concatenate(ends, axis=-1), fixed, scale)
    held, again = assignments(instance.architecture.layers, one.pp, one.vpp, recompute, uniform)
    return Priced(members, step, (memory[0], memory[1]), held, again)


def split_of(instance: Instance, pp: int, vpp: int, m: int, recompute: str, uniform: bool) -> StageSplit:
    """Every assignment, with so many micro-batches."""
    in_flight = tuple(map(tuple, micro_batches_in_flight(pp, vpp, m).tolist()))
    return splits_in_flight(instance.architecture, in_flight, recompute, uniform)


def shape_of(layout: MixedLayout) -> tuple[Any, ...]:
    """What layouts have in common that can be priced together."""
    flying = tuple(min(m, layout.pp * min(layout.vpp, 2)) for m in layout.num_microbatches)
    return layout.pp, layout.vpp, layout.split, flying


# ---------------------------------------------------------------------------------------------------
# One problem


@dataclass(slots=True)
class MixedOracle:
    """All mixed plans of a problem with the step and memory of all their assignments; as `oracle.Oracle`."""

    instance: Instance
    priced: list[Priced]

    @classmethod
    def of(
        cls, instance: Instance, most: int = MOST, most_assignments: int = MOST_ASSIGNMENTS
    ) -> MixedOracle | None:
        """None if there are more than so many layouts, or assignments of all of them together."""
        families: dict[Any, list[MixedLayout]] = {}
        uniform, layers = not instance.per_stage_recompute, instance.architecture.layers
        for layout in layouts(instance):
            families.setdefault((layout.form, layout.pools, layout.modules), []).append(layout)
            recompute = modes(instance, layout.modules)
            most_assignments -= num_assignments(layers, layout.pp, layout.vpp, recompute, uniform)
            most -= 1
            if most < 0 or most_assignments < 0:
                return None
        found = []
        for family in families.values():
            rates, shapes = Family.of(instance, family), {}
            for row, layout in enumerate(family):
                shapes.setdefault(shape_of(layout), []).append(row)
            for rows in shapes.values():
                found.append(priced(instance, rates, [family[row] for row in rows], np.array(rows)))
        return cls(instance, found)

    @property
    def layouts(self) -> list[MixedLayout]:
        return [layout for of in self.priced for layout in of.layouts]

    def memory_range(self, pool: int) -> tuple[float, float] | None:
        """Of a pool: the leanest assignment of all, and the fattest of the fastest ones; None if never mixed."""
        of = [
            (each, each.layouts[0].pools.index(pool)) for each in self.priced if pool in each.layouts[0].pools
        ]
        if not of:
            return None
        low = min(float(each.memory[part].min()) for each, part in of)
        fast = (np.take_along_axis(each.memory[part], each.step.argmin(1)[:, None], 1) for each, part in of)
        return low, max(float(each.max()) for each in fast)

    def answers(self, instance: Instance, keep: Keep | None = None) -> list[MixedAnswer]:
        """The fastest assignment of each layout that fits both GPUs' memory; days and dollars aside.

        `keep` says which of a layout's assignments count.
        """
        found = []
        for of in self.priced:
            rooms = [
                instance.pools[i].memory_limit(instance.limits.memory_headroom) for i in of.layouts[0].pools
            ]
            fits = (of.memory[0] <= rooms[0]) & (of.memory[1] <= rooms[1])
            if keep is not None:
                fits = fits & np.array([keep(layout, of.layers, of.recomputed) for layout in of.layouts])
            step = np.where(fits, of.step, np.inf)
            best = step.argmin(axis=1)
            for row, (layout, one) in enumerate(zip(of.layouts, best.tolist(), strict=True)):
                if np.isfinite(step[row, one]):
                    found += answer(instance, of, layout, row, one)
        return found


def answer(instance: Instance, of: Priced, layout: MixedLayout, row: int, one: int) -> list[MixedAnswer]:
    """One assignment of a layout, unless the storage is too small for it."""
    shares = shares_of(instance, layout)
    step = float(of.step[row, one])
    run = mixed_lasting(instance, shares, layout.replicas, layout.batch, step)
    if run.kept > run.room:
        return []
    return [
        MixedAnswer(
            layout,
            tuple(of.layers[one].tolist()),
            tuple(of.recomputed[one].tolist()),
            step,
            (float(of.memory[0][row, one]), float(of.memory[1][row, one])),
            run.seconds,
            run.dollars,
            run.kwh,
            run.tonnes,
        )
    ]


def shares_of(instance: Instance, layout: MixedLayout) -> tuple[Share, Share]:
    """What a layout has of its pools."""
    first, second = (instance.pools[index] for index in layout.pools)
    return Share(first, layout.num_gpus[0]), Share(second, layout.num_gpus[1])


def answers(
    instance: Instance, most: int = MOST, most_assignments: int = MOST_ASSIGNMENTS
) -> list[MixedAnswer]:
    """Every mixed plan of an instance with its fastest assignment that fits. Raises if they are too many."""
    oracle = MixedOracle.of(instance, most, most_assignments)
    if oracle is None:
        raise ValueError("too many plans for brute force")
    return oracle.answers(instance)


def scalar_estimate(instance: Instance, of: MixedAnswer) -> MixedEstimate:
    """An answer priced by itself, from scalars, with `costmodel.mixed.estimate_mixed`."""
    columns = mixed_of(instance, [of.layout])
    parts = [replace(part, run=scalars(part.run)) for part in columns.parts]
    return estimate_mixed(replace(columns, parts=(parts[0], parts[1])), of.layers, of.recomputed)


def scalars(run: Run) -> Run:
    names = (*COLUMNS, "dp", "num_microbatches")
    return replace(run, **{name: int(np.asarray(getattr(run, name))[0]) for name in names})


# ---------------------------------------------------------------------------------------------------
# Random problems


def small_mixed_problem(
    random: Random,
    most: int = MOST,
    most_assignments: int = MOST_ASSIGNMENTS,
    make: Callable[[Random], Instance] = mixed_problem,
) -> MixedOracle:
    """A random problem with mixed plans that brute force gets through, all of them priced."""
    while True:
        oracle = MixedOracle.of(make(random), most, most_assignments)
        if oracle is not None and oracle.priced:
            return oracle


def with_mixed_limits(random: Random, oracle: MixedOracle) -> Instance:
    """Memory that binds on one pool or the other, and days and dollars that some, most or no plans meet."""
    instance, limits, pools = oracle.instance, oracle.instance.limits, []
    for index, pool in enumerate(instance.pools):
        low, high = oracle.memory_range(index) or (1.0, 1.0)
        share = random.choice((0.03, 0.1, 0.2, 0.4, 0.7, 1.1, 1.1)) if random.random() < 0.95 else -0.02
        room = (low + share * (high - low)) / (1 - limits.memory_headroom) * 1.000123
        pools.append(replace(pool, gpu=with_memory(pool.gpu, room)))
    instance = replace(instance, pools=tuple(pools))
    found = oracle.answers(instance)
    seconds = sorted(of.seconds for of in found) or [1.0]
    dollars = sorted(of.dollars for of in found) or [1.0]
    if random.random() < 0.4:
        limits = replace(limits, deadline=quantile(random, seconds))
    if random.random() < 0.4:
        limits = replace(limits, budget=quantile(random, dollars))
    return replace(instance, limits=limits)
