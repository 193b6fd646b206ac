"""Puts a step together: schedule, data-parallel exposure, optimizer, stragglers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from costmodel.flops import flops_6nd
from costmodel.parameters import active_parameters
from costmodel.run import Column, Run
from costmodel.stage import (
    Array,
    PerLayer,
    StageRates,
    StageSplit,
    over_kinds,
    stage_sum,
    stage_time,
    total_time,
)


def bubble_time(slowest: Column, total: Column, vpp: Column, bubble: Column = 1.0) -> Column:
    """Seconds the slowest stage idles while the pipeline fills and drains: x*(sum_s t_s - max_s t_s)/v.

    Every other stage is passed once, 1/v of it with v virtual stages. Zero-bubble schedules fill the
    wait with weight gradients and leave x of it (`costmodel.schedules`).
    """
    return bubble * (total - slowest) / vpp


def pipeline_time(
    slowest: Column, total: Column, num_microbatches: Column, vpp: Column, bubble: Column = 1.0
) -> Column:
    """Busy and bubble time of a pipeline schedule from the stage times.

    T = m*max_s t_s + x*(sum_s t_s - max_s t_s)/v: in the steady state the slowest stage sets the
    period. With equal stages and x = 1 this is (m + (p-1)/v)*t (Narayanan et al. 2021).
    """
    return num_microbatches * slowest + bubble_time(slowest, total, vpp, bubble)


def data_parallel_exposed(rates: StageRates, split: StageSplit) -> Array:
    """Data-parallel seconds a step that compute does not hide, per rank.

    Gradients reduce behind the last micro-batch's backward, parameters gather behind the first
    one's forward: max(T_rs - w_rs*t, f*T_rs) + max(T_ag - w_ag*t, f*T_ag), t = the rank's
    micro-batch time.
    """
    busy = stage_time(rates, split)
    reduce, gather = stage_sum(rates.reduce, split), stage_sum(rates.gather, split)
    floor = rates.exposed_floor
    return np.maximum(reduce - rates.reduce_window * busy, floor * reduce) + np.maximum(
        gather - rates.gather_window * busy, floor * gather
    )


def unpaired(rates: StageRates, split: StageSplit, stages: Column) -> Array:
    """Seconds a step of each rank, of two stages, that passes which run alone take longer than pairs.

    H/2*(S + 1 + (S/2 - 1)/2), with S stages and H = F + B - F&B of both stages of the rank: on the critical
    path S + 1 forward and backward passes have no partner to hide their all-to-alls behind while the pipeline
    fills and drains, and of DualPipe's bubble (S/2 - 1)(F&B + B - 3W) each B shows its half of them. Counted
    in the schedule of github.com/deepseek-ai/DualPipe (`DualPipe.step`), which a test simulates.
    """
    alone = np.asarray(stages + 1 + (stages / 2 - 1) / 2)
    return alone[..., None] * over_kinds(split.layers, np.asarray(rates.hidden)) / 2


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of one optimizer step; the parts sum to `total`."""

    compute: Array
    """num_microbatches x the slowest stage; half of them x both stages of a rank (`StageRates.ends`), and
    what is `unpaired`."""
    bubble: Array
    p2p: Array
    data_parallel: Array
    optimizer: Array
    fixed: Array
    stragglers: Array

    @property
    def total(self) -> Array:
        return (
            self.compute
            + self.bubble
            + self.p2p
            + self.data_parallel
            + self.optimizer
            + self.fixed
            + self.stragglers
        )


def step_time(
    rates: StageRates, split: StageSplit, num_microbatches: Column, pp: Column, vpp: Column
) -> StepTime:
    """Time of one step from what its pipeline ranks hold.

    T = (m/e*max t + x*(sum t - max t)/(e*v) + m*p2p + (p/e-1)*p2p_fill + max_s(dp_s + opt_s) + fixed) * scale

    e = 1, or 2 where micro-batches enter at both ends: t is then that of the two stages of a rank, which sees
    half of the micro-batches on each, and half of the pipeline is filled from either end. What passes without
    a partner take longer (`unpaired`) comes on top.
    """
    ends = rates.ends
    busy = stage_time(rates, split)
    slowest = busy.max(axis=-1)
    exposed = data_parallel_exposed(rates, split)
    optimizer = stage_sum(rates.optimizer, split)
    worst = (exposed + optimizer).argmax(axis=-1)[..., None]
    parts = {
        "compute": num_microbatches / ends * slowest,
        "bubble": np.asarray(bubble_time(slowest, total_time(rates, split), ends * vpp, rates.bubble)),
        "p2p": num_microbatches * rates.p2p_steady + (pp / ends - 1) * rates.p2p_fill,
        "data_parallel": np.take_along_axis(exposed, worst, axis=-1)[..., 0],
        "optimizer": np.take_along_axis(optimizer, worst, axis=-1)[..., 0],
        "fixed": rates.fixed,
    }
    if np.ndim(rates.hidden):
        at = busy.argmax(axis=-1)[..., None]
        parts["compute"] += np.take_along_axis(unpaired(rates, split, pp * vpp), at, axis=-1)[..., 0]
    stragglers = (rates.scale - 1) * sum(parts.values())
    return StepTime(**parts, stragglers=stragglers)


def assumed_rates(
    rates: StageRates, run: Run, mfu: float, nominal_parameters: float | None = None
) -> StageRates:
    """Rates under which a step takes what an agreed MFU says, however layers are laid out.

    T = 6*P*tokens / (N * peak * MFU), FORMULAS "MFU, time, GPU count": P the active parameters (or the
    nominal figure that was agreed on), peak the dense BF16 peak. Memory stays modelled.
    """
    parameters = nominal_parameters or active_parameters(run.architecture)
    seconds = flops_6nd(parameters, run.tokens_per_step) / (run.num_gpus * run.gpu.peak_flops["bf16"] * mfu)
    nothing = PerLayer(rates.work.kinds * 0.0, rates.work.first * 0.0, rates.work.last * 0.0)
    return replace(
        rates,
        work=nothing,
        recompute=rates.recompute * 0.0,
        p2p_steady=rates.p2p_steady * 0.0,
        p2p_fill=rates.p2p_fill * 0.0,
        hidden=0.0,
        reduce=nothing,
        gather=nothing,
        optimizer=nothing,
        fixed=rates.fixed * 0.0 + seconds,
        scale=rates.scale * 0.0 + 1.0,
    )
