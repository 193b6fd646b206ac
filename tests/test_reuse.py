"""What what-ifs share changes nothing about their answers."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from random_problems import objective, problem, with_room

from planner import economics
from planner.economics import Economy
from planner.instance import Instance, Limits
from planner.search import Effort, Plan, Table, best, goal_of
from planner.search.ledger import Ledger
from planner.search.physics import counts_of, physics_of, widest, with_counts
from planner.search.reuse import Evaluation, first_batches
from planner.space.counting import Counter
from planner.space.recompute import recompute_families

SAME = 2e-7
"""Assignments closer than this are the same to the solver."""
BLOCKS, BLOCK = 3, 6


def families(instance: Instance) -> tuple[int, ...]:
    return recompute_families(instance)


def fresh(instance: Instance) -> tuple[Plan | None, Table]:
    table = Table.of(instance, goal_of(instance), families(instance))
    return best(table), table


def roomy(seed: int) -> Instance:
    """A random problem on GPUs that hold about half of its plans."""
    random = Random(seed)
    instance = problem(random)
    plan, _ = fresh(instance)
    if plan is None:
        return instance
    return with_room(instance, plan.memory * random.uniform(0.6, 1.5) / (1 - instance.limits.memory_headroom))


def what_if(random: Random, instance: Instance, plan: Plan | None) -> Instance:
    """The problem with other prices, windows, counts, objective, tokens and limits about what is possible."""
    terms, lexicographic = objective(random)
    pools = []
    for pool in instance.pools:
        most = random.randint(1, pool.max_nodes + 1)
        window = random.choice((0.0, pool.committed, random.uniform(0.1, 3.0)))
        price = random.choice((pool.price, round(random.uniform(0.3, 4.0), 2)))
        pools.append(
            replace(pool, min_nodes=random.randint(1, most), max_nodes=most, price=price, committed=window)
        )
    other = replace(
        instance,
        pools=tuple(pools),
        objective=terms,
        lexicographic=lexicographic,
        tokens=instance.tokens * random.choice((1.0, 1.0, 0.3, 7.0)),
    )
    if plan is None:
        return other
    on_all = with_counts(other, counts_of(instance))
    seconds = float(economics.run_seconds(on_all, plan.row, np.array([plan.step]))[0])
    dollars = float(economics.run_dollars(on_all, plan.row, np.array([seconds]))[0])
    deadline = random.choice((None, seconds * random.uniform(0.4, 3.0)))
    budget = random.choice((None, dollars * random.uniform(0.4, 3.0)))
    return replace(other, limits=replace(other.limits, deadline=deadline, budget=budget))


def key(instance: Instance, plan: Plan) -> tuple[float, ...]:
    economy = Economy.of(instance, plan.row)
    return tuple(float(k[0]) for k in goal_of(instance).keys(economy, np.array([plan.step])))


def differences(evaluation: Evaluation, instance: Instance) -> list[str]:
    """In what a shared answer is not the one that is found from scratch."""
    plan, table = evaluation.answer(instance, Effort())
    alone, _ = fresh(instance)
    ledger = Ledger.of(table, evaluation.recompute)
    wrong = [] if ledger.screened >= 0 and ledger.feasible >= 0 else [f"counts do not add up: {ledger}"]
    valid = Ledger.of(Table.of(instance, goal_of(instance), evaluation.recompute), evaluation.recompute).valid
    if ledger.valid != valid:
        wrong.append(f"{ledger.valid} candidates, alone {valid}")
    if (plan is None) != (alone is None):
        return [*wrong, f"shared {plan}, alone {alone}"]
    if plan is None or alone is None:
        return wrong
    if not np.allclose(key(instance, plan), key(instance, alone), rtol=SAME, atol=0.0):
        wrong.append(f"shared {key(instance, plan)}, alone {key(instance, alone)}")
    elif plan.key[:-1] != alone.key[:-1] and abs(plan.step / alone.step - 1) > SAME:
        wrong.append(f"shared {plan.key}, alone {alone.key}")
    return wrong


def shared(seed: int, number: int = 4) -> list[str]:
    random, instance = Random(seed), roomy(seed)
    plan, _ = fresh(instance)
    asked = [instance, *(what_if(random, instance, plan) for _ in range(number))]
    wide = with_counts(instance, widest([counts_of(each) for each in asked]))
    evaluation = Evaluation.of(wide, families(instance))
    return [f"seed {seed}: {wrong}" for each in asked for wrong in differences(evaluation, each)]


@pytest.mark.parametrize(
    "block", [*(pytest.param(block, marks=pytest.mark.slow) for block in range(BLOCKS - 1)), BLOCKS - 1]
)
def test_a_shared_evaluation_gives_the_plan_of_a_fresh_solve(block: int) -> None:
    wrong = [line for seed in range(block * BLOCK, (block + 1) * BLOCK) for line in shared(seed)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(6))
def test_a_shared_evaluation_gives_the_plan_of_a_fresh_solve_on_many_more(block: int) -> None:
    wrong = [line for seed in range(20_000 + block * 25, 20_025 + block * 25) for line in shared(seed, 8)]
    assert not wrong, "\n".join(wrong)


def test_answers_do_not_depend_on_what_was_asked_before():
    for seed in range(4):
        random, instance = Random(seed), roomy(seed)
        plan, _ = fresh(instance)
        asked = [what_if(random, instance, plan) for _ in range(5)]
        wide = with_counts(instance, widest([counts_of(each) for each in asked]))
        found = []
        for order in (asked, asked[::-1]):
            evaluation = Evaluation.of(wide, families(instance))
            answers = {}
            for each in order:
                best_plan, table = evaluation.answer(each, Effort())
                ledger = Ledger.of(table, evaluation.recompute)
                answers[asked.index(each)] = (best_plan and (best_plan.key, best_plan.step), ledger)
            found.append(answers)
        assert found[0] == found[1], seed


def test_what_changes_the_physics_is_not_answered_from_the_same_evaluation():
    instance = problem(Random(3))
    evaluation = Evaluation.of(instance, families(instance))
    pool = instance.pools[0]
    same = replace(
        instance,
        tokens=instance.tokens * 2,
        limits=Limits(1e6, 1e6, instance.limits.memory_headroom),
        pools=tuple(replace(each, price=9.0) for each in instance.pools),
    )
    assert evaluation.holds(same)
    assert physics_of(same) == physics_of(instance)
    for other in (
        replace(instance, seq_len=instance.seq_len * 2),
        replace(instance, max_batch=instance.max_batch * 2),
        replace(instance, limits=Limits(memory_headroom=0.3)),
        replace(instance, per_stage_recompute=not instance.per_stage_recompute),
        replace(instance, pools=(replace(pool, max_nodes=pool.max_nodes + 1), *instance.pools[1:])),
        replace(
            instance,
            pools=(
                replace(pool, fabric=replace(pool.fabric, nic=pool.fabric.nic / 2)),
                *instance.pools[1:],
            ),
        ),
    ):
        assert not evaluation.holds(other)


@pytest.mark.parametrize("seed", range(12))
def test_counts_that_are_looked_up_are_those_that_are_counted(seed: int):
    random, instance = Random(seed), problem(Random(seed), nodes=6)
    evaluation = Evaluation.of(instance, families(instance))
    fewer = what_if(random, instance, None)
    fewer = with_counts(
        fewer,
        tuple(
            (min(low, most), min(high, most))
            for (low, high), (_, most) in zip(counts_of(fewer), counts_of(instance), strict=True)
        ),
    )
    layouts, looked_up, exists = evaluation.places_of(fewer)
    counted = Counter(fewer, layouts)
    keys, rows = evaluation.book.keys, evaluation.pipelines.rows.take(np.flatnonzero(exists))
    for most in (0, 5, 13):
        for ask, asked in (("keys", keys), ("pipelines", rows)):
            least = np.array([random.randint(0, most) for _ in range(len(asked))], dtype=np.int64)
            theirs, mine = (getattr(of, ask)(asked, least) for of in (counted, looked_up))
            assert np.array_equal(theirs, mine), (ask, most)


def test_every_dp_with_its_micro_batches_has_a_number_of_its_own() -> None:
    for most in (1, 7, 60):
        first = first_batches(most)
        pairs = [(dp, m) for dp in range(1, most + 1) for m in range(most // dp + 1)]
        numbers = [int(first[dp]) + m for dp, m in pairs]
        assert sorted(set(numbers)) == list(range(len(pairs)))
        assert max(numbers) < first[-1]


def test_rows_too_many_to_be_told_apart_are_not_shared_and_the_answer_is_the_same(monkeypatch) -> None:
    for seed in range(4):
        instance = roomy(seed)
        of = families(instance)
        known, _ = Evaluation.of(instance, of).answer(instance, Effort())
        with monkeypatch.context() as patch:
            patch.setattr("planner.search.reuse.MOST_CODES", 0)
            alone = Evaluation.of(instance, of)
            assert type(alone.table(instance, goal_of(instance), of)) is Table
            plan, _ = alone.answer(instance, Effort())
        assert (plan is None) == (known is None)
        if plan is not None and known is not None:
            assert plan.step == pytest.approx(known.step, rel=1e-6)
