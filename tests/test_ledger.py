"""What the proof says became of every candidate, against counts of brute force."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import Layout, Oracle, small_problem
from random_problems import leading, overlapping, precise, problem, rounds, with_room
from searched import (
    Looks,
    blank,
    execution,
    limited,
    num_modes,
    rows_of,
    usual_families,
    values_of,
    written_down,
)

from planner.instance import Instance
from planner.relaxed import every_family
from planner.search import Table, best, goal_of
from planner.search.branch import fewer
from planner.search.goal import in_families
from planner.search.ledger import Ledger
from planner.space.columns import Candidates
from planner.space.counting import Counter
from planner.space.layouts import Multiplicity

KEY = ("pool", "executed", "tp", "cp", "ep", "etp", "micro_batch")
PIPELINE = (*KEY, "pp", "zero", "filled")
seeds = st.integers(0, 1 << 20)
kinds = st.sampled_from((problem, leading, overlapping, precise, rounds))
some = settings(max_examples=20, deadline=None, derandomize=True)
Make = Callable[[Random], Instance]


def counted(
    oracle: Oracle, names: tuple[str, ...], at_least: Callable[[Layout], int]
) -> Tally[tuple[int, ...]]:
    """Candidates on so many GPUs or more, by the values of some decisions."""
    found: Tally[tuple[int, ...]] = Tally()
    for layout in oracle.needed:
        if layout.num_gpus >= at_least(layout):
            key = values_of(oracle.instance, layout, names)
            found[key] += num_modes(oracle.instance, layout)
    return found


@some
@given(seeds, kinds)
def test_candidates_of_keys_and_pipelines_are_as_many_as_there_are(seed: int, make: Make) -> None:
    random = Random(seed)
    oracle = small_problem(random, 700, make)
    table = blank(oracle.instance)
    table.list_pipelines(np.arange(len(table.book.keys)))
    keys, pipelines = table.book.keys, table.pipelines.rows
    counter = Counter(oracle.instance, table.layouts)
    needed = {of: random.choice((0, 1, 3, 4, 5, 8, 100)) for of in rows_of(keys, KEY)}

    def at_least(layout: Layout) -> int:
        return needed[values_of(oracle.instance, layout, KEY)]

    gpus = np.array([needed[of] for of in rows_of(keys, KEY)], dtype=np.int64)
    valid, few = counter.keys(keys, gpus)
    every, enough = counted(oracle, KEY, lambda layout: 0), counted(oracle, KEY, at_least)
    assert valid.tolist() == [every[of] for of in rows_of(keys, KEY)]
    assert (valid - few).tolist() == [enough[of] for of in rows_of(keys, KEY)]
    enough = counted(oracle, PIPELINE, at_least)
    number = counter.pipelines(pipelines, gpus[pipelines.key])
    assert number.tolist() == [enough[of] for of in rows_of(pipelines, PIPELINE)]
    assert valid.sum() == every.total()
    assert number.sum() == enough.total()


@some
@given(seeds, kinds)
def test_everything_written_down_is_every_candidate_once(seed: int, make: Make) -> None:
    oracle = small_problem(Random(seed), 700, make)
    instance = oracle.instance
    table, number = written_down(instance), Multiplicity.of(instance)
    every = counted(oracle, (), lambda layout: 0).total()
    assert number.of_rows(table.groups.rows).sum() == every
    assert number.of_rows(table.rows.rows).sum() == every
    found = written_out(instance, table.rows.rows)
    assert len(found) == len(set(found))
    assert set(found) == set(oracle.needed)


def written_out(instance: Instance, rows: Candidates) -> list[Layout]:
    """Each number of micro-batches of each row as a candidate."""
    names = (
        "pool",
        "tp",
        "cp",
        "pp",
        "vpp",
        "dp",
        "ep",
        "etp",
        "micro_batch",
        "zero",
        "zero_scope",
        "variant",
        "m_low",
        "m_high",
    )
    found = []
    for row in rows_of(rows, names):
        of = dict(zip(names, row, strict=True))
        low, high = of.pop("m_low"), of.pop("m_high")
        how = execution(instance, of.pop("variant"))
        step = of["pp"] if of["vpp"] > 1 else 1
        found += [Layout(**of, **how, num_microbatches=m) for m in range(low, high + 1, step)]
    return found


@some
@given(seeds, kinds, st.booleans())
def test_a_row_that_is_split_by_its_micro_batches_loses_none(seed: int, make: Make, every: bool) -> None:
    """Where each smaller number needs less memory, as in a pipeline that does not fill; or where all are asked for."""
    table = written_down(small_problem(Random(seed), 300, make).instance)
    rows = table.rows.rows
    for index in np.flatnonzero((rows.m_low < rows.m_high) & (every | (rows.filled == 0)))[:30].tolist():
        row = table.rows.rows.take(np.array([index]))
        child = fewer(table, index, row, every)
        after = written_out(table.instance, table.rows.rows.take(np.append(child, index)))
        assert len(child) == 1
        assert len(after) == len(set(after))
        assert set(after) == set(written_out(table.instance, row))


def broken(oracle: Oracle, instance: Instance) -> dict[str, int]:
    """Candidates by what no assignment of theirs keeps to; beside memory, of those that fit it."""
    answers = {of.layout: of for of in oracle.answers(instance)}
    limits, found = instance.limits, dict.fromkeys(("valid", "memory", "deadline", "budget", "within"), 0)
    for layout in oracle.needed:
        answer, number = answers.get(layout), num_modes(instance, layout)
        late = answer is not None and limits.deadline is not None and answer.seconds > limits.deadline
        dear = answer is not None and limits.budget is not None and answer.dollars > limits.budget
        found["valid"] += number
        found["memory"] += number * (answer is None)
        found["deadline"] += number * late
        found["budget"] += number * dear
        found["within"] += number * (answer is not None and not late and not dear)
    return found


def check(oracle: Oracle, instance: Instance, ledger: Ledger) -> None:
    counts, rejected = broken(oracle, instance), ledger.rejected
    parts = (*rejected.values(), ledger.screened, ledger.bounded, ledger.solved)
    assert ledger.valid == counts["valid"] == sum(parts)
    assert min(parts) >= 0
    assert ledger.feasible >= counts["within"]
    # What does not fit memory may be told to break another limit, where that was seen first.
    assert rejected.get("memory", 0) <= counts["memory"]
    for limit in ("deadline", "budget"):
        assert rejected.get(limit, 0) <= counts[limit] + counts["memory"]
        assert limit not in rejected or getattr(instance.limits, limit) is not None


@pytest.mark.parametrize("block", range(6))
def test_each_candidate_is_counted_once_and_rejected_only_if_it_breaks_a_limit(block: int) -> None:
    for seed in range(block * 10, block * 10 + 10):
        oracle, instance = limited(seed, 700, (problem, leading, overlapping)[seed % 3])
        table, usual = Table.of(instance, goal_of(instance), every_family(instance)), usual_families(instance)
        plan = best(table, in_families(usual))
        ledger = Ledger.of(table, usual)
        check(oracle, instance, ledger)
        assert (ledger.solved > 0) == (plan is not None)
        # Where nothing is within the limits, each candidate is ruled out by one of them.
        assert plan is not None or ledger.feasible == 0


@some
@given(seeds, kinds)
def test_where_nothing_fits_memory_all_candidates_are_rejected_by_it(seed: int, make: Make) -> None:
    oracle = small_problem(Random(seed), 300, make)
    low, _ = oracle.memory_range()
    instance = with_room(oracle.instance, low * 0.5)
    table = blank(instance)
    assert best(table) is None
    ledger = Ledger.of(table, usual_families(instance))
    assert ledger.rejected == {"memory": ledger.valid}
    assert ledger.feasible == 0


@some
@given(seeds, st.sampled_from((0, 4, 7, 10, 14)))
def test_out_of_time_every_candidate_is_counted_once_as_well(seed: int, looks: int) -> None:
    oracle, instance = limited(seed)
    table = blank(instance)
    best(table, effort=Looks(looks))
    check(oracle, instance, Ledger.of(table, usual_families(instance)))
