"""Brute force: every candidate and every stage assignment of a small problem, one by one.

Shares the cost model of one run with the planner and nothing else. The decisions' values are walked in
plain loops written from the rules that `planner.space` documents; there is no bound, no CP-SAT, and no
assumption on which number of micro-batches or which split is best.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import chain, combinations, groupby, product
from math import prod
from random import Random
from typing import Any

import numpy as np
from lasting import lasting, spares
from random_problems import problem, with_room

from costmodel.architecture import Architecture
from costmodel.layer import layer_cost
from costmodel.memory.activations import layer_bytes
from costmodel.memory.layer_memory import layer_memory
from costmodel.pipeline import micro_batches_in_flight, stage_split
from costmodel.rates import stage_rates
from costmodel.run import Run
from costmodel.stack import Stack
from costmodel.stage import PerLayer, StageRates, StageSplit, stage_memory
from costmodel.step import assumed_rates, step_time
from planner.instance import Instance, Pool

DAY = 86400.0
MOST_ASSIGNMENTS = 40_000
Keep = Callable[[Any, Any, Any], Any]
"""Of a candidate and of layers and recomputed layers, (assignments, stages) each: which assignments count."""
CELLS = 1 << 20
"""Assignments x ranks that are priced at once."""
MICRO_BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
Modules = frozenset[str]
MEGATRON = ("core_attn", "layernorm", "mla_up_proj", "mlp", "moe", "moe_act", "shared_experts")
"""Modules that Megatron recomputes, alone or together; `moe` repeats the activation and the shared experts as
well, and is not named beside them."""
FREES = 0.01
"""Modules that free less of what a layer keeps are not worth a look, unless the problem names them."""


@dataclass(frozen=True, slots=True)
class Layout:
    """One candidate: every decision but the stages."""

    pool: int
    tp: int
    cp: int
    pp: int
    vpp: int
    dp: int
    ep: int
    etp: int
    micro_batch: int
    num_microbatches: int
    zero: int
    modules: Modules = frozenset()
    """What selective recompute repeats in every layer."""
    ep_overlap: bool = False
    """Whether the experts' all-to-all runs behind the compute of another micro-batch."""
    zero_scope: int = 0
    """1: the ranks of a node share the states, and the nodes hold replicas of them."""

    @property
    def num_gpus(self) -> int:
        return self.tp * self.cp * self.pp * self.dp

    @property
    def batch(self) -> int:
        return self.micro_batch * self.num_microbatches * self.dp

    @property
    def filled(self) -> bool:
        """Whether there are as many micro-batches as pipeline ranks."""
        return self.num_microbatches >= self.pp


@dataclass(frozen=True, slots=True)
class Answer:
    """The best plan of one candidate."""

    layout: Layout
    layers: tuple[int, ...]
    recomputed: tuple[int, ...]
    step: float
    memory: float
    seconds: float
    dollars: float
    kwh: float = 0.0
    tonnes: float = 0.0


# ---------------------------------------------------------------------------------------------------
# Candidates


def divides(n: int, *of: int) -> bool:
    return all(value % n == 0 for value in of)


def layouts(instance: Instance) -> Iterator[Layout]:
    executed = ways(instance)
    for index in range(len(instance.pools)):
        for tp, cp, pp, dp in ranks(instance, index):
            for vpp, zero, (ep, etp), (micro_batch, m), scope in product(
                chunks(instance, pp),
                zero_stages(instance, pp, dp * cp),
                expert_groups(instance, tp, tp * cp * dp),
                batches(instance, dp),
                (0, 1),
            ):
                if vpp > 1 and m % pp:
                    continue
                if (
                    zero > 1 and pp > 1 and vpp == 1
                ):  # a chunk that the pipeline never leaves is never reduced
                    continue
                sizes = (index, tp, cp, pp, vpp, dp, ep, etp, micro_batch, m, zero)
                bare = Layout(*sizes, zero_scope=scope)
                if not scoped(instance, bare):
                    continue
                for modules, overlap in executed:
                    layout = replace(bare, modules=modules, ep_overlap=overlap)
                    if launches(instance, layout) and overlaps(layout):
                        yield layout


