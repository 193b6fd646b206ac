"""Everything that is predicted of a plan on two GPU types: step time and its parts, MFU, memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import fsum

import numpy as np

from costmodel.estimate import again_per_token, micro_batch_parts
from costmodel.flops import model_flops_per_token
from costmodel.layer import layer_cost
from costmodel.memory.breakdown import PeakMemory, peak_by_category
from costmodel.memory.overhead import memory_limit
from costmodel.mixed import Line, Mixed, end_of_step, lines_of, mixed_step_time
from costmodel.pipeline import split_of
from costmodel.run import Run
from costmodel.stage import Array, StageRates, StageSplit, stage_memory, stage_sum, stage_time
from costmodel.step import data_parallel_exposed


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
    """Predicts a mixed plan with `layers`, of them `recomputed`, on each virtual stage."""
    both = sides_of(of, layers, recomputed)
    lines = lines_of(of, [side.rates for side in both], [side.split for side in both])
    end = np.concatenate([end_of_step(side.rates, side.split)[side.held] for side in both])
    fixed = max(float(side.rates.fixed) for side in both)
    scale = max(float(side.rates.scale) for side in both)
    step = float(mixed_step_time(lines, end, fixed, scale))
    parts = _breakdown(of, both, lines, fixed, step)
    return _assembled(of, both, fsum(parts.values()), parts)


@dataclass(frozen=True, slots=True)
class Side:
    """One part with its rates and what its ranks hold."""

    run: Run
    rates: StageRates
    split: StageSplit
    held: list[int]

    @classmethod
    def of(cls, of: Mixed, part: int, layers: Sequence[int], recomputed: Sequence[int] | None) -> Side:
        split, held = split_of(of.parts[part].run, layers, recomputed), list(of.parts[part].ranks)
        return cls(of.joint_run(part), of.rates(part), split, held)

    @property
    def ends(self) -> list[tuple[float, float]]:
        """Exposed data-parallel traffic and optimizer of each rank that the part holds, in seconds."""
        exposed = data_parallel_exposed(self.rates, self.split)[self.held]
        optimizer = stage_sum(self.rates.optimizer, self.split)[self.held]
        return list(zip(exposed.tolist(), optimizer.tolist(), strict=True))

    @property
    def memory(self) -> PeakMemory:
        """`memory.breakdown.peak_by_category` of the ranks that the part holds."""
        return peak_by_category(self.run, self.rates, self.own_split)

    @property
    def own_split(self) -> StageSplit:
        """The split with the ranks that the part holds only; its totals stay those of the whole model."""
        return _held_by(self.split, self.held)

    @property
    def rank_memory(self) -> Array:
        return stage_memory(self.rates, self.split)[self.held]

    @property
    def rank_seconds(self) -> Array:
        return stage_time(self.rates, self.split)[self.held]


def sides_of(of: Mixed, layers: Sequence[int], recomputed: Sequence[int] | None) -> tuple[Side, Side]:
    """Both parts of a mixed plan."""
    return Side.of(of, 0, layers, recomputed), Side.of(of, 1, layers, recomputed)


def _held_by(split: StageSplit, ranks: list[int]) -> StageSplit:
    """The split with some of its ranks only."""
    names = ("layers", "recomputed", "in_flight", "in_flight_recomputed", "first_in_flight", "first", "last")
    return replace(split, **{name: getattr(split, name)[ranks] for name in names})


def _breakdown(
    of: Mixed, both: tuple[Side, Side], lines: tuple[Line, ...], fixed: float, step: float
) -> dict[str, float]:
    """`estimate.step_parts` of the line that takes longest and its slowest rank."""
    longest = int(np.argmax([float(line.seconds) for line in lines]))
    line = lines[longest]
    rank = int(line.busy.argmax())
    side = longest if not of.one_pipeline else int(rank not in of.parts[0].ranks)
    of_rank = micro_batch_parts(both[side].rates, both[side].split, layer_cost(of.parts[side].run))
    parts = {name: float(line.num_microbatches * part[rank]) for name, part in of_rank.items()}
    exposed, optimizer = max(both[0].ends + both[1].ends, key=sum)
    parts["data_parallel"] += exposed
    parts |= {"bubble": float(line.idle), "p2p": float(line.transfer), "optimizer": optimizer, "fixed": fixed}
    return parts | {"stragglers": step - fsum(parts.values())}


def _assembled(of: Mixed, both: tuple[Side, Side], seconds: float, parts: dict[str, float]) -> MixedEstimate:
    runs = [part.run for part in of.parts]
    batches = [run.tokens_per_step for run in runs[: 1 if of.one_pipeline else 2]]
    tokens = float(sum(batches)) / seconds
    model = float(model_flops_per_token(runs[0].architecture, runs[0].seq_len))
    again = again_per_token(runs[0], both[0].split.total_recomputed)
    peak = sum(part.num_gpus * part.run.gpu.peak_flops["bf16"] for part in of.parts)
    first, second = both
    memory = first.memory, second.memory
    return MixedEstimate(
        step_time=seconds,
        tokens_per_second_per_gpu=tokens / of.num_gpus,
        mfu=tokens * model / peak,
        hfu=tokens * (model + again) / peak,
        breakdown=parts,
        memory=memory,
        fits=(_fits(first.run, memory[0]), _fits(second.run, memory[1])),
        rank_memory=(first.rank_memory, second.rank_memory),
        rank_seconds=(first.rank_seconds, second.rank_seconds),
    )


def _fits(run: Run, memory: PeakMemory) -> bool:
    return bool(float(memory.total) <= memory_limit(run.gpu, run.stack.memory))
