"""Everything that is predicted of one run: step time and its parts, MFU, memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

import numpy as np

from costmodel.flops import model_flops_per_token, recomputed_flops_per_token
from costmodel.layer import LayerCost, layer_cost
from costmodel.memory.breakdown import PeakMemory, peak_by_category
from costmodel.memory.overhead import memory_limit
from costmodel.pipeline import split_of
from costmodel.rates import stage_rates
from costmodel.run import Run
from costmodel.stage import Array, StageRates, StageSplit, stage_sum, stage_time
from costmodel.step import StepTime, assumed_rates, data_parallel_exposed, step_time, unpaired

LAYER_PARTS = ("gemm", "attention", "elementwise", "host", "tp", "cp", "ep")
ASSUMED = "assumed"
"""The one part of a step whose time follows from an agreed MFU."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """One run as it is predicted."""

    step_time: float
    """Seconds an optimizer step."""
    tokens_per_second_per_gpu: float
    model_flops_per_second_per_gpu: float
    mfu: float
    """Model FLOPs (no recompute, causal attention halved, LM head in) over the dense BF16 peak."""
    hfu: float
    """The same with recomputed FLOPs."""
    breakdown: dict[str, float]
    """Seconds a step by cause; their sum is `step_time`."""
    memory: PeakMemory
    """Bytes of the fullest rank."""
    fits: bool
    """The fullest rank stays within the share of the GPU's memory that the profile allows."""


def estimate(
    run: Run,
    layers: Sequence[int],
    recomputed: Sequence[int] | None = None,
    *,
    assume_mfu: float | None = None,
    nominal_parameters: float | None = None,
) -> Estimate:
    """Predicts one run with `layers`, of them `recomputed`, on each of its pp*vpp virtual stages.

    With `assume_mfu` the step takes what 6*P*D at that MFU says; memory stays modelled.
    """
    split, cost = split_of(run, layers, recomputed), layer_cost(run)
    rates = stage_rates(run, cost)
    if assume_mfu is not None:
        rates = assumed_rates(rates, run, assume_mfu, nominal_parameters)
    step = step_time(rates, split, run.num_microbatches, run.pp, run.vpp)
    parts = (
        {ASSUMED: float(step.total)} if assume_mfu is not None else step_parts(run, rates, split, cost, step)
    )
    return _assembled(run, rates, split, parts)


def micro_batch_parts(rates: StageRates, split: StageSplit, cost: LayerCost) -> dict[str, Array]:
    """Seconds a micro-batch of each rank by cause: (ranks,) each; they sum to `stage_time`.

    `data_parallel` is what ZeRO-2 and 3 expose in each micro-batch.
    """
    parts = {name: (split.layers * getattr(cost, name)).sum(axis=-1) for name in LAYER_PARTS}
    parts["head"] = split.first * cost.first + split.last * cost.last
    again = (split.recomputed * rates.recompute).sum(axis=-1)
    parts["recompute"] = (split.layers * cost.selective).sum(axis=-1) + again
    busy = stage_sum(rates.work, split) + again
    return parts | {"data_parallel": busy - sum(parts.values())}


def step_parts(
    run: Run, rates: StageRates, split: StageSplit, cost: LayerCost, step: StepTime
) -> dict[str, float]:
    """Seconds a step by cause.

    The compute of the slowest rank is split by effect, so the parts of a layer are those of that rank;
    what ZeRO-2 and 3 expose in each micro-batch counts as data-parallel.
    """
    slowest = int(stage_time(rates, split).argmax())
    each = {name: float(part[slowest]) for name, part in micro_batch_parts(rates, split, cost).items()}
    parts = {name: float(run.num_microbatches / rates.ends * seconds) for name, seconds in each.items()}
    parts["data_parallel"] += float(step.data_parallel)
    if np.ndim(rates.hidden):
        parts["ep"] += float(unpaired(rates, split, run.pp * run.vpp)[slowest])
    rest = ("bubble", "p2p", "optimizer", "fixed", "stragglers")
    return parts | {name: float(getattr(step, name)) for name in rest}


def rank_parts(
    run: Run, rates: StageRates, split: StageSplit, cost: LayerCost, step: StepTime
) -> dict[str, Array]:
    """Seconds a step of each rank by cause: (ranks,) each; the parts of every rank sum to the step.

    `idle` is what a rank waits for others: the bubble, slower stages, slower reductions and optimizers.
    """
    parts = {
        name: run.num_microbatches / rates.ends * part
        for name, part in micro_batch_parts(rates, split, cost).items()
    }
    parts["data_parallel"] = parts["data_parallel"] + data_parallel_exposed(rates, split)
    parts["optimizer"] = stage_sum(rates.optimizer, split)
    same = {
        name: np.full_like(parts["optimizer"], getattr(step, name)) for name in ("p2p", "fixed", "stragglers")
    }
    parts |= same
    return parts | {"idle": step.total - sum(parts.values())}


def _assembled(run: Run, rates: StageRates, split: StageSplit, parts: dict[str, float]) -> Estimate:
    seconds, architecture = fsum(parts.values()), run.architecture
    tokens = float(run.tokens_per_step) / float(run.num_gpus) / seconds
    model = float(model_flops_per_token(architecture, run.seq_len))
    again = again_per_token(run, split.total_recomputed / rates.ends)
    peak, memory = run.gpu.peak_flops["bf16"], peak_by_category(run, rates, split)
    return Estimate(
        step_time=seconds,
        tokens_per_second_per_gpu=tokens,
        model_flops_per_second_per_gpu=tokens * model,
        mfu=tokens * model / peak,
        hfu=tokens * (model + again) / peak,
        breakdown=parts,
        memory=memory,
        fits=bool(np.asarray(memory.total) <= memory_limit(run.gpu, run.stack.memory)),
    )


def again_per_token(run: Run, recomputed: Array) -> float:
    """FLOPs a token that a run does again, which recomputes so many layers of each kind whole."""
    layers = dict(zip(run.architecture.kinds, recomputed.tolist(), strict=True))
    again = recomputed_flops_per_token(
        run.architecture, run.seq_len, run.recompute_modules, layers,
        per_op_share=run.stack.recompute.per_op_share,
    )  # fmt: skip
    return float(again)