def allowed(instance: Instance, decision: str, value: int | str) -> bool:
    values = instance.narrowing.allowed.get(decision)
    return values is None or value in values


def scoped(instance: Instance, of: Layout) -> bool:
    """Whether the states may be shared as a candidate has it."""
    if not allowed(instance, "zero_scope", ("full", "node")[of.zero_scope]):
        return False
    if of.zero_scope == 0:
        return True
    if of.zero == 0 or instance.framework in ("deepspeed", "nanotron"):
        return False
    node = instance.pools[of.pool].fabric.domain
    # Ranks of a stage are numbered tp first, then cp, then dp; who holds the same dense weights shares.
    domains: dict[int, list[int]] = {}
    for rank in range(of.tp * of.cp * of.dp):
        if rank % of.tp == 0:
            domains.setdefault(rank // node, []).append(rank // of.tp)
    alike = {len(members) for members in domains.values()}
    if len(domains) < 2 or len(alike) > 1 or min(alike) < 2:
        return False
    # Replicas of the sequence and groups of experts lie in one node as a whole.
    return all(members[0] % of.cp == 0 for members in domains.values()) and node % (of.ep * of.etp) == 0


def ranks(instance: Instance, index: int) -> Iterator[tuple[int, int, int, int]]:
    """(tp, cp, pp, dp) that fill whole nodes of a pool."""
    pool, a = instance.pools[index], instance.architecture
    must = [a.heads, a.ffn, pool.fabric.domain]
    if a.mla is None:
        must.append(a.kv_heads)
    if a.moe and a.moe.shared_expert_ffn:
        must.append(a.moe.shared_expert_ffn)
    there = pool.nodes or pool.max_nodes
    for nodes in range(pool.min_nodes, there + 1):
        gpus = nodes * pool.fabric.gpus_per_node
        if nodes + spares(pool, nodes, gpus) > there:
            continue
        for tp, pp in product(range(1, pool.fabric.domain + 1), range(1, a.layers + 1)):
            for cp in (1, 2, 4, 8, 16):
                if cp > 1 and (instance.seq_len % (2 * cp) or instance.seq_len < 1024 * cp):
                    continue
                if not divides(tp, *must) or gpus % (tp * cp * pp):
                    continue
                dp = gpus // (tp * cp * pp)
                values = {"tp": tp, "cp": cp, "pp": pp, "dp": dp}
                if all(allowed(instance, name, value) for name, value in values.items()):
                    yield tp, cp, pp, dp


def chunks(instance: Instance, pp: int) -> list[int]:
    """Virtual stages a rank: every one holds a layer or more; none without a pipeline."""
    layers = instance.architecture.layers
    most = 1 if pp == 1 else layers // pp + 1
    values = [vpp for vpp in range(1, most + 1) if vpp == 1 or splits(layers, pp, vpp)]
    return [vpp for vpp in values if allowed(instance, "vpp", vpp)]


def zero_stages(instance: Instance, pp: int, shards: int) -> list[int]:
    beside_pipeline = [0, 1, 2] if instance.stack.data_parallel.reduces_by_round else [0, 1]
    stages = [0] if shards == 1 else beside_pipeline if pp > 1 else [0, 1, 2, 3]
    return [zero for zero in stages if allowed(instance, "zero", zero)]


def expert_groups(instance: Instance, tp: int, ranks_of_stage: int) -> list[tuple[int, int]]:
    moe = instance.architecture.moe
    if moe is None:
        groups = [(1, 1)]
    else:
        etps = {1} | ({tp} if moe.moe_ffn % tp == 0 else set())
        groups = [
            (ep, etp) for ep in range(1, moe.experts + 1) if moe.experts % ep == 0 for etp in sorted(etps)
        ]
    return [
        (ep, etp)
        for ep, etp in groups
        if ranks_of_stage % (ep * etp) == 0 and allowed(instance, "ep", ep) and allowed(instance, "etp", etp)
    ]


def batches(instance: Instance, dp: int) -> Iterator[tuple[int, int]]:
    """(micro_batch, num_microbatches) whose global batch is allowed."""
    for micro_batch in instance.narrowing.allowed.get("micro_batch", MICRO_BATCHES):
        for m in range(1, instance.max_batch + 1):
            fits = instance.min_batch <= int(micro_batch) * m * dp <= instance.max_batch
            if fits and allowed(instance, "num_microbatches", m):
                yield int(micro_batch), m


def ways(instance: Instance) -> list[tuple[Modules, bool]]:
    """(modules, overlap of the experts' traffic) that the problem and its framework have, whatever the sizes."""
    overlap = (False, True) if instance.architecture.moe and instance.framework in OVERLAPS else (False,)
    return [
        (modules, hidden)
        for modules in (Modules(), *module_sets(instance))
        for hidden in overlap
        if modes(instance, modules, hidden)
        and (instance.architecture.moe is None or allowed(instance, "ep_overlap", hidden))
        and not (hidden and "moe" in modules)
    ]


def overlaps(of: Layout) -> bool:
    """Whether the sizes go with overlap: there is traffic, and in a pipeline a micro-batch to hide it behind."""
    return not of.ep_overlap or (of.ep > 1 and (of.pp == 1 or of.vpp > 1))


def modes(instance: Instance, modules: Modules, ep_overlap: bool = False) -> str:
    """How many layers may be recomputed in full, '' where the problem excludes it: none, some, all, or whole
    (all or none). None beside modules or overlap."""
    permitted = instance.narrowing.allowed.get("recompute", ("none", "selective", "full"))
    if modules:
        return "none" if "selective" in permitted else ""
    if ep_overlap:
        return "none" if "none" in permitted else ""
    if "none" in permitted and "full" in permitted:
        return "whole" if instance.framework in ALL_OR_NONE else "some"
    if "none" in permitted:
        return "none"
    return "all" if "full" in permitted else ""


def modes_of(instance: Instance, of: Layout) -> str:
    """The same of a candidate."""
    return modes(instance, of.modules, of.ep_overlap)


def module_sets(instance: Instance) -> list[Modules]:
    """Every set that selective recompute may name: those of the problem, or all of modules that free enough."""
    if instance.framework == "torchtitan":
        every = [Modules({"per_op"})]
    elif instance.framework in ("deepspeed", "nanotron"):
        every = []
    else:
        every = [
            Modules(names)
            for names in chain.from_iterable(combinations(MEGATRON, n) for n in range(1, len(MEGATRON) + 1))
            if "moe" not in names or not {"moe_act", "shared_experts"} & set(names)
        ]
    if "recompute_modules" in instance.narrowing.allowed or instance.framework == "torchtitan":
        return [of for of in every if allowed(instance, "recompute_modules", "+".join(sorted(of)))]
    worth = {name for name in MEGATRON if any(frees(instance, pool, name) for pool in instance.pools)}
    return [of for of in every if of <= worth]


def frees(instance: Instance, pool: Pool, module: str) -> bool:
    """Whether recomputing a module alone frees enough of what a layer of some kind keeps, on one GPU."""
    names = ("tp", "cp", "pp", "vpp", "dp", "ep", "etp", "micro_batch", "num_microbatches", "zero")
    run = Run(
        architecture=instance.architecture, gpu=pool.gpu, fabric=pool.fabric, stack=instance.stack,
        seq_len=instance.seq_len, precision=pool.precision, recompute_modules=Modules(),
        **dict.fromkeys(names, 1),
    )  # fmt: skip
    again = replace(run, recompute_modules=Modules({module}))
    return any(
        layer_bytes(again, kind) <= (1 - FREES) * layer_bytes(run, kind)
        for kind in instance.architecture.kinds
    )


# ---------------------------------------------------------------------------------------------------
# What a framework can launch, one plan at a time

ALL_OR_NONE = ("torchtitan", "deepspeed", "nanotron")
"""Frameworks that recompute every layer or none."""
EVEN = ("deepspeed", "nanotron")
"""Frameworks whose stages hold the same number of layers."""
OVERLAPS = ("megatron", "any")
"""Frameworks that can hide the experts' traffic."""


def launches(instance: Instance, of: Layout) -> bool:
    """Whether the instance's framework can launch a candidate; of torchtitan, if it has the model."""
    a, plain = instance.architecture, of.tp == of.cp == of.pp == 1
    precision, low = instance.pools[of.pool].precision, instance.stack.data_parallel
    if instance.framework == "megatron" and of.ep_overlap and of.zero > 1:
        return False  # Megatron-FSDP hides no expert traffic
    waits = instance.stack.pipeline.exposed_interleaved >= 1
    if instance.framework == "megatron" and of.vpp > 1 and of.pp < 3 and waits:
        return False  # interleaved stages of two ranks need transfers that overlap
    if precision != "bf16" and instance.framework == "megatron":
        # FP8 parameters are gathered from sharded states.
        return of.zero > 0 or low.low_precision_parameter_bytes > 1
    if precision != "bf16" and instance.framework != "any":
        return False
    simple = a.moe is None and a.mla is None
    if instance.framework == "torchtitan":
        return torchtitan_launches(instance, of)
    if instance.framework == "nanotron":
        alone = of.cp == of.vpp == 1 and not of.modules and a.layers % of.pp == 0
        return alone and simple and of.zero < 2 and a.heads * a.head_dim == a.hidden
    if instance.framework == "deepspeed":
        experts = a.moe is not None and a.kinds == ("moe",) and not a.moe.shared_expert_ffn
        mixtral = experts and plain and a.mla is None and of.ep == of.etp == 1
        alone = of.cp == of.vpp == 1 and not of.modules and a.layers % of.pp == 0
        return alone and (simple or mixtral)
    return True


def torchtitan_launches(instance: Instance, of: Layout) -> bool:
    """FSDP: ZeRO 2 or 3, with a pipeline 1; without other parallelism of dense models also DDP."""
    a, replicas = instance.architecture, of.dp * of.cp
    if of.cp > 1 and a.mla is not None:
        return False
    if of.tp > 1 and not instance.stack.tensor_parallel.sequence_parallel:
        return False
    pieces = of.tp * (2 * of.cp if of.cp > 1 else 1)
    if instance.seq_len % pieces or (a.moe is not None and (of.etp > 1 or of.ep % of.tp)):
        return False
    if replicas == 1:
        return of.num_gpus == 1
    if of.pp > 1:
        return of.zero == 1
    return of.zero > 1 or (of.zero == 0 and of.tp == of.cp == 1 and a.moe is None)


def even_alone(instance: Instance, layout: Layout, of: Assigned) -> Assigned:
    """Only the assignments in which every stage holds the same number of layers."""
    recompute = modes_of(instance, layout)
    args = (instance.architecture.layers, layout.pp, layout.vpp, recompute, not instance.per_stage_recompute)
    held = assignments(*args)[0]
    even = held.min(axis=1) == held.max(axis=1)
    return Assigned(np.where(even, of.step, np.inf), np.where(even, of.memory, np.inf))


# ---------------------------------------------------------------------------------------------------
# Stage assignments


def compositions(total: int, ranges: tuple[tuple[int, int], ...]) -> Iterator[tuple[int, ...]]:
    """All ways to hand out `total` layers within each stage's range."""
    if not ranges:
        if total == 0:
            yield ()
        return
    (low, high), rest = ranges[0], ranges[1:]
    for n in range(low, min(high, total) + 1):
        for others in compositions(total - n, rest):
            yield (n, *others)


def splits(layers: int, pp: int, vpp: int) -> list[tuple[int, ...]]:
    """Any split with a layer a stage; interleaved, a chunk has as many layers on every rank.

    But for the first and the last stage, which hold what is left; chunks are as even as can be, the larger ones
    last, and no longer than it takes for all layers.
    """
    if vpp == 1:
        return list(compositions(layers, ((1, layers),) * pp))
    a_rank = next(n for n in range(layers + 1) if n * pp >= layers)
    chunks = [a_rank // vpp + (chunk >= vpp - a_rank % vpp) for chunk in range(vpp)]
    split = [n for n in chunks for _ in range(pp)]
    middle, found = split[1:-1], []
    for first in range(split[0] + 1):
        last = layers - sum(middle) - first
        # An end may hold no layer at all: nothing but the embedding, or the head.
        if 0 <= last <= split[-1] and min(chunks) >= 1:
            found.append((first, *middle, last))
    return found


@cache
def assignments(layers: int, pp: int, vpp: int, recompute: str, uniform: bool) -> tuple[Any, Any]:
    """Every (layers, recomputed) of the virtual stages: two (K, stages) arrays."""
    held, again = [], []
    for split in splits(layers, pp, vpp):
        if recompute == "none":
            choices = [(0,) * len(split)]
        elif recompute == "all":
            choices = [split]
        elif recompute == "whole":
            choices = [(0,) * len(split), split]
        elif uniform:
            choices = sorted({tuple(min(each, n) for n in split) for each in range(max(split) + 1)})
        else:
            choices = list(product(*(range(n + 1) for n in split)))
        held += [split] * len(choices)
        again += choices
    return np.array(held, dtype=np.int64), np.array(again, dtype=np.int64)


@cache
def num_assignments(layers: int, pp: int, vpp: int, recompute: str, uniform: bool) -> int:
    """An upper limit on their number, without writing them down."""
    found = splits(layers, pp, vpp)
    if recompute in ("none", "all", "whole"):
        return 2 * len(found)
    return sum(max(split) + 1 if uniform else prod(n + 1 for n in split) for split in found)


def of_kind(architecture: Architecture, start: Any, count: Any) -> Any:
    """Layers of each kind among `count` layers from `start` on, counted one position at a time."""
    kinds = []
    for kind in architecture.kinds:
        total = np.zeros_like(start)
        for position, other in enumerate(architecture.pattern()):
            if other == kind:
                total += (start <= position) & (position < start + count)
        kinds.append(total)
    return np.stack(kinds, axis=-1)


def all_splits(
    architecture: Architecture, pp: int, vpp: int, m: int, recompute: str, uniform: bool
) -> StageSplit:
    """`costmodel.pipeline.stage_split` of every assignment at once: (K, ranks, kinds)."""
    in_flight = micro_batches_in_flight(pp, vpp, m)
    return splits_in_flight(architecture, tuple(map(tuple, in_flight.tolist())), recompute, uniform)


@cache
def splits_in_flight(
    architecture: Architecture, in_flight: tuple[tuple[int, ...], ...], recompute: str, uniform: bool
) -> StageSplit:
    pp, vpp = len(in_flight), len(in_flight[0])
    held, again = assignments(architecture.layers, pp, vpp, recompute, uniform)
    start = np.cumsum(held, axis=1) - held
    by_kind, redone = of_kind(architecture, start, held), of_kind(architecture, start, again)
    count, kinds = len(held), len(architecture.kinds)
    rank_kinds = {name: np.zeros((count, pp, kinds), dtype=np.int64) for name in ("n", "r", "f", "g")}
    for stage in range(pp * vpp):
        rank, flying = stage % pp, in_flight[stage % pp][stage // pp]
        rank_kinds["n"][:, rank] += by_kind[:, stage]
        rank_kinds["r"][:, rank] += redone[:, stage]
        rank_kinds["f"][:, rank] += flying * (by_kind[:, stage] - redone[:, stage])
        rank_kinds["g"][:, rank] += flying * redone[:, stage]
    first, last = np.zeros(pp, dtype=np.int64), np.zeros(pp, dtype=np.int64)
    first[0], last[-1] = 1, 1
    return StageSplit(
        layers=rank_kinds["n"],
        recomputed=rank_kinds["r"],
        in_flight=rank_kinds["f"],
        in_flight_recomputed=rank_kinds["g"],
        first_in_flight=first * in_flight[0][0],
        first=first,
        last=last,
        total_layers=rank_kinds["n"].sum(axis=1),
        total_recomputed=rank_kinds["r"].sum(axis=1),
    )


@dataclass(frozen=True, slots=True)
class Assigned:
    """Step and peak memory of every assignment of one candidate."""

    step: Any
    memory: Any


def widened(rates: StageRates) -> StageRates:
    """Rates of rows with an axis for assignments."""

    def wide(value: Any, kinds: bool = False) -> Any:
        if isinstance(value, float):
            return value
        return value[:, None, :] if kinds else value[:, None]

    found = {}
    for name in StageRates.__dataclass_fields__:
        value = getattr(rates, name)
        if isinstance(value, PerLayer):
            found[name] = PerLayer(wide(value.kinds, True), wide(value.first), wide(value.last))
        else:
            found[name] = wide(value, name in ("recompute", "checkpoint"))
    return StageRates(**found)


def assigned(
    architecture: Architecture, rates: StageRates, layouts: list[Any], recompute: str, uniform: bool
) -> list[Assigned]:
    """Prices every assignment of candidates with the same pipeline; each has pp, vpp and num_microbatches.

    `rates` are rows, one a candidate.
    """
    one, found = layouts[0], []
    split = all_splits(architecture, one.pp, one.vpp, one.num_microbatches, recompute, uniform)
    size = max(CELLS // split.layers.size, 1)
    for start in range(0, len(layouts), size):
        part = layouts[start : start + size]
        of = widened(entry(rates, slice(start, start + size)))
        m = np.array([[each.num_microbatches] for each in part])
        step = step_time(of, split, m, one.pp, one.vpp).total
        found += [Assigned(*each) for each in zip(step, stage_memory(of, split).max(axis=-1), strict=True)]
    return found


# ---------------------------------------------------------------------------------------------------
# One problem


def run_of(instance: Instance, layouts: list[Layout]) -> Run:
    """The cost model's noun for candidates that share pool and recompute family."""
    pool, one = instance.pools[layouts[0].pool], layouts[0]
    names = ("tp", "cp", "pp", "vpp", "dp", "ep", "etp", "micro_batch", "num_microbatches", "zero")
    columns = {name: np.array([getattr(layout, name) for layout in layouts]) for name in names}
    columns["shard_ranks"] = np.array([shard_ranks(pool.fabric.domain, layout) for layout in layouts])
    return Run(
        architecture=instance.architecture,
        gpu=pool.gpu,
        fabric=pool.fabric,
        stack=stack_of(instance, one.ep_overlap),
        seq_len=instance.seq_len,
        precision=pool.precision,
        recompute_modules=one.modules,
        **columns,
    )


def stack_of(instance: Instance, ep_overlap: bool) -> Stack:
    """The profile with the experts' traffic hidden or in the open, as a candidate has it."""
    experts = instance.stack.expert_parallel.model_copy(update={"overlap": ep_overlap})
    return instance.stack.model_copy(update={"expert_parallel": experts})


def shard_ranks(domain: int, of: Layout) -> float:
    """Ranks of one stage in a domain that hold the same dense weights, where only they share the states."""
    return float(len(range(0, domain, of.tp))) if of.zero_scope else np.inf


def rates_of(instance: Instance, run: Run) -> StageRates:
    rates = stage_rates(run)
    if instance.assume_mfu is None:
        return rates
    return assumed_rates(rates, run, instance.assume_mfu, instance.nominal_parameters)


def scalar_rates(instance: Instance, layout: Layout) -> StageRates:
    """Rates of one candidate from scalars."""
    run = run_of(instance, [layout])
    names = ("tp", "cp", "pp", "vpp", "dp", "ep", "etp", "micro_batch", "num_microbatches", "zero")
    near = shard_ranks(run.fabric.domain, layout)
    scalars = {name: getattr(layout, name) for name in names} | {"shard_ranks": near}
    return rates_of(instance, replace(run, **scalars))


def entry(rates: StageRates, index: Any) -> StageRates:
    """Rates of one row of many, or of some."""

    def pick(value: Any) -> Any:
        if isinstance(value, PerLayer):
            return PerLayer(*(np.asarray(getattr(value, f.name))[index] for f in fields(PerLayer)))
        return value if isinstance(value, float) else np.asarray(value)[index]

    return StageRates(**{f.name: pick(getattr(rates, f.name)) for f in fields(StageRates)})


def shape_of(of: Layout) -> tuple[int, ...]:
    """What candidates have in common whose assignments can be priced together: stages, micro-batches in flight."""
    return of.pp, of.vpp, min(of.num_microbatches, of.pp * min(of.vpp, 2))


def undominated(instance: Instance, found: list[Layout]) -> list[Layout]:
    """The candidates whose modules no other set makes needless, of those with the same cost of a layer otherwise.

    A set is needless where another one takes no longer and keeps no more, in every kind of layer and at the end
    of the model; of sets that are alike in all of it the one with the fewest modules, the first by name, stays.
    """
    rivals: dict[tuple[Any, ...], list[Modules]] = {}
    for layout in found:
        sets = rivals.setdefault(layer_key(layout), [])
        if layout.modules and layout.modules not in sets:
            sets.append(layout.modules)
    needed = {
        key: needed_sets(
            {of: burdens(instance, key, of) for of in sorted(sets, key=lambda of: (len(of), sorted(of)))}
        )
        for key, sets in rivals.items()
    }
    return [of for of in found if not of.modules or of.modules in needed[layer_key(of)]]


def layer_key(of: Layout) -> tuple[Any, ...]:
    return of.pool, of.tp, of.cp, of.ep, of.etp, of.micro_batch, of.ep_overlap


def burdens(instance: Instance, key: tuple[Any, ...], modules: Modules) -> list[float]:
    """Seconds and kept bytes of each kind of layer and of the last stage, with some modules recomputed."""
    pool, tp, cp, ep, etp, micro_batch, overlap = key
    sizes = (pool, tp, cp, 1, 1, ep * etp, ep, etp, micro_batch, 1, 0)
    run = run_of(instance, [Layout(*sizes, modules=modules, ep_overlap=overlap)])
    cost, memory = layer_cost(run), layer_memory(run)
    parts = (cost.total, cost.last, memory.kept.kinds, memory.kept.last)
    return [float(value) for part in parts for value in np.asarray(part).reshape(-1)]


def needed_sets(sets: dict[Modules, list[float]]) -> set[Modules]:
    """Sets that no other beats or equals; of equal ones the first."""

    def no_more(one: Modules, other: Modules) -> bool:
        return all(a <= b * (1 + 1e-12) for a, b in zip(sets[one], sets[other], strict=True))

    needed: list[Modules] = []
    for of in sets:
        if not any(
            no_more(other, of) and (other in needed or not no_more(of, other))
            for other in sets
            if other != of
        ):
            needed.append(of)
    return set(needed)


@dataclass(slots=True)
class Oracle:
    """All candidates of a problem with the step and memory of all their assignments.

    Memory limits and the limits on days and dollars are applied afterwards, so that one table answers
    for all of them.
    """

    instance: Instance
    layouts: list[Layout]
    priced: list[Assigned]
    known: list[Layout] | None = None
    """`needed`, once it was asked for."""

    @property
    def needed(self) -> list[Layout]:
        """The candidates that count, without those whose modules another set makes needless."""
        if self.known is None:
            self.known = undominated(self.instance, self.layouts)
        return self.known

    @classmethod
    def of(cls, instance: Instance, most: int, most_assignments: int) -> Oracle | None:
        """None if there are more than so many candidates, or assignments of all of them together."""
        found: list[Layout] = []
        uniform, left = not instance.per_stage_recompute, most_assignments
        for layout in layouts(instance):
            found.append(layout)
            recompute, layers = modes_of(instance, layout), instance.architecture.layers
            left -= num_assignments(layers, layout.pp, layout.vpp, recompute, uniform)
            if len(found) > most or left < 0:
                return None
        families: dict[tuple[Any, ...], list[Layout]] = {}
        for layout in sorted(found, key=shape_of):
            families.setdefault((layout.pool, layout.modules, layout.ep_overlap), []).append(layout)
        priced: list[Assigned] = []
        for family in families.values():
            rates, start = rates_of(instance, run_of(instance, family)), 0
            recompute = modes_of(instance, family[0])
            for _, members in groupby(family, key=shape_of):
                part = list(members)
                rows = entry(rates, slice(start, start + len(part)))
                priced += assigned(instance.architecture, rows, part, recompute, uniform)
                start += len(part)
        ordered = list(chain.from_iterable(families.values()))
        if instance.framework in EVEN:
            priced = [even_alone(instance, *each) for each in zip(ordered, priced, strict=True)]
        return cls(instance, ordered, priced)

    def memory_range(self) -> tuple[float, float]:
        """The leanest assignment of all, and the fattest of the fastest ones."""
        low = min(float(of.memory.min()) for of in self.priced)
        return low, max(float(of.memory[of.step.argmin()]) for of in self.priced)

    def answers(self, instance: Instance, keep: Keep | None = None) -> list[Answer]:
        """The fastest assignment of each candidate that fits its GPU's memory, days and dollars aside.

        `keep` says which of a candidate's assignments count.
        """
        found = []
        for layout, of in zip(self.layouts, self.priced, strict=True):
            pool = instance.pools[layout.pool]
            room = pool.gpu.memory.driver * (1 - instance.limits.memory_headroom)
            recompute = modes_of(instance, layout)
            held, again = assignments(
                instance.architecture.layers,
                layout.pp,
                layout.vpp,
                recompute,
                not instance.per_stage_recompute,
            )
            fits = of.memory <= room
            if keep is not None:
                fits = fits & keep(layout, held, again)
            step = np.where(fits, of.step, np.inf)
            best = int(step.argmin())
            if not np.isfinite(step[best]):
                continue
            run = lasting(instance, layout, float(step[best]))
            if run.kept > run.room:
                continue
            layers, recomputed = tuple(held[best].tolist()), tuple(again[best].tolist())
            figures = (
                float(step[best]),
                float(of.memory[best]),
                run.seconds,
                run.dollars,
                run.kwh,
                run.tonnes,
            )
            found.append(Answer(layout, layers, recomputed, *figures))
        return found


def within(instance: Instance, answers: list[Answer]) -> list[Answer]:
    """Answers that meet deadline and budget."""
    limits = instance.limits
    return [
        of
        for of in answers
        if (limits.deadline is None or of.seconds <= limits.deadline)
        and (limits.budget is None or of.dollars <= limits.budget)
        and (limits.energy is None or of.kwh <= limits.energy)
        and (limits.carbon is None or of.tonnes <= limits.carbon)
    ]


def objective(instance: Instance, seconds: float, dollars: float) -> tuple[float, ...]:
    """What is minimised, most important first; a weighted sum is one number in dollars."""
    values = {"cost": dollars, "time": seconds}
    if instance.lexicographic:
        return tuple(values[name] for name, _ in instance.objective)
    values["time"] = seconds / DAY
    return (sum(values[name] * weight for name, weight in instance.objective),)


def scalar_step(instance: Instance, answer: Answer) -> tuple[float, float]:
    """Step and memory of an answer, from scalars and `costmodel.pipeline.stage_split`."""
    of = answer.layout
    split = stage_split(
        instance.architecture, of.pp, of.vpp, of.num_microbatches, answer.layers, answer.recomputed
    )
    rates = scalar_rates(instance, of)
    step = step_time(rates, split, of.num_microbatches, of.pp, of.vpp).total
    return float(step), float(stage_memory(rates, split).max())


# ---------------------------------------------------------------------------------------------------
# Random problems with limits that bind


def small_problem(random: Random, most: int = 700, make: Callable[[Random], Instance] = problem) -> Oracle:
    """A random problem that brute force gets through, with every assignment priced."""
    while True:
        oracle = Oracle.of(make(random), most, MOST_ASSIGNMENTS)
        if oracle is not None and oracle.layouts:
            return oracle


def with_limits(random: Random, oracle: Oracle) -> Instance:
    """Memory that binds, and days and dollars that some, most or no plans meet."""
    low, high = oracle.memory_range()
    instance = oracle.instance
    share = random.choice((-0.02, 0.02, 0.1, 0.3, 0.6, 1.1))
    room = (low + share * (high - low)) / (1 - instance.limits.memory_headroom)
    instance = with_room(instance, room * 1.000123)
    seconds = sorted(answer.seconds for answer in oracle.answers(instance)) or [1.0]
    dollars = sorted(answer.dollars for answer in oracle.answers(instance)) or [1.0]
    limits = instance.limits
    if random.random() < 0.5:
        limits = replace(limits, deadline=quantile(random, seconds))
    if random.random() < 0.5:
        limits = replace(limits, budget=quantile(random, dollars))
    return replace(instance, limits=limits)


def quantile(random: Random, values: list[float]) -> float:
    """A little more than one of the values, a small one more often; now and then less than all."""
    if random.random() < 0.1:
        return values[0] * 0.97
    return values[int(len(values) * random.random() ** 3)] * 1.00037
