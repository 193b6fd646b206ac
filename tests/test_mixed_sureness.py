"""How sure a plan on two pools is: its probabilities are those of the quantiles that it tells."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from costmodel.memory.overhead import usable_bytes
from costmodel.mixed_estimate import estimate_mixed
from costmodel.units import DAY
from planner import solution
from planner.economics import Economy
from planner.instance import Instance
from planner.memory_risk import share_above
from planner.mixed import best_of_pairs
from planner.mixed.answer import predicted, reported
from planner.mixed.economy import PairEconomy
from planner.mixed.plan import MixedPlan, mixed_of
from planner.mixed.sureness import memory_risk, uneven_mixed
from planner.problem import load_problem, parse_problem
from planner.resolve import instance_of
from planner.variants import with_limits

ROOT = Path(__file__).parent.parent
MOE: dict[str, Any] = {
    "name": "moe",
    "model": "qwen-3-30b-a3b",
    "training": {"tokens": "100G", "seq_len": 4096, "global_batch": "1Mi tokens"},
    "hardware": [
        {"gpu": "H100", "nodes": {"min": 2, "max": 2}, "price": "2.00 USD/gpu-hour"},
        {"gpu": "A100", "nodes": {"min": 2, "max": 2}, "price": "1.00 USD/gpu-hour"},
    ],
    "mixing": {"network": "25 GB/s"},
    "objective": "time",
    "search": {"tp": 1, "cp": 1, "ep": 8, "etp": 1, "micro_batch": 1},
}


@cache
def found() -> tuple[Instance, MixedPlan]:
    """The example's best plan on two pools."""
    instance = instance_of(load_problem(ROOT / "problems" / "70b_two_pools.yaml"))
    plan = best_of_pairs(instance).best
    assert plan is not None
    return instance, plan


def told(**limits: float | None) -> solution.Estimate:
    """What is said of that plan under other limits."""
    instance, plan = found()
    return reported(with_limits(instance, **limits), plan).estimate


@pytest.mark.parametrize("share", ["50%", "80%", "95%"])
def test_a_deadline_at_a_quantile_of_the_length_holds_with_that_share(share: str) -> None:
    days = told().finish_days[share]
    assert told(deadline=days * DAY).probability["deadline"] == pytest.approx(float(share[:-1]) / 100)


def test_a_budget_holds_like_the_deadline_that_it_pays_for() -> None:
    of = told()
    for ratio in (0.97, 1.0, 1.04):
        seconds, paid = of.days * DAY * ratio, of.dollars * ratio
        holds = told(deadline=seconds, budget=paid).probability
        assert holds["budget"] == pytest.approx(holds["deadline"])
    assert told(deadline=None, budget=None).probability == {}


@pytest.mark.parametrize("windows", [(0.0, 0.0), (30.0, 0.0), (0.0, 50.0), (20.0, 60.0)])
def test_what_is_affordable_costs_the_budget_whatever_is_committed(windows: tuple[float, float]) -> None:
    rents, seconds = (0.02, 0.05), np.array(windows) * DAY
    late = int(seconds[1] > seconds[0])
    one = np.ones(1)
    economy = PairEconomy(
        one, 0 * one, sum(rents) * one, seconds[1 - late] * one, one,
        longer_rent=rents[late] * one, longer=seconds[late] * one,
    )  # fmt: skip
    idle = float(economy.total("cost", np.zeros(1))[0])
    for more in (1.0, 5e3, 5e4, 5e5):
        most = economy.affordable(idle + more)
        assert economy.total("cost", most)[0] == pytest.approx(idle + more)
        assert economy.total("cost", most * 1.001)[0] > idle + more
    assert economy.affordable(idle * 0.999 - 1e-9)[0] == 0


def test_a_window_that_is_too_dear_alone_leaves_no_chance() -> None:
    one = np.ones(1)
    economy = Economy(one, 0 * one, 2 * one, 10 * one, one)
    assert economy.affordable(19.0)[0] == 0
    assert economy.affordable(30.0)[0] == 15


def test_the_risk_to_run_out_is_that_of_the_fuller_pool() -> None:
    instance, plan = found()
    of = predicted(instance, plan)
    shares = [
        share_above(usable_bytes(instance.pools[pool].gpu) / float(memory.total))
        for pool, memory in zip(plan.pools, of.memory, strict=True)
    ]
    risk = memory_risk(instance, plan, of)
    assert risk.probability == risk.balanced == max(shares)
    assert min(shares) < max(shares)
    assert told().out_of_memory == solution.MemoryRisk(
        risk=risk.grade, probability=risk.probability, balanced=risk.balanced
    )


def test_uneven_experts_are_a_risk_on_two_pools_too() -> None:
    instance = instance_of(parse_problem(MOE))
    plan = best_of_pairs(instance).best
    assert plan is not None
    of, mixed, layers = predicted(instance, plan), mixed_of(instance, plan), plan.stages.layers
    uneven = uneven_mixed(mixed, layers)
    assert uneven is not None
    more = estimate_mixed(uneven, layers, plan.stages.recomputed)
    shares = [
        share_above(usable_bytes(part.run.gpu) / float(memory.total))
        for part, memory in zip(mixed.parts, more.memory, strict=True)
    ]
    risk = memory_risk(instance, plan, of)
    assert risk.probability == max(shares) > risk.balanced


def test_nothing_is_uneven_without_experts() -> None:
    instance, plan = found()
    assert uneven_mixed(mixed_of(instance, plan), plan.stages.layers) is None
