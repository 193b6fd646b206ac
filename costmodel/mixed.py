"""Plans on two GPU types: pipeline stages on different ones, or replicas on different ones.

Stages: the first k pipeline ranks of every replica are GPUs of one type, the others of another. Data-parallel
groups stay inside a type; one hop of the pipeline crosses between them.

Replicas: whole pipelines of each type, with the same layers on every stage (a gradient is reduced between
shards of the same shape) and each with its own number of micro-batches. Gradients and weights cross.

Interleaved schedules are left out: a chunk would have to be level on ranks that are not equally quick.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import fsum

import numpy as np

from costmodel.estimate import micro_batch_parts
from costmodel.flops import model_flops_per_token, recomputed_flops_per_token
from costmodel.layer import layer_cost
from costmodel.memory.breakdown import PeakMemory, peak_by_category
from costmodel.memory.overhead import memory_limit
from costmodel.pipeline import stage_split
from costmodel.rates import stage_rates
from costmodel.run import Column, Fabric, Run
from costmodel.stage import Array, StageRates, StageSplit, stage_memory, stage_sum, stage_time
from costmodel.step import bubble_time, data_parallel_exposed
from costmodel.transfer import hop_time, steady_transfer


@dataclass(frozen=True, slots=True)
class Line:
    """One pipeline: what a micro-batch takes each of its ranks, and how many it runs. Seconds."""

    busy: Array
    """(..., ranks) forward and backward of one micro-batch."""
    num_microbatches: Column
    steady: Column
    """Exposed transfer for each micro-batch of the steady state, over the slowest of its hops."""
    fill: Column
    """All hops, forward and backward, once."""
    bubble: float

    @property
    def slowest(self) -> Array:
        return self.busy.max(axis=-1)

    @property
    def idle(self) -> Array:
        """What the slowest rank waits while the pipeline fills and drains (`step.bubble_time`)."""
        return np.asarray(bubble_time(self.slowest, self.busy.sum(axis=-1), 1, self.bubble))

    @property
    def transfer(self) -> Column:
        return self.num_microbatches * self.steady + self.fill

    @property
    def seconds(self) -> Array:
        """m*max_s t_s + x*(sum_s t_s - max_s t_s) + m*steady + fill."""
        return self.num_microbatches * self.slowest + self.idle + self.transfer


def mixed_step_time(lines: Sequence[Line], end: Array, fixed: Column, scale: Column) -> Array:
    """Seconds of a step: (the slowest line + the slowest end of step + fixed) * scale.

    `end` (..., ranks) is what each rank shows of its data-parallel traffic and its optimizer, over all lines:
    nobody goes on before everybody has reduced.
    """
    slowest = np.maximum.reduce([line.seconds for line in lines])
    return np.asarray((slowest + end.max(axis=-1) + fixed) * scale)


def end_of_step(rates: StageRates, split: StageSplit) -> Array:
    """Exposed data-parallel traffic and optimizer of each rank: (..., ranks)."""
    return data_parallel_exposed(rates, split) + stage_sum(rates.optimizer, split)


def joint_fabric(fabric: Fabric, other: Fabric, link: float) -> Fabric:
    """A pool's links where its traffic goes to another pool: no faster than either's NICs, nor the link."""
    return replace(fabric, nic=min(fabric.nic, other.nic, link))


def replica_rates(own: StageRates, joint: StageRates) -> StageRates:
    """Rates of one type's replicas: layers and hops among themselves, states and gradients shared with all.

    `own` are rates with the replicas of that type alone, `joint` with those of both types and the links
    between them.
    """
    shared = ("reduce", "gather", "optimizer", "states", "fixed", "scale", "fixed_bytes")
    return replace(own, **{name: getattr(joint, name) for name in shared})


def crossing(run: Run) -> tuple[Array, Array]:
    """(steady, fill) of the hop between two types; `run` has the joint fabric.

    The next stage is in another pool, so the hop never stays inside an NVLink domain.
    """
    apart = replace(run, fabric=replace(run.fabric, domain=1))
    hop = hop_time(apart)
    return steady_transfer(apart, hop), 2 * hop


@dataclass(frozen=True, slots=True)
class Part:
    """What one GPU type does in a mixed plan."""

    run: Run
    """The decisions on this type's GPUs and links. Stages: `pp` is of the whole pipeline. Replicas: `dp` and
    `num_microbatches` are this type's own."""
    ranks: range
    """Pipeline ranks on this type."""

    @property
    def num_gpus(self) -> int:
        run = self.run
        return int(run.tp * run.cp * run.dp) * len(self.ranks)


