"""Goodput of plans: failures, checkpoints, restarts, spares, planned stops and evaluations put together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.goodput.checkpoint import Mode, Saving, Writers, saving
from costmodel.goodput.failures import Failures, failures_of, stop_rate, swap_rate
from costmodel.goodput.interval import behind_writes, expected_seconds, free_interval, whole_steps
from costmodel.goodput.restart import load_seconds, restart_seconds
from costmodel.goodput.spares import spares_for, waiting_share
from costmodel.run import Column
from costmodel.storage.description import Storage
from hardware.site import Preset, site_reliability

Array = NDArray[Any]
PARTS: tuple[str, ...] = ("checkpoint", "lost_work", "restart", "waiting", "planned")
ENDLESS = 1e6
"""A run that takes a million times as long as it trains never ends: its figures fit no solver's numbers."""


@dataclass(frozen=True, slots=True)
class Reliability:
    """How a site fails and recovers, and how a run saves. Seconds."""

    failures: Failures
    detection: float
    relaunch: float
    warm_up: float
    repair: float = 0.0
    """Until a failed node is back; 0 where whoever rents nodes out replaces them within the relaunch."""
    spares: int | None = None
    """Spare nodes, or None for as many as `swap_probability` asks for."""
    swap_probability: float = 0.95
    interval: float | None = None
    """Training between checkpoints, or None for the best."""
    mode: Mode = "async"
    writers: Writers = "all"
    copy_rate: float = np.inf
    """bytes/s from a GPU to its host."""
    checkpoint_overhead: float = 0.0
    """Seconds a checkpoint costs before bytes move."""
    weights_share: float = 0.0
    """Share of a checkpoint that each replica reads for itself after a restart; 0: read once, passed on."""
    evaluation: float = 0.0
    """Seconds of one evaluation."""
    evaluation_steps: float = np.inf
    """Steps between evaluations."""


@dataclass(frozen=True, slots=True)
class Goodput:
    """What a plan loses, a row each. Seconds; shares are of wall-clock time and, with training, sum to 1."""

    slowdown: Array
    """Wall-clock seconds for each second of training and evaluation."""
    startup: Array
    """Seconds before the first step."""
    evaluation: float
    """Seconds of evaluation for each step."""
    mtbf: Array
    interval: Array
    """Training between checkpoints."""
    wished: Array
    """The same if storage were fast enough not to hold it up."""
    saving: Saving
    restart: Array
    """Seconds a failure costs beside the work it undoes."""
    spare_nodes: Array
    """Spare nodes the run holds ready (0 where whoever rents nodes out replaces them)."""
    shares: dict[str, Array]
    """By what they are lost to: `PARTS`."""

    @property
    def share(self) -> Array:
        """Share of the time of a run that has started in which it trains or evaluates: 1/slowdown."""
        return np.asarray(1 / self.slowdown)

    def wall_seconds(self, steps: Column, step_time: Column) -> Array:
        """Seconds until so many steps are done: steps*(t + evaluation)*slowdown + startup."""
        return np.asarray(steps * (step_time + self.evaluation) * self.slowdown + self.startup)

    def fraction(self, steps: Column, step_time: Column) -> Array:
        """Effective training time, as runs publish it: that of steps over wall-clock time."""
        return np.asarray(steps * step_time / self.wall_seconds(steps, step_time))

    def interval_steps(self, step_time: Column) -> Array:
        """The interval as a whole number of steps."""
        cost = (self.saving.stall, self.saving.write, self.restart, self.mtbf)
        return whole_steps(self.interval, step_time + self.evaluation, *cost)


def usual_reliability(
    preset: Preset = "default", gpus_per_node: int | None = None, **changes: Any
) -> Reliability:
    """A preset with asynchronous, distributed checkpoints, and single fields changed.

    Failed nodes are replaced by whoever rents them out unless `repair` says how long that takes.
    """
    site = site_reliability()
    kind, save = site.presets[preset], site.checkpoint
    usual: dict[str, Any] = {
        "failures": failures_of(preset, gpus_per_node=gpus_per_node),
        "detection": kind.detection,
        "relaunch": kind.relaunch,
        "warm_up": kind.warm_up,
        "swap_probability": site.swap_probability,
        "copy_rate": save.copy_rate,
        "checkpoint_overhead": save.overhead,
    }
    return Reliability(**usual | changes)


