"""At real sizes, where brute force cannot go, no assignment that packs memory well beats a bound."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

import numpy as np
import pytest
from oracle import Layout, Modules, modes_of, scalar_rates
from random_problems import mixture, replace_model, with_room
from searched import written_down

from costmodel.architecture import Architecture
from costmodel.pipeline import level_chunks, plain_layers, stage_split
from costmodel.run import Fabric
from costmodel.stack import load_stack
from costmodel.stage import PerLayer, StageRates, stage_memory, stage_time
from costmodel.step import step_time
from hardware.catalogue import load_accelerator
from planner.instance import Instance, Limits, Narrowing, Pool
from planner.search.tight import group_memory_bound, row_memory_bound
from planner.stages.cases import cases_of
from planner.stages.problem import StageProblem

MICRO_BATCHES = 12


def large(random: Random) -> tuple[Instance, Layout]:
    """A model of up to 72 layers, some with leading dense ones, and a layout of it on a long pipeline."""
    pp, vpp = random.choice((4, 8, 12, 16, 24)), random.choice((1, 1, 2, 3))
    layers = pp * vpp * random.choice((1, 2, 3)) + random.randint(0, pp - 1)
    kind = random.choice(("dense", "leading", "leading", "leading", "alternating"))
    moe = None if kind == "dense" else mixture(random, layers)
    if moe is not None:
        alternate, lead = (2, 0) if kind == "alternating" else (1, random.randint(1, min(6, layers // 3)))
        moe = replace_model(
            moe,
            first_dense_layers=lead,
            moe_every_n_layers=alternate,
            moe_ffn=random.choice((256, 1024, 4096)),
        )
    architecture = Architecture(
        name=kind, layers=layers, hidden=random.choice((512, 2048)), ffn=random.choice((256, 2048, 8192)), heads=8,
        kv_heads=8, head_dim=64, vocab=random.choice((2_000, 32_000)), moe=moe,
    )  # fmt: skip
    layout = Layout(
        0, 1, 1, pp, vpp, 1, 1, 1, random.choice((1, 4)), MICRO_BATCHES, 0, modules_of(random, kind)
    )
    if moe is not None and vpp > 1 and random.random() < 0.5:
        layout = replace(layout, dp=2, ep=2, zero=random.choice((0, 1)), ep_overlap=True)
    layout = replace(
        layout,
        num_microbatches=pp * random.randint(1, 3) if vpp > 1 else random.choice((2, pp - 1, pp, 3 * pp)),
    )
    return instance_of(random, architecture, layout), layout


def modules_of(random: Random, kind: str) -> Modules:
    """Most of the time none."""
    if random.random() < 0.7:
        return Modules()
    of = ("layernorm", "mlp") if kind == "dense" else ("layernorm", "mlp", "moe_act")
    return Modules(random.sample(of, random.randint(1, len(of))))


def instance_of(random: Random, architecture: Architecture, layout: Layout) -> Instance:
    """A problem that leaves nothing open but the stages."""
    gpu = load_accelerator(random.choice(("H800", "H20")))
    fabric = replace(Fabric.of(gpu), gpus_per_node=layout.num_gpus, domain=1)
    names = ("tp", "cp", "pp", "vpp", "dp", "ep", "etp", "micro_batch", "zero", "num_microbatches")
    allowed: dict[str, tuple[int | str, ...]] = {name: (getattr(layout, name),) for name in names}
    usual = random.choice((("none",), ("full",), ("none", "full"), ("none", "full")))
    usual = ("none",) if layout.ep_overlap else usual
    allowed["recompute"] = ("selective",) if layout.modules else usual
    allowed["ep_overlap"] = (layout.ep_overlap,)
    if layout.modules:
        allowed["recompute_modules"] = ("+".join(sorted(layout.modules)),)
    return Instance(
        architecture, load_stack(random.choice(("megatron-core", "zero-bubble"))), 1e10,
        random.choice((1024, 4096)), layout.batch, layout.batch, (Pool(gpu, fabric, 1, 1, 1.0),),
        Limits(memory_headroom=0.0), narrowing=Narrowing(allowed), per_stage_recompute=random.random() < 0.5,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Packer:
    """Fills ranks of a 1F1B pipeline from the last to the first with as much as goes into memory and time."""

    instance: Instance
    layout: Layout
    rates: StageRates
    limit: float
    slowest: float
    uniform: int | None
    """Layers that every stage recomputes, or None where that differs by stage."""

    def layers(self) -> tuple[list[int], list[int]] | None:
        """Layers and recomputed layers of each rank, if they all have a place."""
        end, held, again = self.instance.architecture.layers, [], []
        for rank in reversed(range(self.layout.pp)):
            sizes = range(end - rank, 0, -1) if rank else [end]
            found = ((n, self.recomputed(rank, end - n, n)) for n in sizes)
            size, redone = next(((n, r) for n, r in found if r is not None), (0, 0))
            if not size:
                return None
            held.insert(0, size)
            again.insert(0, redone)
            end -= size
        return held, again

    def recomputed(self, rank: int, start: int, size: int) -> int | None:
        """The fewest layers whose recompute makes room for the rest; None where nothing does in time."""
        mode = modes_of(self.instance, self.layout)
        choices = {"none": [0], "all": [size]}.get(mode, range(size + 1))
        if mode == "some" and self.uniform is not None:
            choices = [min(self.uniform, size)]
        return next((again for again in choices if self.fits(rank, start, size, again)), None)

    def fits(self, rank: int, start: int, size: int, again: int) -> bool:
        pattern, kinds = self.instance.architecture.pattern(), self.instance.architecture.kinds
        held = np.array([pattern[start : start + size].count(kind) for kind in kinds])
        redone = np.array([pattern[start : start + again].count(kind) for kind in kinds])
        of, pp = self.rates, self.layout.pp
        flying = min(self.layout.num_microbatches, pp - rank)
        first, last = rank == 0, rank == pp - 1
        seconds = held @ of.work.kinds + redone @ of.recompute + first * of.work.first + last * of.work.last
        kept = flying * ((held - redone) @ of.kept.kinds + redone @ of.checkpoint)
        kept += first * (of.states.first + flying * of.kept.first) + last * (of.states.last + of.kept.last)
        buffers = max(of.working + (again > 0) * of.rebuilt, last * of.loss)
        needed = (held @ of.states.kinds + kept + buffers) * (1 + of.overhead) + of.fixed_bytes
        return bool(seconds <= self.slowest and needed <= self.limit)


def packed(
    random: Random, instance: Instance, layout: Layout, rates: StageRates
) -> tuple[list[int], list[int]] | None:
    """An assignment that packs well: random and as even as chunks must be, or the tightest that goes in."""
    a, total = instance.architecture, layout.pp * layout.vpp
    uniform = random.choice((0, 0, 1, 2)) if not instance.per_stage_recompute else None
    if layout.vpp > 1:
        return chunks(random, instance, layout, uniform)
    split = stage_split(a, layout.pp, 1, layout.num_microbatches, [1] * (total - 1) + [a.layers - total + 1])
    most = float(stage_memory(rates, split).max())
    slowest, limit = float(stage_time(rates, split).max()), most * random.uniform(0.05, 1.0)
    low, best = 0.0, None
    for _ in range(12):
        middle = (low + slowest) / 2
        found = Packer(instance, layout, rates, limit, middle, uniform).layers()
        low, slowest, best = (middle, slowest, best) if found is None else (low, middle, found)
    return best


def chunks(
    random: Random, instance: Instance, layout: Layout, uniform: int | None
) -> tuple[list[int], list[int]] | None:
    """Layers of the chunks of an interleaved pipeline."""
    layers = instance.architecture.layers
    if level_chunks(layers, layout.pp, layout.vpp) is None:
        return None
    held = plain_layers(layers, layout.pp, layout.vpp).tolist()
    mode = modes_of(instance, layout)
    if mode != "some":
        return held, [n * (mode == "all") for n in held]
    return held, [random.randint(0, n) if uniform is None else min(uniform, n) for n in held]


def case(seed: int) -> list[str]:
    """Bounds that an assignment beats, of a problem with no more memory than it needs."""
    random = Random(seed)
    instance, layout = large(random)
    rates, m = scalar_rates(instance, layout), layout.num_microbatches
    found = packed(random, instance, layout, rates)
    if found is None:
        return []
    split = stage_split(instance.architecture, layout.pp, layout.vpp, m, *found)
    limit = float(stage_memory(rates, split).max()) * (1 + 1e-12)
    step = float(step_time(rates, split, m, layout.pp, layout.vpp).total)
    slowest = float(stage_time(rates, split).max())
    bounds = {
        "slowest rank": (slowest, slowest_of(instance, layout, rates, limit)),
        **{name: (step, bound) for name, bound in step_bounds(with_room(instance, limit)).items()},
    }
    if "slowest of the pipeline" in bounds:
        bounds["slowest of the pipeline"] = slowest, bounds["slowest of the pipeline"][1]
    return [
        f"seed {seed}: {name} takes {bound} s at least, {found} of {layout} takes {taken} s"
        for name, (taken, bound) in bounds.items()
        if not bound <= taken * (1 + 1e-9)
    ]


def slowest_of(instance: Instance, layout: Layout, rates: StageRates, limit: float) -> float:
    uniform, mode = not instance.per_stage_recompute, modes_of(instance, layout)
    of = layout.pp, layout.vpp, layout.num_microbatches
    return least_slowest(StageProblem(instance.architecture, rates, *of, limit, mode, uniform))


def least_slowest(of: StageProblem) -> float:
    """Least seconds of the slowest rank; inf if nothing fits."""
    return min((case.slowest for case in cases_of(of)), default=float("inf"))


def step_bounds(instance: Instance) -> dict[str, float]:
    """Bounds on the step of the only candidate there is; inf where its pipeline fits no memory."""
    table = written_down(instance, know_memory=True)
    if not len(table.rows):
        return {"pipeline": np.inf}
    assert len(table.groups) == len(table.rows) == 1
    groups, rows = table.groups.rows, table.rows.rows
    return {
        "slowest of the pipeline": float(table.pipelines.slowest[groups.pipeline[0]]),
        "loose group": float(table.groups.bound[0]),
        "tight group": float(group_memory_bound(table.book, groups)[0]),
        "loose row": float(table.rows.bound[0]),
        "tight row": float(row_memory_bound(table.book, rows, uniform=False)[0]),
        **(
            {}
            if instance.per_stage_recompute
            else {"uniform row": float(row_memory_bound(table.book, rows, uniform=True)[0])}
        ),
    }


@pytest.mark.parametrize("block", range(4))
def test_no_assignment_that_packs_memory_well_beats_a_bound(block: int) -> None:
    wrong = [line for seed in range(block * 15, block * 15 + 15) for line in case(seed)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_no_assignment_of_many_more_that_packs_memory_well_beats_a_bound(block: int) -> None:
    wrong = [line for seed in range(1000 + block * 40, 1040 + block * 40) for line in case(seed)]
    assert not wrong, "\n".join(wrong)


def test_a_rank_may_hold_nothing_but_one_leading_layer() -> None:
    """Early ranks keep most in flight: dense layers that keep little fit there, where no other layer does."""
    random = Random(0)
    model = Architecture(
        name="leading", layers=72, hidden=512, ffn=256, heads=8, kv_heads=8, head_dim=64, vocab=2_000,
        moe=replace_model(mixture(random, 72), first_dense_layers=3, moe_every_n_layers=1),
    )  # fmt: skip
    layout = Layout(0, 1, 1, 24, 1, 1, 1, 1, 1, 48, 0)
    rates = scalar_rates(instance_of(random, model, layout), layout)
    none, light = np.array(0.0), np.array([0.1, 1.0])
    assert model.kinds == ("dense", "moe")
    rates = replace(
        rates, work=PerLayer(light * 0 + 1, none, none), states=PerLayer(light * 0.01, none, none),
        kept=PerLayer(light, none, none), working=none, loss=none, rebuilt=none, fixed_bytes=none,
    )  # fmt: skip
    # Rank r keeps 24 - r in flight, and one of 21 layers that are not leading takes what 21 in flight do.
    held = [1, 1, 1, *(21 // (24 - rank) for rank in range(3, 23)), 0]
    held[-1] = 72 - sum(held)
    split = stage_split(model, 24, 1, 48, held)
    limit = float(stage_memory(rates, split).max()) * (1 + 1e-12)
    bound = least_slowest(StageProblem(model, rates, 24, 1, 48, limit, "none", False))
    assert bound <= float(stage_time(rates, split).max())
