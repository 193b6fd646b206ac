"""Every plan on two pools of a small problem, walked in plain loops written from the rules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations, permutations

from lasting import spares
from oracle import MICRO_BATCHES, Modules, chunks, ways

from planner.instance import Instance


@dataclass(frozen=True, slots=True)
class MixedLayout:
    """One mixed plan but for its stages."""

    form: str
    pools: tuple[int, int]
    """Of stages, the first has the first ranks; of replicas, in the order of the problem."""
    tp: int
    cp: int
    ep: int
    etp: int
    pp: int
    split: int
    """Pipeline ranks on the first pool; 0 for replicas."""
    dp: tuple[int, int]
    """Replicas of each pool; of stages the same twice."""
    micro_batch: int
    num_microbatches: tuple[int, int]
    zero: int
    modules: Modules = frozenset()
    """What selective recompute repeats in every layer."""
    vpp: int = 1

    @property
    def ranks(self) -> tuple[int, int]:
        """Pipeline ranks on each pool."""
        return (self.split, self.pp - self.split) if self.form == "stages" else (self.pp, self.pp)

    @property
    def num_gpus(self) -> tuple[int, int]:
        return (
            self.tp * self.cp * self.dp[0] * self.ranks[0],
            self.tp * self.cp * self.dp[1] * self.ranks[1],
        )

    @property
    def replicas(self) -> int:
        return self.dp[0] if self.form == "stages" else sum(self.dp)

    @property
    def batch(self) -> int:
        pairs = list(zip(self.dp, self.num_microbatches, strict=True))[: 1 if self.form == "stages" else 2]
        return self.micro_batch * sum(dp * m for dp, m in pairs)


def layouts(instance: Instance) -> Iterator[MixedLayout]:
    """Every mixed plan, both forms."""
    assert instance.mixing is not None
    permits = instance.narrowing.permits
    usable = [i for i, pool in enumerate(instance.pools) if permits("gpu", pool.gpu.name)]
    if not permits("zero_scope", "full"):
        return
    if "stages" in instance.mixing.forms:
        for pair in permutations(usable, 2):
            yield from stage_layouts(instance, pair) if goes_together(instance, pair) else ()
    if "replicas" in instance.mixing.forms:
        for pair in combinations(usable, 2):
            yield from replica_layouts(instance, pair) if goes_together(instance, pair) else ()


def goes_together(instance: Instance, pair: tuple[int, int]) -> bool:
    """Whether pools are different nodes and train in one precision."""
    first, second = (instance.pools[index] for index in pair)
    return first.entry != second.entry and first.precision == second.precision


def stage_layouts(instance: Instance, pair: tuple[int, int]) -> Iterator[MixedLayout]:
    first, second = (node_counts(instance, index) for index in pair)
    for tp, cp, ep, etp, micro_batch in layer_values(instance, pair):
        for pp in range(2, instance.architecture.layers + 1):
            for split in range(1, pp) if instance.narrowing.permits("pp", pp) else ():
                for gpus, nodes in first.items():
                    dp, rest = divmod(gpus, tp * cp * split)
                    others = tp * cp * dp * (pp - split)
                    if rest or others not in second or (tp * cp * dp) % (ep * etp):
                        continue
                    if not fills(instance, dp, gpus + others, nodes + second[others]):
                        continue
                    for m, zero in (
                        (m, zero)
                        for m in range(1, instance.max_batch // (micro_batch * dp) + 1)
                        for zero in zeros(instance, pair, dp * cp)
                    ):
                        yield from made(
                            instance,
                            MixedLayout(
                                "stages",
                                pair,
                                tp,
                                cp,
                                ep,
                                etp,
                                pp,
                                split,
                                (dp, dp),
                                micro_batch,
                                (m, m),
                                zero,
                            ),
                        )


def replica_layouts(instance: Instance, pair: tuple[int, int]) -> Iterator[MixedLayout]:
    first, second = (node_counts(instance, index) for index in pair)
    for tp, cp, ep, etp, micro_batch in layer_values(instance, pair):
        for pp in range(1, instance.architecture.layers + 1):
            for gpus, nodes in first.items() if instance.narrowing.permits("pp", pp) else ():
                for others, more in second.items():
                    unit, group = tp * cp * pp, ep * etp
                    if gpus % unit or others % unit:
                        continue
                    dp = gpus // unit, others // unit
                    if (tp * cp * dp[0]) % group or (tp * cp * dp[1]) % group:
                        continue
                    if not fills(instance, sum(dp), gpus + others, nodes + more):
                        continue
                    for pieces in micro_batch_pairs(instance, micro_batch, dp):
                        for zero in zeros(instance, pair, sum(dp) * cp):
                            yield from made(
                                instance,
                                MixedLayout(
                                    "replicas",
                                    pair,
                                    tp,
                                    cp,
                                    ep,
                                    etp,
                                    pp,
                                    0,
                                    dp,
                                    micro_batch,
                                    pieces,
                                    zero,
                                ),
                            )


def made(instance: Instance, layout: MixedLayout) -> Iterator[MixedLayout]:
    """The layout with each set of modules that may be recomputed and of replicas each number of chunks.

    Stages of two pools are not interleaved; the experts' traffic is not hidden.
    """
    permits = instance.narrowing.permits
    if not instance.min_batch <= layout.batch <= instance.max_batch or not permits(
        "global_batch", layout.batch
    ):
        return
    if not all(permits("num_microbatches", m) for m in layout.num_microbatches):
        return
    for modules, ep_overlap in ways(instance):
        for vpp in () if ep_overlap else chunks_of(instance, layout):
            yield replace(layout, modules=modules, vpp=vpp)


def chunks_of(instance: Instance, layout: MixedLayout) -> list[int]:
    """Virtual stages a rank: replicas in rounds of pp micro-batches; Megatron's of two ranks where they overlap."""
    if layout.form == "stages":
        return [1] if instance.narrowing.permits("vpp", 1) else []
    rounds = all(m % layout.pp == 0 for m in layout.num_microbatches)
    waits = instance.framework == "megatron" and instance.stack.pipeline.exposed_interleaved >= 1
    several = rounds and not (waits and layout.pp < 3)
    permits = instance.narrowing.permits
    return [v for v in chunks(instance, layout.pp) if permits("vpp", v) and (v == 1 or several)]