def goodput(
    reliability: Reliability,
    storage: Storage,
    *,
    num_gpus: Column,
    gpus_per_node: Column,
    checkpoint: Column,
    replicas: Column = 1,
) -> Goodput:
    """Goodput of plans with so many GPUs, checkpoints of so many bytes, and `replicas` data-parallel ranks.

    Nothing here depends on the time of a step, so wall-clock time rises linearly with it; the interval
    is any number of seconds (`interval_steps` rounds it, which costs next to nothing).
    """
    r, num_nodes = reliability, num_gpus / gpus_per_node
    save = _saving(r, storage, checkpoint, num_gpus, gpus_per_node, replicas)
    weights = checkpoint * r.weights_share
    load = load_seconds(checkpoint, storage, num_nodes=num_nodes, weight_bytes=weights, copies=replicas)
    again = np.asarray(restart_seconds(0.0, r.relaunch, load, r.warm_up))
    mtbf = np.asarray(1 / stop_rate(r.failures, num_gpus, gpus_per_node))
    wished = free_interval(save.stall, mtbf) if r.interval is None else np.full(mtbf.shape, r.interval)
    in_repair = np.asarray(swap_rate(r.failures, num_gpus, gpus_per_node) * r.repair)
    spares = _spares(r, in_repair)
    planned = np.asarray(num_gpus * r.failures.planned)
    return _assembled(r, save, again, mtbf, wished, spares, in_repair, planned)


def no_losses(num_gpus: Column) -> Goodput:
    """Goodput of plans whose time is that of the whole run already, as under an agreed MFU."""
    none = np.zeros(np.shape(num_gpus))
    endless = none + np.inf
    shares = dict.fromkeys(PARTS, none)
    free = Saving(none, none, endless, none)
    return Goodput(
        none + 1, none, 0.0, endless, endless, endless, free, none, np.zeros(none.shape, np.int64), shares
    )


def _saving(
    r: Reliability,
    storage: Storage,
    checkpoint: Column,
    num_gpus: Column,
    gpus_per_node: Column,
    replicas: Column,
) -> Saving:
    return saving(
        checkpoint,
        storage,
        num_gpus=num_gpus,
        gpus_per_node=gpus_per_node,
        mode=r.mode,
        writers=r.writers,
        replicas=replicas,
        copy_rate=r.copy_rate,
        overhead=r.checkpoint_overhead,
    )


def _spares(r: Reliability, in_repair: Array) -> Array:
    if not r.repair:
        return np.zeros(in_repair.shape, dtype=np.int64)
    return (
        spares_for(in_repair, r.swap_probability) if r.spares is None else np.full(in_repair.shape, r.spares)
    )


def _assembled(
    r: Reliability,
    save: Saving,
    again: Array,
    mtbf: Array,
    wished: Array,
    spares: Array,
    in_repair: Array,
    planned_rate: Array,
) -> Goodput:
    """Factors that multiply: unplanned stops, planned stops, waiting for a spare."""
    restart = r.detection + again
    interval = behind_writes(wished, save.stall, save.write) if r.interval is None else wished
    unplanned = expected_seconds(interval, save.stall, save.write, restart, mtbf)
    planned = 1 + planned_rate * (save.stall + save.write + again)
    waiting = waiting_share(spares, in_repair) if r.repair else np.zeros(in_repair.shape)
    slowdown = unplanned * planned / (1 - waiting)
    slowdown = np.where(slowdown < ENDLESS, slowdown, np.inf)
    training = 1 / slowdown
    up = (1 - waiting) / planned
    stall = np.maximum(save.stall, save.write - interval)
    with np.errstate(divide="ignore", invalid="ignore"):
        stalls = np.where(np.isfinite(slowdown), stall / interval / unplanned * up, 0.0)
    restarts = up * -np.expm1(-restart / mtbf)
    shares = {
        "checkpoint": stalls,
        "lost_work": up - training - stalls - restarts,
        "restart": restarts,
        "waiting": waiting,
        "planned": (1 - waiting) - up,
    }
    evaluation = r.evaluation / r.evaluation_steps
    return Goodput(slowdown, again, evaluation, mtbf, interval, wished, save, restart, spares, shares)
