"""What happens on each pipeline rank of a plan: seconds by cause, memory by category, passes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.directions import pass_seconds
from costmodel.estimate import rank_parts
from costmodel.layer import layer_cost
from costmodel.memory.breakdown import by_category
from costmodel.mixed import Mixed
from costmodel.mixed_ranks import mixed_ranks
from costmodel.pipeline import stage_split
from costmodel.rates import stage_rates
from costmodel.step import step_time
from costmodel.units import GIB
from planner.problem import Problem
from planner.report.timeline import Pass, timeline
from planner.solution import Decisions, PoolPart
from planner.validate import described_run, stage_lists

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One pipeline of a step."""

    rows: range
    """Which ranks of all that are shown."""
    num_microbatches: int
    seconds: float
    """What the cost model says that it takes: its compute and its bubble."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """One plan, rank by rank; of replicas on two pools one replica of each, one after the other."""

    names: tuple[str, ...]
    """What the ranks are called: their number, with the GPU type where there are two."""
    seconds: dict[str, Array]
    """Seconds a step by cause, (ranks,) each; the parts of every rank sum to the step."""
    memory: dict[str, Array]
    """GiB at the peak by category, (ranks,) each."""
    room: tuple[float | None, ...]
    """GiB that a plan may use on each rank, where it is not the same everywhere."""
    forward: Array
    """(ranks, vpp) seconds of a micro-batch in each chunk."""
    backward: Array
    pipelines: tuple[Pipeline, ...]
    tail: dict[str, float]
    """Seconds of a step outside the pipeline schedule, by cause."""

    @classmethod
    def of(cls, problem: Problem, pool: int, decisions: Decisions) -> Ranks:
        """A plan of a pool of a problem."""
        run = described_run(problem, problem.hardware[pool], decisions)
        layers, recomputed = stage_lists(decisions)
        cost = layer_cost(run)
        rates = stage_rates(run, cost)
        a, m, pp, vpp = run.architecture, decisions.num_microbatches, decisions.pp, decisions.vpp
        split = stage_split(a, pp, vpp, m, layers, recomputed)
        step = step_time(rates, split, run.num_microbatches, run.pp, run.vpp)
        passes = pass_seconds(cost, rates, stage_split(a, pp * vpp, 1, m, layers, recomputed))
        forward, backward = (each.reshape(vpp, pp).T for each in passes)
        named = ("p2p", "data_parallel", "optimizer", "fixed", "stragglers")
        return cls(
            names=tuple(str(rank) for rank in range(pp)),
            seconds=rank_parts(run, rates, split, cost, step),
            memory=_in_gib(by_category(run, rates, split)),
            room=(),
            forward=forward,
            backward=backward,
            pipelines=(Pipeline(range(pp), m, float(step.compute + step.bubble)),),
            tail={name: float(np.asarray(getattr(step, name))) for name in named},
        )

    @classmethod
    def of_mixed(cls, of: Mixed, decisions: Decisions) -> Ranks:
        """A plan on two pools, as the cost model describes it."""
        found = mixed_ranks(of, *stage_lists(decisions))
        counts = [len(_held(part)) for part in decisions.parts]
        rows = [range(sum(counts))] if of.one_pipeline else [range(counts[0]), range(counts[0], sum(counts))]
        first, second = decisions.parts
        # Replicas on two pools of one GPU have the same ranks.
        marks = (" (1)", " (2)") if not of.one_pipeline and first.gpu == second.gpu else ("", "")
        names = [
            f"{part.gpu}{mark} {rank}"
            for part, mark in zip(decisions.parts, marks, strict=True)
            for rank in _held(part)
        ]
        room = [
            part.memory_limit_gib for part, n in zip(decisions.parts, counts, strict=True) for _ in range(n)
        ]
        return cls(
            names=tuple(names),
            seconds=found.seconds,
            memory=_in_gib(found.memory),
            room=tuple(room),
            forward=found.forward,
            backward=found.backward,
            pipelines=tuple(
                Pipeline(of_line, int(line.num_microbatches), float(line.seconds - line.transfer))
                for of_line, line in zip(rows, found.lines, strict=True)
            ),
            tail=found.tail,
        )

    def timeline(self) -> list[Pass]:
        """Every pass of a step."""
        found = []
        for each in self.pipelines:
            rows = slice(each.rows.start, each.rows.stop)
            passes = timeline(self.forward[rows], self.backward[rows], each.num_microbatches)
            found += [of._replace(rank=each.rows[of.rank]) for of in passes]
        return found

    def pipeline_seconds(self) -> float:
        """What the cost model says that the pipeline takes which takes longest."""
        return max(each.seconds for each in self.pipelines)


def _in_gib(memory: dict[str, Array]) -> dict[str, Array]:
    return {name: part / GIB for name, part in memory.items()}


def _held(part: PoolPart) -> range:
    """Pipeline ranks of a part."""
    return range(part.first_rank, part.last_rank + 1)