def fills(instance: Instance, dp: int, gpus: int, nodes: int) -> bool:
    """Whether the problem allows so many replicas, GPUs and nodes, of both pools together."""
    permits = instance.narrowing.permits
    return permits("dp", dp) and permits("num_gpus", gpus) and permits("nodes", nodes)


def node_counts(instance: Instance, index: int) -> dict[int, int]:
    """Numbers of GPUs that fill whole nodes of a pool and leave room for its spares: nodes by GPUs."""
    pool = instance.pools[index]
    there, node = pool.nodes or pool.max_nodes, pool.fabric.gpus_per_node
    return {
        nodes * node: nodes
        for nodes in range(pool.min_nodes, there + 1)
        if nodes + spares(pool, nodes, nodes * node) <= there
    }


def layer_values(instance: Instance, pair: tuple[int, int]) -> Iterator[tuple[int, int, int, int, int]]:
    """(tp, cp, ep, etp, micro_batch) that both pools can run."""
    a, permits = instance.architecture, instance.narrowing.permits
    domains = [instance.pools[index].fabric.domain for index in pair]
    must = [a.heads, a.ffn, *domains]
    must += [] if a.mla is not None else [a.kv_heads]
    must += [a.moe.shared_expert_ffn] if a.moe and a.moe.shared_expert_ffn else []
    # Megatron refuses tensor parallelism without sequence parallelism where there are experts.
    split = (
        a.moe is None or instance.framework != "megatron" or instance.stack.tensor_parallel.sequence_parallel
    )
    for tp in range(1, min(domains) + 1 if split else 2):
        if any(width % tp for width in must):
            continue
        for cp in (1, 2, 4, 8, 16):
            if cp > 1 and (instance.seq_len % (2 * cp) or instance.seq_len < 1024 * cp):
                continue
            for ep, etp in experts(instance, tp):
                for micro_batch in instance.narrowing.allowed.get("micro_batch", MICRO_BATCHES):
                    values = {"tp": tp, "cp": cp, "ep": ep, "etp": etp, "micro_batch": int(micro_batch)}
                    if all(permits(name, value) for name, value in values.items()):
                        yield tp, cp, ep, etp, int(micro_batch)


def experts(instance: Instance, tp: int) -> list[tuple[int, int]]:
    """(ep, etp), wherever they fit."""
    moe = instance.architecture.moe
    if moe is None:
        return [(1, 1)]
    etps = sorted({1} | ({tp} if moe.moe_ffn % tp == 0 else set()))
    return [(ep, etp) for ep in range(1, moe.experts + 1) if moe.experts % ep == 0 for etp in etps]


def zeros(instance: Instance, pair: tuple[int, int], shards: int) -> list[int]:
    """ZeRO stages: 1 where there is something to shard over; 2 and 3 are not mixed.

    Megatron has no plan without ZeRO whose weights are kept in FP8.
    """
    kept = instance.stack.data_parallel.low_precision_parameter_bytes == 1
    low = kept and instance.framework == "megatron" and instance.pools[pair[0]].precision == "fp8"
    stages = {zero for zero in (0, 1) if (zero == 0 or shards > 1) and not (low and zero == 0)}
    return [zero for zero in sorted(stages) if instance.narrowing.permits("zero", zero)]


def micro_batch_pairs(instance: Instance, micro_batch: int, dp: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """Micro-batches of each pool's replicas; Megatron has one number for all."""
    most = instance.max_batch // micro_batch
    for m in range(1, most // dp[0] + 1):
        others = (m,) if instance.framework == "megatron" else range(1, (most - m * dp[0]) // dp[1] + 1)
        yield from ((m, other) for other in others)
