"""A plan on two GPU types, rank by rank: seconds by cause, memory by category, passes, pipelines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from costmodel.directions import pass_seconds
from costmodel.estimate import micro_batch_parts
from costmodel.layer import layer_cost
from costmodel.memory.breakdown import by_category
from costmodel.mixed import Line, Mixed, lines_of
from costmodel.mixed_estimate import Side, estimate_mixed, sides_of
from costmodel.pipeline import stage_split
from costmodel.stage import Array


@dataclass(frozen=True, slots=True)
class MixedRanks:
    """The ranks of the first part, then those of the second; of replicas one replica of each."""

    seconds: dict[str, Array]
    """Seconds a step by cause, (ranks,) each; the parts of every rank sum to the step."""
    memory: dict[str, Array]
    """Bytes at the peak by category, (ranks,) each."""
    forward: Array
    """(ranks, vpp) seconds of a micro-batch's forward pass in each chunk."""
    backward: Array
    lines: tuple[Line, ...]
    """The pipelines: one over all ranks, or one over the ranks of each part."""
    tail: dict[str, float]
    """Seconds of a step outside the pipelines, by cause."""


def mixed_ranks(of: Mixed, layers: Sequence[int], recomputed: Sequence[int] | None = None) -> MixedRanks:
    """What each rank of a mixed plan does and holds, `layers` and those `recomputed` by virtual stage."""
    both = sides_of(of, layers, recomputed)
    lines = lines_of(of, [side.rates for side in both], [side.split for side in both])
    whole = estimate_mixed(of, layers, recomputed)
    same = {name: whole.breakdown[name] for name in ("fixed", "stragglers")}
    each = [_seconds(side, lines[0 if of.one_pipeline else index], same) for index, side in enumerate(both)]
    seconds = _joined(each)
    seconds["idle"] = whole.step_time - np.sum(list(seconds.values()), axis=0)
    passes = [_passes(side, layers, recomputed) for side in both]
    exposed, optimizer = max(both[0].ends + both[1].ends, key=sum)
    longest = max(lines, key=lambda line: float(line.seconds))
    tail = {"p2p": float(longest.transfer), "data_parallel": exposed, "optimizer": optimizer} | same
    return MixedRanks(
        seconds=seconds,
        memory=_joined([by_category(side.run, side.rates, side.own_split) for side in both]),
        forward=np.concatenate([forward for forward, _ in passes]),
        backward=np.concatenate([backward for _, backward in passes]),
        lines=lines,
        tail=tail,
    )


def _passes(side: Side, layers: Sequence[int], recomputed: Sequence[int] | None) -> tuple[Array, Array]:
    """Seconds of a micro-batch's passes in each chunk of the ranks that a part holds: (ranks, vpp) each."""
    run, pp, vpp = side.run, int(side.run.pp), int(side.run.vpp)
    stages = stage_split(run.architecture, pp * vpp, 1, int(run.num_microbatches), layers, recomputed)
    forward, backward = (
        each.reshape(vpp, pp).T[side.held] for each in pass_seconds(layer_cost(run), side.rates, stages)
    )
    return forward, backward


def _seconds(side: Side, line: Line, same: dict[str, float]) -> dict[str, Array]:
    """Seconds a step of the ranks that a part holds, by cause, waiting aside."""
    ranks = len(side.held)
    of_rank = micro_batch_parts(side.rates, side.own_split, layer_cost(side.run))
    parts = {name: line.num_microbatches * part for name, part in of_rank.items()}
    exposed, optimizer = np.array(side.ends).T
    parts["data_parallel"] = parts["data_parallel"] + exposed
    parts["optimizer"] = optimizer
    # A rank waits for the transfers of its own pipeline.
    parts["p2p"] = np.full(ranks, float(line.transfer))
    return parts | {name: np.full(ranks, value) for name, value in same.items()}


def _joined(parts: Sequence[dict[str, Array]]) -> dict[str, Array]:
    """Ranks of the first part, then those of the second."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