@dataclass(frozen=True, slots=True)
class Mixed:
    """One mixed plan. Of stages if the parts hold different ranks, else of replicas."""

    parts: tuple[Part, Part]
    link: float
    """bytes/s one way that each GPU has to the other pool."""

    @property
    def stages(self) -> bool:
        return self.parts[0].ranks != self.parts[1].ranks

    @property
    def num_gpus(self) -> int:
        return sum(part.num_gpus for part in self.parts)

    def joint_run(self, part: int) -> Run:
        """A part's run with the replicas of both types, and the links between the pools."""
        run, other = self.parts[part].run, self.parts[1 - part].run
        dp = run.dp if self.stages else run.dp + other.dp
        return replace(run, dp=dp, fabric=joint_fabric(run.fabric, other.fabric, self.link))

    def rates(self, part: int) -> StageRates:
        """Rates of a part; of all ranks, whether it holds them or not."""
        own = stage_rates(self.parts[part].run)
        return own if self.stages else replica_rates(own, stage_rates(self.joint_run(part)))


@dataclass(frozen=True, slots=True)
class MixedEstimate:
    """A mixed plan as it is predicted: as `estimate.Estimate`, with the memory of each part."""

    step_time: float
    tokens_per_second_per_gpu: float
    mfu: float
    """Model FLOPs over the dense BF16 peak of all GPUs together."""
    hfu: float
    breakdown: dict[str, float]
    """Seconds a step by cause, of the line and rank that set its pace; their sum is `step_time`."""
    memory: tuple[PeakMemory, PeakMemory]
    """Of the fullest rank of each part."""
    fits: tuple[bool, bool]
    rank_memory: tuple[Array, Array]
    """(ranks,) bytes of each rank that a part holds."""
    rank_seconds: tuple[Array, Array]
    """(ranks,) forward and backward of a micro-batch, likewise."""


def estimate_mixed(
    of: Mixed, layers: Sequence[int], recomputed: Sequence[int] | None = None
) -> MixedEstimate:
    """Predicts a mixed plan with `layers`, of them `recomputed`, on each pipeline rank."""
    both = [_Side.of(of, index, layers, recomputed) for index in (0, 1)]
    lines = lines_of(of, [side.rates for side in both], [side.split for side in both])
    end = np.concatenate([end_of_step(side.rates, side.split)[side.held] for side in both])
    fixed = max(float(side.rates.fixed) for side in both)
    scale = max(float(side.rates.scale) for side in both)
    step = float(mixed_step_time(lines, end, fixed, scale))
    parts = _breakdown(of, both, lines, fixed, step)
    return _assembled(of, both, fsum(parts.values()), parts)


def lines_of(of: Mixed, rates: Sequence[StageRates], splits: Sequence[StageSplit]) -> tuple[Line, ...]:
    """The pipelines of a mixed plan: one over both types, or one of each."""
    busy = [stage_time(rate, split) for rate, split in zip(rates, splits, strict=True)]
    pp = int(of.parts[0].run.pp)
    if not of.stages:
        return tuple(
            Line(time, part.run.num_microbatches, rate.p2p_steady, (pp - 1) * rate.p2p_fill, rate.bubble)
            for time, part, rate in zip(busy, of.parts, rates, strict=True)
        )
    steady, fill = crossing(of.joint_run(0))
    fill = fill + sum(
        (len(part.ranks) - 1) * rate.p2p_fill for part, rate in zip(of.parts, rates, strict=True)
    )
    steady = np.maximum(steady, np.maximum(rates[0].p2p_steady, rates[1].p2p_steady))
    together = np.concatenate([time[list(part.ranks)] for time, part in zip(busy, of.parts, strict=True)])
    return (Line(together, of.parts[0].run.num_microbatches, steady, fill, rates[0].bubble),)


