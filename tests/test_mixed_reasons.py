"""Reasons of plans on two pools: each against brute force over plans on two pools and on one."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from mixed_oracle import Keep, MixedOracle, small_mixed_problem, with_mixed_limits
from mixed_problems import mixed_problem
from oracle import Oracle, objective, within

from planner.instance import Instance
from planner.mixed import MixedPlan, best_of_pairs
from planner.mixed.questions import MixedQuestion, questions, value_of
from planner.mixed.reasons import answers, better_than, keys_if_any, told, why_none
from planner.mixed.shortfall import loosened
from planner.relaxed import every_family
from planner.search import Effort, Plan, Table, best, goal_of
from planner.search.goal import in_families
from planner.space.recompute import recompute_families, variants

MOST, MOST_ASSIGNMENTS = 4000, 150_000


def asked_problem(random: Random) -> Instance:
    """A mixed problem whose requirements brute force over single pools does not know either."""
    instance = mixed_problem(random)
    return replace(instance, narrowing=replace(instance.narrowing, required=()))


def nodes(instance: Instance, pools: tuple[int, ...], gpus: tuple[int, ...], entry: int) -> int:
    """Nodes of one pool of the hardware."""
    of = ((instance.pools[index], n) for index, n in zip(pools, gpus, strict=True))
    return sum(n // pool.fabric.gpus_per_node for pool, n in of if pool.entry == entry)


def side_of(instance: Instance, plan: MixedPlan, name: str) -> int:
    """Which of a plan's pools a reason is about."""
    pools = [instance.pools[index] for index in plan.pools]
    called = [{pool.gpu.name, f"{pool.gpu.name} (pool {pool.entry + 1})"} for pool in pools]
    return next((side for side, names in enumerate(called) if name in names), 0)


def recomputed(instance: Instance, plan: MixedPlan) -> frozenset[str]:
    """Modules that a plan recomputes in every layer."""
    return variants(instance.framework)[plan.variant].modules


def other_recompute(instance: Instance, plan: MixedPlan, layout: Any, layers: Any, again: Any) -> Any:
    """Which assignments recompute otherwise; against none of it, `full` is recompute of every layer."""
    mine = bool(recomputed(instance, plan))
    if mine or layout.modules:
        return np.full(len(again), mine != bool(layout.modules))
    if any(plan.stages.recomputed):
        return ~again.any(axis=1)
    return (again == layers).all(axis=1)


def of_mixed(instance: Instance, decision: str, plan: MixedPlan) -> Keep:
    """Which mixed plans decide otherwise than a plan."""
    what, _, name = decision.partition(" of ")
    side = side_of(instance, plan, name)
    entry = instance.pools[plan.pools[side]].entry

    def keep(of: Any, layers: Any, again: Any) -> Any:
        same = (of.form, of.pools) == (plan.form, plan.pools)
        own = {
            "gpu": lambda: set(of.pools) != set(plan.pools),
            "mixed": lambda: of.form != plan.form,
            "first_ranks": lambda: of.form == "stages" and of.pools == plan.pools[::-1],
            "nodes": lambda: nodes(instance, of.pools, of.num_gpus, entry)
            != nodes(instance, plan.pools, plan.num_gpus, entry),
            "num_gpus": lambda: sum(of.num_gpus) != sum(plan.num_gpus),
            "dp": lambda: of.replicas != plan.replicas,
            "recompute": lambda: other_recompute(instance, plan, of, layers, again),
            "recompute_modules": lambda: bool(of.modules) and of.modules != recomputed(instance, plan),
            "num_microbatches": lambda: of.num_microbatches[0] != plan.num_microbatches[0],
            "ranks": lambda: same and of.split != plan.split,
            "layers": lambda: same * (layers[:, : of.split].sum(axis=1) != sum(plan.stages.layers[: plan.split])),
            "replicas": lambda: same and of.dp[side] != plan.dp[side],
            "micro-batches": lambda: same and of.num_microbatches[side] != plan.num_microbatches[side],
            "precision": lambda: instance.pools[of.pools[0]].precision != instance.pools[plan.pools[0]].precision,
        }  # fmt: skip
        found = own[what]() if what in own else getattr(of, what) != getattr(plan, what)
        return np.ones(len(layers), dtype=bool) & found

    return keep


