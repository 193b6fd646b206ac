"""Plans on two GPU types: pipeline stages on different ones, or replicas on different ones.

Stages: the first k pipeline ranks of every replica are GPUs of one type, the others of another. Data-parallel
groups stay inside a type; one hop of the pipeline crosses between them.

Replicas: whole pipelines of each type, with the same layers on every stage (a gradient is reduced between
shards of the same shape) and each with its own number of micro-batches. Gradients and weights cross.

Replicas may be interleaved, all with the same chunks (a gradient belongs to one of them). Of stages
interleaved schedules are left out: where ranks are not equally quick, the usual bubble is too long for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from costmodel.rates import stage_rates
from costmodel.run import Column, Fabric, Run
from costmodel.stage import Array, StageRates, StageSplit, stage_sum, stage_time
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
    vpp: Column = 1

    @property
    def slowest(self) -> Array:
        return self.busy.max(axis=-1)

    @property
    def idle(self) -> Array:
        """What the slowest rank waits while the pipeline fills and drains (`step.bubble_time`)."""
        return np.asarray(bubble_time(self.slowest, self.busy.sum(axis=-1), self.vpp, self.bubble))

    @property
    def transfer(self) -> Column:
        return self.num_microbatches * self.steady + self.fill

    @property
    def seconds(self) -> Array:
        """m*max_s t_s + x*(sum_s t_s - max_s t_s)/v + m*steady + fill."""
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
    """A pool's links where its traffic goes to another pool.

    No faster than either's NICs, nor the link; and as few members of a group share a domain as in either.
    """
    return replace(fabric, nic=min(fabric.nic, other.nic, link), domain=min(fabric.domain, other.domain))


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
    def one_pipeline(self) -> bool:
        """Whether a pipeline is over both types: plans of stages, not of replicas."""
        return self.parts[0].ranks != self.parts[1].ranks

    @property
    def num_gpus(self) -> int:
        return sum(part.num_gpus for part in self.parts)

    def joint_run(self, part: int) -> Run:
        """A part's run with the replicas of both types, and the links between the pools."""
        run, other = self.parts[part].run, self.parts[1 - part].run
        fabric = joint_fabric(run.fabric, other.fabric, self.link)
        if self.one_pipeline:
            return replace(run, fabric=fabric)
        return replace(run, dp=run.dp + other.dp, elsewhere=other.dp, fabric=fabric)

    def rates(self, part: int) -> StageRates:
        """Rates of a part; of all ranks, whether it holds them or not."""
        own = stage_rates(self.parts[part].run)
        return own if self.one_pipeline else replica_rates(own, stage_rates(self.joint_run(part)))


def lines_of(of: Mixed, rates: Sequence[StageRates], splits: Sequence[StageSplit]) -> tuple[Line, ...]:
    """The pipelines of a mixed plan: one over both types, or one of each."""
    busy = [stage_time(rate, split) for rate, split in zip(rates, splits, strict=True)]
    pp = int(of.parts[0].run.pp)
    if not of.one_pipeline:
        return tuple(
            Line(
                time, part.run.num_microbatches, rate.p2p_steady, (pp - 1) * rate.p2p_fill, rate.bubble,
                part.run.vpp,
            )
            for time, part, rate in zip(busy, of.parts, rates, strict=True)
        )  # fmt: skip
    steady, fill = crossing(of.joint_run(0))
    fill = fill + sum(
        (len(part.ranks) - 1) * rate.p2p_fill for part, rate in zip(of.parts, rates, strict=True)
    )
    steady = np.maximum(steady, np.maximum(rates[0].p2p_steady, rates[1].p2p_steady))
    together = np.concatenate([time[list(part.ranks)] for time, part in zip(busy, of.parts, strict=True)])
    return (Line(together, of.parts[0].run.num_microbatches, steady, fill, rates[0].bubble),)
