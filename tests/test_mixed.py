"""Plans on two pools: what they are predicted to take, that the best one is found, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from mixed_lasting import mixed_lasting
from mixed_oracle import MixedAnswer, MixedOracle, answer, shares_of, small_mixed_problem, with_mixed_limits
from mixed_problems import mixed_problem, on_a_site
from oracle import objective, within

from costmodel.cards import load_card
from costmodel.estimate import estimate
from costmodel.flops import model_flops_per_token, recomputed_flops_per_token
from costmodel.mixed import Mixed, Part
from costmodel.mixed_estimate import estimate_mixed
from costmodel.run import Fabric, Run
from costmodel.stack import load_stack
from hardware.catalogue import load_accelerator
from planner.frontier import frontier
from planner.instance import Instance
from planner.mixed import best_of_pairs, front_of_pairs
from planner.problem import Problem, parse_problem
from planner.required import requirements_of, with_requirements
from planner.requirements import Requirement
from planner.solve import solve
from planner.validate import violations

LAYERS = [10] * 8
NO_LIMIT = 1e15


def run(gpu: str = "H800", **changes: int) -> Run:
    of = load_accelerator(gpu)
    decided = {
        "tp": 8, "cp": 1, "pp": 8, "vpp": 1, "dp": 8, "ep": 1, "etp": 1,
        "micro_batch": 1, "num_microbatches": 32, "zero": 1,
    }  # fmt: skip
    stack, card = load_stack("megatron-core"), load_card("llama-2-70b")
    return Run(card, of, Fabric.of(of), stack, 4096, "bf16", frozenset(), **decided | changes)


def staged(first: str, second: str, split: int, link: float = NO_LIMIT) -> Mixed:
    return Mixed((Part(run(first), range(split)), Part(run(second), range(split, 8))), link)


def replicated(first: str, second: str, dp: tuple[int, int], m: tuple[int, int]) -> Mixed:
    parts = [
        Part(run(gpu, dp=d, num_microbatches=n), range(8))
        for gpu, d, n in zip((first, second), dp, m, strict=True)
    ]
    return Mixed((parts[0], parts[1]), NO_LIMIT)


# ---------------------------------------------------------------------------------------------------
# What they take


@pytest.mark.parametrize("split", [1, 3, 7])
def test_stages_on_two_pools_of_one_gpu_are_a_plan_on_one_pool(split: int) -> None:
    alone, mixed = estimate(run(), LAYERS), estimate_mixed(staged("H800", "H800", split), LAYERS)
    assert mixed.step_time == pytest.approx(alone.step_time, rel=1e-12)
    assert mixed.mfu == pytest.approx(alone.mfu, rel=1e-12)
    assert max(float(of.total) for of in mixed.memory) == pytest.approx(float(alone.memory.total), rel=1e-12)
    assert mixed.breakdown == pytest.approx(alone.breakdown, rel=1e-9, abs=1e-12)


def test_replicas_on_two_pools_of_one_gpu_are_a_plan_on_one_pool() -> None:
    alone = estimate(run(), LAYERS)
    mixed = estimate_mixed(replicated("H800", "H800", (3, 5), (32, 32)), LAYERS)
    assert mixed.step_time == pytest.approx(alone.step_time, rel=1e-12)
    assert [float(of.total) for of in mixed.memory] == pytest.approx(
        [float(alone.memory.total)] * 2, rel=1e-12
    )


def test_a_slower_link_is_never_faster() -> None:
    steps = [
        estimate_mixed(staged("H800", "H20", 5, link), LAYERS).step_time for link in (1e8, 1e9, 1e10, 1e11)
    ]
    assert steps == sorted(steps, reverse=True)
    assert steps[0] > 1.01 * steps[-1]


def test_layers_that_follow_the_speed_of_their_gpu_are_quicker_than_even_ones() -> None:
    even = estimate_mixed(staged("H800", "H20", 4), LAYERS).step_time
    assert estimate_mixed(staged("H800", "H20", 4), [16, 16, 16, 16, 4, 4, 4, 4]).step_time < 0.6 * even


def test_replicas_wait_for_the_slower_type_unless_it_runs_fewer_micro_batches() -> None:
    alike = estimate_mixed(replicated("H800", "H20", (8, 8), (32, 32)), LAYERS)
    uneven = estimate_mixed(replicated("H800", "H20", (8, 8), (56, 8)), LAYERS)
    assert uneven.step_time < 0.5 * alike.step_time


# ---------------------------------------------------------------------------------------------------
# Against brute force


def non_dominated(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for seconds, dollars in sorted(points):
        if not found or dollars < found[-1][1] * (1 - 1e-7):
            found.append((seconds, dollars))
    return found


def covered(points: list[tuple[float, float]], by: list[tuple[float, float]]) -> bool:
    """Whether each point has one that is no worse, but for what integer units round."""
    return all(any(s <= t * (1 + 3e-6) and d <= c * (1 + 3e-6) for s, d in by) for t, c in points)


def holds(
    oracle: MixedOracle, instance: Instance, seed: int, kept: Callable[[MixedAnswer], bool] = lambda of: True
) -> None:
    answers: list[MixedAnswer] = within(instance, oracle.answers(instance))  # type: ignore[arg-type]
    agrees(instance, [of for of in answers if kept(of)], seed)


def agrees(instance: Instance, answers: list[MixedAnswer], seed: int) -> None:
    """Whether the best plan and the frontier are those of all answers within the limits."""
    wanted = min((objective(instance, of.seconds, of.dollars) for of in answers), default=None)
    search = best_of_pairs(instance)
    assert search.complete
    best = search.best
    assert (best is None) == (wanted is None), f"seed {seed}"
    if best is not None and wanted is not None:
        assert objective(instance, best.seconds, best.dollars)[0] == pytest.approx(wanted[0], rel=2e-6), seed
    points = non_dominated([(of.seconds, of.dollars) for of in answers])
    found = [(of.seconds, of.dollars) for of in front_of_pairs(instance, ()).plans]
    assert covered(points, found), f"seed {seed}: {points} and {found}"
    assert covered(found, points), f"seed {seed}: {points} and {found}"


def checked(seed: int) -> None:
    random = Random(seed)
    make = mixed_problem if seed % 3 else on_a_site
    oracle = small_mixed_problem(random, make=make)
    holds(oracle, with_mixed_limits(random, oracle), seed)


@pytest.mark.parametrize("block", [0, 3, *(pytest.param(block, marks=pytest.mark.slow) for block in (1, 2))])
def test_best_plan_and_frontier_equal_brute_force(block: int) -> None:
    for seed in range(10 * block, 10 * (block + 1)):
        checked(seed)


def hfu_of(of: MixedAnswer, instance: Instance) -> float:
    """HFU of an answer of brute force."""
    model, layout = instance.architecture, of.layout
    start, whole = np.cumsum(of.layers) - of.layers, {}
    for kind in model.kinds:
        before = np.concatenate([[0], np.cumsum(np.array(model.pattern()) == kind)])
        whole[kind] = int((before[start + of.recomputed] - before[start]).sum())
    share = instance.stack.recompute.per_op_share
    flops = float(model_flops_per_token(model, instance.seq_len)) + float(
        recomputed_flops_per_token(model, instance.seq_len, layout.modules, whole, per_op_share=share)
    )
    pools = (instance.pools[pool] for pool in layout.pools)
    peak = sum(n * pool.gpu.peak_flops["bf16"] for n, pool in zip(layout.num_gpus, pools, strict=True))
    return flops * layout.batch * instance.seq_len / of.step / peak


def checked_with_hfu(seed: int, make: Callable[[Random], Instance] | None = None) -> bool:
    """With a required HFU that some stage assignments have; whether any layout has it with other stages only."""
    random = Random(seed)
    usual_make = on_a_site if seed % 3 == 0 else mixed_problem
    oracle = small_mixed_problem(random, make=make or usual_make)
    instance = with_mixed_limits(random, oracle)
    every = {of: hfu_of(of, instance) for of in every_assignment(oracle, instance)}
    least = float(np.quantile([*every.values()] or [0.5], random.choice((0.5, 0.9, 0.99)))) * 0.99999
    required = with_requirements(instance, [*requirements_of(instance), Requirement("hfu", ">=", (least,))])
    kept: dict[Any, MixedAnswer] = {}
    for of, share in every.items():
        if share >= least and (of.layout not in kept or of.step < kept[of.layout].step):
            kept[of.layout] = of
    answers: list[MixedAnswer] = within(instance, list(kept.values()))  # type: ignore[arg-type]
    agrees(required, answers, seed)
    usual = {of.layout: of for of in oracle.answers(instance)}
    return any(every.get(usual[at], 0.0) < least for at in kept)


def every_assignment(oracle: MixedOracle, instance: Instance) -> list[MixedAnswer]:
    """All stage assignments of all layouts that fit."""
    found: list[MixedAnswer] = []
    for of in oracle.priced:
        rooms = [instance.pools[i].memory_limit(instance.limits.memory_headroom) for i in of.layouts[0].pools]
        fits = (of.memory[0] <= rooms[0]) & (of.memory[1] <= rooms[1]) & np.isfinite(of.step)
        for row, one in zip(*np.nonzero(fits), strict=True):
            found += answer(instance, of, of.layouts[row], int(row), int(one))
    return found


def test_best_plan_and_frontier_with_a_required_hfu_equal_brute_force() -> None:
    assert sum(checked_with_hfu(seed) for seed in range(5)) > 0


@pytest.mark.slow
def test_best_plan_and_frontier_with_a_required_hfu_equal_brute_force_on_many_more() -> None:
    assert sum(checked_with_hfu(seed) for seed in range(4000, 4066)) > 12


def checked_with_goodput(seed: int) -> bool:
    """With a required goodput that some pairs of pools have, or a little more; whether any plan breaks it."""
    random = Random(seed)
    oracle = small_mixed_problem(random, make=on_a_site)
    instance = with_mixed_limits(random, oracle)

    def goodput(of: MixedAnswer) -> float:
        shares = shares_of(instance, of.layout)
        return mixed_lasting(instance, shares, of.layout.replicas, of.layout.batch, of.step).goodput

    answers = oracle.answers(instance) or oracle.answers(oracle.instance)
    least = goodput(random.choice(answers)) * random.choice((0.99999, 1.00001))
    required = with_requirements(
        instance, [*requirements_of(instance), Requirement("goodput", ">=", (least,))]
    )
    holds(oracle, required, seed, lambda of: goodput(of) >= least)
    return any(goodput(of) < least for of in answers)


def test_best_plan_and_frontier_with_a_required_goodput_equal_brute_force() -> None:
    assert sum(checked_with_goodput(seed) for seed in range(5)) > 1


@pytest.mark.slow
def test_best_plan_and_frontier_with_a_required_goodput_equal_brute_force_on_many_more() -> None:
    assert sum(checked_with_goodput(seed) for seed in range(3000, 3120)) > 30


@pytest.mark.slow
@pytest.mark.parametrize("block", range(8))
def test_best_plan_and_frontier_equal_brute_force_on_many_more(block: int) -> None:
    for seed in range(1000 + 30 * block, 1000 + 30 * (block + 1)):
        checked(seed)


def test_hidden_expert_traffic_leaves_no_plan_on_two_pools() -> None:
    """No stages of theirs are interleaved, whatever else they are."""
    random, found = Random(0), 0
    while found < 3:
        instance = small_mixed_problem(random).instance
        if instance.architecture.moe is None or best_of_pairs(instance).best is None:
            continue
        found += 1
        allowed = instance.narrowing.allowed | {"ep_overlap": (True,)}
        hidden = replace(instance, narrowing=replace(instance.narrowing, allowed=allowed))
        assert MixedOracle.of(hidden) is not None
        assert best_of_pairs(hidden).best is None


# ---------------------------------------------------------------------------------------------------
# What is said of it


def job(*, h20_price: str = "0.8 USD/gpu-hour", objective_of: str = "time", forms: str = "") -> Problem:
    data = {
        "name": "fleet",
        "model": "llama-2-7b",
        "training": {"tokens": "300B", "seq_len": 4096, "global_batch": "512 sequences"},
        "hardware": [
            {"gpu": "H800", "nodes": 4, "price": "2 USD/gpu-hour"},
            {"gpu": "H20", "nodes": 4, "price": h20_price},
        ],
        "objective": objective_of,
        "search": {"tp": [1, 2, 4], "cp": 1, "micro_batch": [1, 2], "pp": [1, 2, 4, 5], "framework": "any"},
        "mixing": {"network": "25 GB/s"} | ({"forms": [forms]} if forms else {}),
    }
    return parse_problem(data)


def test_two_pools_are_quicker_than_one_and_the_solution_says_by_how_much() -> None:
    problem = job()
    solution = solve(problem)
    mixed, single = solution.plans
    assert solution.mixing is not None
    assert solution.mixing.better
    assert mixed.decisions.mixed is not None
    assert single.decisions.mixed is None
    assert not violations(problem, mixed)
    assert mixed.estimate.days < single.estimate.days
    assert solution.mixing.effect["days"] == pytest.approx(mixed.estimate.days - single.estimate.days)
    assert f"{single.estimate.days - mixed.estimate.days:.2f} days shorter" in solution.mixing.text
    gpu = next(reason for reason in mixed.reasons if reason.decision == "gpu")
    assert gpu.effect["days"] == pytest.approx(single.estimate.days - mixed.estimate.days)


def test_the_cheapest_plan_is_not_mixed_where_one_pools_tokens_are_dearer_and_the_solution_says_why() -> None:
    solution = solve(job(objective_of="cost", forms="replicas"))
    assert solution.mixing is not None
    assert not solution.mixing.better
    assert solution.mixing.plan is not None
    (single,) = solution.plans
    dearer = solution.mixing.plan.estimate.dollars - single.estimate.dollars
    assert dearer > 0
    assert f"${dearer:,.0f} dearer" in solution.mixing.text
    assert "times as much on it" in solution.mixing.text


def test_what_is_said_of_the_slower_gpu_follows_its_price() -> None:
    texts = [
        solve(job(objective_of="cost", forms="replicas", h20_price=f"{price} USD/gpu-hour")).mixing
        for price in (0.8, 1.6)
    ]
    said = [verdict.text for verdict in texts if verdict is not None]
    assert "for 0.40 of its price" in said[0]
    assert "for 0.80 of its price" in said[1]


def test_a_deadline_that_no_single_pool_meets_is_met_by_two() -> None:
    fast = solve(job()).plans[0].estimate.days
    slow = solve(job()).plans[1].estimate.days
    data = job().as_written() | {"limits": {"deadline": f"{(fast + slow) / 2} days"}, "objective": "cost"}
    problem = parse_problem(data)
    solution = solve(problem)
    assert solution.status == "optimal"
    assert solution.plans[0].decisions.mixed is not None
    assert not violations(problem, solution.plans[0])
    assert solution.mixing is not None
    assert "No single pool has a plan within the limits" in solution.mixing.text


def test_a_frontier_holds_mixed_plans_where_they_are_quicker_and_single_ones_where_they_are_cheaper() -> None:
    problem = job(forms="replicas")
    found = frontier(problem)
    assert found.status == "optimal"
    quickest, cheapest = found.points[0], found.points[-1]
    assert quickest.decisions.mixed == "replicas"
    assert cheapest.decisions.mixed is None
    assert all(not violations(problem, point) for point in found.points)
    days = [point.estimate.days for point in found.points]
    dollars = [point.estimate.dollars for point in found.points]
    assert days == sorted(days)
    assert dollars == sorted(dollars, reverse=True)
    assert quickest.estimate.days == pytest.approx(solve(problem).plans[0].estimate.days)


def test_out_of_time_the_gap_is_no_smaller_than_the_real_one() -> None:
    from time import monotonic

    from planner.resolve import instance_of
    from planner.search import Effort

    instance = instance_of(job())
    whole = best_of_pairs(instance)
    assert whole.best is not None
    part = best_of_pairs(instance, Effort(until=monotonic() + 0.15))
    if part.best is not None:
        real = (part.best.seconds - whole.best.seconds) / part.best.seconds
        assert part.gap(part.achieved) >= real - 1e-9
    assert whole.gap(whole.achieved) == 0


def test_mixed_plans_of_equal_problems_are_equal() -> None:
    from planner.resolve import instance_of

    first, second = (best_of_pairs(instance_of(job())).best for _ in range(2))
    assert first == second


def test_more_of_the_second_pool_is_never_slower() -> None:
    from planner.resolve import instance_of

    times = []
    for nodes in (1, 2, 4):
        instance = instance_of(job())
        pools = (instance.pools[0], replace(instance.pools[1], min_nodes=1, max_nodes=nodes))
        best = best_of_pairs(replace(instance, pools=pools)).best
        assert best is not None
        times.append(best.seconds)
    assert times == sorted(times, reverse=True)
    assert np.isfinite(times).all()


def test_a_number_of_micro_batches_that_makes_no_batch_is_not_looked_at_layout_by_layout() -> None:
    from planner.resolve import instance_of

    free = instance_of(job())
    for number, framework in ((511, "any"), (3, "megatron"), (511, "megatron")):
        narrowing = replace(free.narrowing, allowed=free.narrowing.allowed | {"num_microbatches": (number,)})
        search = best_of_pairs(replace(free, narrowing=narrowing, framework=framework))
        assert search.complete
        assert search.best is None
        assert (search.layouts, search.solved) == (0, 0)


def test_few_stage_assignments_are_solved_for_the_best_plan() -> None:
    from planner.problem import load_problem
    from planner.resolve import instance_of

    # Bounds that are closer than whole layers leave little to solve: 63 of them with a coarser least pace.
    search = best_of_pairs(instance_of(load_problem("problems/70b_two_pools.yaml")))
    assert search.best is not None
    assert search.solved <= 5


def test_reasons_are_the_same_every_time() -> None:
    first, second = (solve(job(forms="stages")).plans[0] for _ in range(2))
    assert first.reasons == second.reasons
    gpu = first.decisions.parts[0].gpu
    asked = {reason.decision for reason in first.reasons}
    assert asked >= {"gpu", "first_ranks", "tp", f"ranks of {gpu}", f"layers of {gpu}"}
