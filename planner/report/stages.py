"""What happens on each pipeline rank of a plan: seconds by cause, memory by category, passes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.estimate import rank_parts
from costmodel.layer import LayerCost, layer_cost
from costmodel.memory.breakdown import by_category
from costmodel.pipeline import stage_split
from costmodel.rates import stage_rates
from costmodel.run import Run
from costmodel.stage import StageRates, StageSplit, stage_time
from costmodel.step import StepTime, step_time
from costmodel.units import GIB
from planner.problem import Problem
from planner.report.timeline import Pass, timeline
from planner.solution import Decisions
from planner.validate import described_run, stage_lists

Array = NDArray[Any]
EMBEDDING_FORWARD = 1 / 2
"""Of the embedding's time: it reads in one direction what it adds up in the other."""
HEAD_FORWARD = 1 / 3
"""Of the head's time: one of its three matrix products."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """One plan, rank by rank."""

    run: Run
    rates: StageRates
    split: StageSplit
    cost: LayerCost
    layers: list[int]
    """Of each virtual stage."""
    recomputed: list[int]

    @classmethod
    def of(cls, problem: Problem, pool: int, decisions: Decisions) -> Ranks:
        """A plan of a pool of a problem."""
        run = described_run(problem, problem.hardware[pool], decisions)
        layers, recomputed = stage_lists(decisions)
        cost = layer_cost(run)
        rates = stage_rates(run, cost)
        m = decisions.num_microbatches
        split = stage_split(run.architecture, decisions.pp, decisions.vpp, m, layers, recomputed)
        return cls(run, rates, split, cost, layers, recomputed)

    @property
    def step(self) -> StepTime:
        """The parts of a step as the cost model adds them up."""
        run = self.run
        return step_time(self.rates, self.split, run.num_microbatches, run.pp, run.vpp)

    def seconds(self) -> dict[str, Array]:
        """Seconds a step by cause, (ranks,) each; the parts of every rank sum to the step."""
        return rank_parts(self.run, self.rates, self.split, self.cost, self.step)

    def memory(self) -> dict[str, Array]:
        """GiB at the peak by category, (ranks,) each."""
        return {name: part / GIB for name, part in by_category(self.run, self.rates, self.split).items()}

    def passes(self) -> tuple[Array, Array]:
        """Forward and backward seconds of a micro-batch in each chunk: (pp, vpp) each.

        A layer's forward pass takes what repeating it would; recompute belongs to the backward pass.
        """
        pp, vpp = int(self.run.pp), int(self.run.vpp)
        m, a = int(self.run.num_microbatches), self.run.architecture
        virtual = stage_split(a, pp * vpp, 1, m, self.layers, self.recomputed)
        both = stage_time(self.rates, virtual)
        forward = (virtual.layers * self.cost.forward).sum(axis=-1)
        forward = forward + EMBEDDING_FORWARD * virtual.first * self.cost.first
        forward = forward + HEAD_FORWARD * virtual.last * self.cost.last
        return forward.reshape(vpp, pp).T, (both - forward).reshape(vpp, pp).T

    def timeline(self) -> list[Pass]:
        """Every pass of a step."""
        return timeline(*self.passes(), int(self.run.num_microbatches))

    def pipeline_seconds(self) -> float:
        """What the cost model says the pipeline takes: its compute and its bubble."""
        return float(self.step.compute + self.step.bubble)

    def tail(self) -> dict[str, float]:
        """Seconds of a step outside the pipeline schedule, by cause."""
        of = self.step
        names = ("p2p", "data_parallel", "optimizer", "fixed", "stragglers")
        return {name: float(np.asarray(getattr(of, name))) for name in names}
