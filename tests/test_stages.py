"""CP-SAT's stage assignment is the best of all assignments."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from random import Random

import numpy as np
import pytest
from oracle import (
    Assigned,
    Layout,
    assigned,
    assignments,
    divides,
    num_assignments,
    rates_of,
    run_of,
    scalar_rates,
)
from random_problems import problem

from costmodel.pipeline import stage_split
from costmodel.stage import StageRates, stage_memory
from costmodel.step import step_time
from planner.instance import Instance
from planner.stages.memory import BYTES
from planner.stages.problem import StagePlan, StageProblem
from planner.stages.solve import solve_stages

SAME = 2e-6
"""Times are rounded to 1e-7 of the slowest stage for each layer, and the last 1e-7 of a step is not sought."""
MOST = 60_000


@dataclass(frozen=True, slots=True)
class Case:
    instance: Instance
    layout: Layout
    rates: StageRates
    recompute: str
    uniform: bool


def case(seed: int, interleaved: bool) -> Case:
    """A random candidate of a random model whose assignments can all be priced."""
    random = Random(seed)
    while True:
        instance = replace(problem(random, most_layers=12 if interleaved else 10, nodes=1), assume_mfu=None)
        layers = instance.architecture.layers
        pp = random.randint(1 + interleaved, min(layers, 6))
        vpp = random.randint(2, layers // pp) if interleaved and layers >= 2 * pp else 1
        recompute, uniform = random.choice(("none", "some", "some", "all")), random.random() < 0.5
        few = 0 < num_assignments(layers, pp, vpp, recompute, uniform) <= MOST
        if (vpp > 1) == interleaved and few:
            layout = candidate(random, instance, pp, vpp)
            return Case(instance, layout, scalar_rates(instance, layout), recompute, uniform)


def candidate(random: Random, instance: Instance, pp: int, vpp: int) -> Layout:
    a = instance.architecture
    tp = random.choice([t for t in (1, 2, 4) if divides(t, a.heads, a.ffn, 1 if a.mla else a.kv_heads)])
    dp, m = random.choice((1, 2, 4)), random.choice((1, 2, 3, 5, 8, 16))
    zero = random.choice((0, 1)) if dp > 1 else 0
    m = m * pp if vpp > 1 else m
    modules = frozenset({"mlp", "layernorm"}) if random.random() < 0.2 else frozenset[str]()
    return Layout(0, tp, 1, pp, vpp, dp, 1, 1, random.choice((1, 2, 4)), m, zero, modules)


def stage_problem(of: Case, limit: float) -> StageProblem:
    one = of.layout
    return StageProblem(
        of.instance.architecture,
        of.rates,
        one.pp,
        one.vpp,
        one.num_microbatches,
        limit,
        of.recompute,
        of.uniform,
    )


def figures(of: Case, plan: StagePlan) -> tuple[float, float]:
    """Step and memory of an assignment, by the cost model."""
    one = of.layout
    split = stage_split(
        of.instance.architecture, one.pp, one.vpp, one.num_microbatches, plan.layers, plan.recomputed
    )
    step = step_time(of.rates, split, one.num_microbatches, one.pp, one.vpp).total
    return float(step), float(stage_memory(of.rates, split).max())


def limits(of: Case, memory: np.ndarray, step: np.ndarray) -> list[float]:
    """Room for the leanest assignments only, for some, for all, and for none."""
    low, high = float(memory.min()), float(memory[step.argmin()])
    return [low + share * (high - low) + 1 for share in (0.03, 0.4, 1.2)] + [low * 0.99]


def every_assignment(of: Case) -> Assigned:
    """Step and memory of each."""
    rates = rates_of(of.instance, run_of(of.instance, [of.layout]))
    return assigned(of.instance.architecture, rates, [of.layout], of.recompute, of.uniform)[0]


def check(of: Case) -> None:
    every = every_assignment(of)
    for limit in limits(of, every.memory, every.step):
        plan = solve_stages(stage_problem(of, limit))
        best = float(np.where(every.memory <= limit, every.step, np.inf).min())
        # The model rounds the bytes of a layer up to whole units; what fits by less it may miss.
        rounding = 4 * BYTES * of.instance.architecture.layers
        safe = float(np.where(every.memory <= limit - rounding, every.step, np.inf).min())
        if plan is None:
            assert safe == np.inf, f"an assignment of {safe} s fits {limit}"
            continue
        step, memory = figures(of, plan)
        assert allowed(of, plan), plan
        assert memory <= limit * (1 + 1e-12), f"{plan} needs {memory} of {limit}"
        assert best * (1 - 1e-12) <= step <= safe * (1 + SAME), f"{plan} takes {step}, the best takes {best}"


def allowed(of: Case, plan: StagePlan) -> bool:
    """The rules hold for the assignment: it is one of those that brute force wrote down."""
    one, layers = of.layout, of.instance.architecture.layers
    held, again = assignments(layers, one.pp, one.vpp, of.recompute, of.uniform)
    return bool(((held == plan.layers).all(axis=1) & (again == plan.recomputed).all(axis=1)).any())


@pytest.mark.parametrize("block", range(6))
def test_the_assignment_is_the_best_of_all(block: int) -> None:
    for seed in range(block * 10, block * 10 + 10):
        check(case(seed, interleaved=False))


@pytest.mark.parametrize("block", range(6))
def test_the_interleaved_assignment_is_the_best_of_all(block: int) -> None:
    for seed in range(1000 + block * 10, 1010 + block * 10):
        check(case(seed, interleaved=True))


def test_the_same_problem_gets_the_same_assignment() -> None:
    for seed in range(8):
        of = case(seed, interleaved=seed % 2 == 1)
        every = every_assignment(of)
        limit = limits(of, every.memory, every.step)[1]
        assert solve_stages(stage_problem(of, limit)) == solve_stages(stage_problem(of, limit))


def test_more_memory_never_makes_the_step_longer() -> None:
    for seed in range(12):
        of = case(seed, interleaved=False)
        every = every_assignment(of)
        low, high = float(every.memory.min()), float(every.memory.max())
        plans = [solve_stages(stage_problem(of, low + share * (high - low))) for share in (0.2, 0.5, 1.1)]
        steps = [np.inf if plan is None else figures(of, plan)[0] for plan in plans]
        assert all(b <= a * (1 + SAME) for a, b in itertools.pairwise(steps)), steps
