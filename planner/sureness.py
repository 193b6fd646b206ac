"""How sure it is that a plan meets deadline and budget, and that it fits."""

from __future__ import annotations

import numpy as np

from costmodel.estimate import Estimate as Prediction
from planner.chance import share_within, spread_of
from planner.confidence import Band, band_of
from planner.economics import Economy
from planner.instance import Instance, Limits
from planner.memory_risk import MemoryRisk, risk_of
from planner.search.rows import Plan
from planner.space.runs import run_of_rows


def band_of_plan(instance: Instance, plan: Plan) -> Band | None:
    """The band of the plan's step time; an agreed MFU is no prediction and has none."""
    if instance.assume_mfu:
        return None
    return band_of(run_of_rows(instance, plan.of("pool"), plan.of("variant"), plan.row).take(0))


def probabilities(instance: Instance, plan: Plan) -> dict[str, float]:
    """That deadline and budget hold."""
    limits = instance.limits
    if instance.assume_mfu or (limits.deadline is None and limits.budget is None):
        return {}
    economy = Economy.of(instance, plan.row, surely=False)
    band, spread = band_of_plan(instance, plan), spread_of(instance, plan.row, plan.step)
    return holding(limits, economy, plan.step, band, spread)


def holding(
    limits: Limits, economy: Economy, step: float, band: Band | None, spread: float
) -> dict[str, float]:
    """That deadline and budget hold: the share of runs that are short enough (chance.share_within)."""
    predicted = float(economy.seconds(np.array([step]))[0])
    longest: dict[str, float] = {}
    if limits.deadline is not None:
        longest["deadline"] = limits.deadline
    if limits.budget is not None:
        longest["budget"] = float(economy.affordable(limits.budget)[0])
    return {name: share_within(seconds / predicted, band, spread) for name, seconds in longest.items()}


def memory_risk(instance: Instance, plan: Plan, of: Prediction) -> MemoryRisk:
    """That the plan runs out of memory."""
    run = run_of_rows(instance, plan.of("pool"), plan.of("variant"), plan.row).take(0)
    return risk_of(run, plan.stages.layers, plan.stages.recomputed, float(of.memory.total))