def of_single(instance: Instance, decision: str, plan: MixedPlan) -> Keep | None:
    """Which plans on one pool decide otherwise; None where they have no such decision."""
    what, _, name = decision.partition(" of ")
    if what in ("mixed", "first_ranks", "ranks", "layers", "replicas", "micro-batches"):
        return None

    def keep(of: Any, layers: Any, again: Any) -> Any:
        if what == "gpu":
            found: Any = True
        elif what == "nodes":
            entry = instance.pools[plan.pools[side_of(instance, plan, name)]].entry
            mine = nodes(instance, plan.pools, plan.num_gpus, entry)
            found = nodes(instance, (of.pool,), (of.num_gpus,), entry) != mine
        elif what == "recompute":
            found = other_recompute(instance, plan, of, layers, again)
        elif what == "recompute_modules":
            found = bool(of.modules) and of.modules != recomputed(instance, plan)
        elif what == "precision":
            found = instance.pools[of.pool].precision != instance.pools[plan.pools[0]].precision
        else:
            found = getattr(of, what) != value_of(what, instance, plan)
        return np.ones(len(layers), dtype=bool) & found

    return keep


def least(instance: Instance, oracle: MixedOracle, alone: Oracle, decision: str, plan: MixedPlan) -> Any:
    """The best value of the objective of plans of either kind that decide otherwise; None without any."""
    found: list[Any] = list(oracle.answers(instance, of_mixed(instance, decision, plan)))
    single = of_single(instance, decision, plan)
    found += [] if single is None else alone.answers(instance, single)
    return min(
        (objective(instance, of.seconds, of.dollars)[0] for of in within(instance, found)), default=None
    )


def objective_of(plan: MixedPlan | Plan | None, instance: Instance) -> float:
    assert plan is not None
    of = told(instance, plan).estimate
    return objective(instance, of.days * 86400.0, of.dollars)[0]


def limits_are_named(
    instance: Instance, oracle: MixedOracle, alone: Oracle, plan: MixedPlan, asked: list[MixedQuestion]
) -> None:
    """Where no plan decides otherwise, the limit named is the first without which one does."""
    named = why_none(instance, asked, Effort(), {})
    for question, short in zip(asked, named, strict=True):
        assert short is not None
        limit, words = short
        first = next(
            (
                free.limit
                for free in loosened(instance)
                if free.limit != "memory"
                and least(free.instance, oracle, alone, question.decision, plan) is not None
            ),
            None,
        )
        assert limit == first or (first is None and limit in ("memory", "search")), question.decision
        assert words


def asked(seed: int) -> int:
    """Compares all reasons of one problem's best mixed plan; how many."""
    random = Random(seed)
    oracle = small_mixed_problem(random, make=asked_problem)
    alone = Oracle.of(oracle.instance, MOST, MOST_ASSIGNMENTS)
    if alone is None:
        return 0
    instance = with_mixed_limits(random, oracle)
    search = best_of_pairs(instance)
    plan = search.best
    if plan is None:
        return 0
    table = Table.of(instance, goal_of(instance), every_family(instance))
    single = best(table, in_families(recompute_families(instance)))
    found = answers(instance, list(questions(instance, plan)), table, single, search.effort, search.memo)
    assert found
    limits_are_named(instance, oracle, alone, plan, [of.question for of in found if of.plan is None])
    wins = better_than(instance, keys_if_any(instance, single))[0]
    both = [plan, *([] if single is None else [single])]
    assert (
        wins is None or wins.key == plan.key or objective_of(wins, instance) == objective_of(plan, instance)
    )
    assert objective_of(single if wins is None else wins, instance) == min(
        objective_of(of, instance) for of in both
    )
    for each in found:
        decision = each.question.decision
        wanted = least(instance, oracle, alone, decision, plan)
        assert (each.plan is None) == (wanted is None), f"seed {seed}: {decision}"
        if each.plan is not None:
            assert objective_of(each.plan, instance) == pytest.approx(wanted, rel=2e-6), (
                f"seed {seed}: {decision}"
            )
            assert isinstance(each.plan, MixedPlan) or each.question.of_both
            assert each.question.value(instance, each.plan) != each.question.chosen
    return len(found)


@pytest.mark.parametrize("seeds", [(0, 2, 11), (9, 19, 25)])
def test_reasons_equal_brute_force(seeds: tuple[int, ...]) -> None:
    assert sum(asked(seed) for seed in seeds) > 30


@pytest.mark.slow
@pytest.mark.parametrize("block", range(6))
def test_reasons_equal_brute_force_on_many_more(block: int) -> None:
    assert sum(asked(seed) for seed in range(2000 + 40 * block, 2000 + 40 * (block + 1))) > 100