@dataclass(frozen=True, slots=True)
class _Side:
    """One part with its rates and what its ranks hold."""

    run: Run
    rates: StageRates
    split: StageSplit
    held: list[int]

    @classmethod
    def of(cls, of: Mixed, part: int, layers: Sequence[int], recomputed: Sequence[int] | None) -> _Side:
        run = of.parts[part].run
        split = stage_split(run.architecture, int(run.pp), 1, int(run.num_microbatches), layers, recomputed)
        return cls(of.joint_run(part), of.rates(part), split, list(of.parts[part].ranks))


def _breakdown(
    of: Mixed, both: list[_Side], lines: tuple[Line, ...], fixed: float, step: float
) -> dict[str, float]:
    """`estimate.step_parts` of the line that takes longest and its slowest rank."""
    longest = int(np.argmax([float(line.seconds) for line in lines]))
    line = lines[longest]
    rank = int(line.busy.argmax())
    side = longest if not of.stages else int(rank not in of.parts[0].ranks)
    of_rank = micro_batch_parts(both[side].rates, both[side].split, layer_cost(of.parts[side].run))
    parts = {name: float(line.num_microbatches * part[rank]) for name, part in of_rank.items()}
    ends = [
        (float(exposed[index]), float(optimizer[index]))
        for each in both
        for exposed, optimizer in [
            (data_parallel_exposed(each.rates, each.split), stage_sum(each.rates.optimizer, each.split))
        ]
        for index in each.held
    ]
    exposed, optimizer = max(ends, key=sum)
    parts["data_parallel"] += exposed
    parts |= {"bubble": float(line.idle), "p2p": float(line.transfer), "optimizer": optimizer, "fixed": fixed}
    return parts | {"stragglers": step - fsum(parts.values())}


def _assembled(of: Mixed, both: list[_Side], seconds: float, parts: dict[str, float]) -> MixedEstimate:
    runs, architecture = [part.run for part in of.parts], of.parts[0].run.architecture
    batches = [run.tokens_per_step for run in runs[: 1 if of.stages else 2]]
    tokens = float(sum(batches)) / seconds
    model = float(model_flops_per_token(architecture, runs[0].seq_len))
    again = recomputed_flops_per_token(
        architecture,
        runs[0].seq_len,
        runs[0].recompute_modules,
        dict(zip(architecture.kinds, both[0].split.total_recomputed.tolist(), strict=True)),
        per_op_share=runs[0].stack.recompute.per_op_share,
    )
    peak = sum(part.num_gpus * part.run.gpu.peak_flops["bf16"] for part in of.parts)
    memory = tuple(_fullest(side) for side in both)
    limits = [memory_limit(run.gpu, run.stack.memory) for run in runs]
    return MixedEstimate(
        step_time=seconds,
        tokens_per_second_per_gpu=tokens / of.num_gpus,
        mfu=tokens * model / peak,
        hfu=tokens * (model + float(again)) / peak,
        breakdown=parts,
        memory=(memory[0], memory[1]),
        fits=(
            bool(float(memory[0].total) <= limits[0]),
            bool(float(memory[1].total) <= limits[1]),
        ),
        rank_memory=_both([stage_memory(side.rates, side.split)[side.held] for side in both]),
        rank_seconds=_both([stage_time(side.rates, side.split)[side.held] for side in both]),
    )


def _both(arrays: list[Array]) -> tuple[Array, Array]:
    return arrays[0], arrays[1]


def _fullest(side: _Side) -> PeakMemory:
    """`memory.breakdown.peak_by_category` of the ranks that a part holds."""
    return peak_by_category(side.run, side.rates, held_by(side.split, side.held))


def held_by(split: StageSplit, ranks: list[int]) -> StageSplit:
    """The split with some of its ranks only; its totals stay those of the whole model."""
    names = ("layers", "recomputed", "in_flight", "in_flight_recomputed", "first_in_flight", "first", "last")
    return replace(split, **{name: getattr(split, name)[ranks] for name in names})
