"""Searches of other hardware that begin with what memory leaves on roomier hardware: same answers, less work."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from oracle import Oracle, small_problem
from random_problems import leading, problem, with_room
from searched import value, values_of
from test_bounds import PIPELINE, by_key, quickest

from planner.instance import Instance
from planner.report.data import report_data
from planner.report.sensitivity import with_link, with_memory
from planner.search import Table, best, bounded, goal_of, pipelines, traffic
from planner.search.stricter import cost_ratio, stricter
from planner.solution import Solution
from planner.space.columns import FULL
from planner.space.recompute import recompute_families

ROOT = Path(__file__).parent.parent
USUAL = pipelines.HALVINGS


def blank(instance: Instance) -> Table:
    return Table.of(instance, goal_of(instance), recompute_families(instance))


def changed(instance: Instance, memory: float, nvlink: float, nic: float) -> Instance:
    """The instance with so many times the memory and the links."""
    pools = tuple(
        with_link("nic", with_link("nvlink", with_memory(pool, memory), nvlink), nic)
        for pool in instance.pools
    )
    return replace(instance, pools=pools)


def tightened(seed: int) -> tuple[Oracle, Instance]:
    """A random problem, and the same where memory matters."""
    random = Random(seed)
    oracle = small_problem(random, 200, random.choice((problem, leading)))
    low, high = oracle.memory_range()
    return oracle, with_room(oracle.instance, low + random.choice((0.05, 0.3, 0.7)) * (high - low))


def tight(seed: int) -> Instance:
    """A random problem in which memory matters."""
    return tightened(seed)[1]


def fitted(instance: Instance, monkeypatch: pytest.MonkeyPatch, halvings: int) -> Table:
    """All pipelines with what memory leaves of them."""
    monkeypatch.setattr(pipelines, "HALVINGS", halvings)
    of = blank(instance)
    of.list_pipelines(np.arange(len(of.book.keys)))
    of.pipelines.fit(of.book, np.arange(len(of.pipelines)), of.layouts)
    return of


def codes(of: Table) -> list[tuple[int, ...]]:
    rows = of.pipelines.rows
    names = (rows.key, rows.pp, rows.zero, rows.filled)
    return list(zip(*(column.tolist() for column in names), strict=True))


@pytest.mark.parametrize("block", range(2))
def test_a_stricter_search_finds_what_a_search_from_nothing_finds(block: int) -> None:
    plans = 0
    for seed in range(6 * block, 6 * block + 6):
        instance, random = tight(seed), Random(seed)
        roomiest = blank(changed(instance, 1.1, 1, 1))
        best(roomiest)
        for _ in range(3):
            links = [random.choice((0.5, 0.9, 1.0, 1.1, 2.0)) for _ in range(2)]
            other = changed(instance, random.choice((0.9, 1.0, 1.1)), *links)
            expected = value(other, best(blank(other)))
            assert value(other, best(stricter(roomiest, other, goal_of(other)))) == pytest.approx(expected)
            plans += np.isfinite(expected)
    assert plans > 10


def test_what_a_stricter_search_begins_with_bounds_what_memory_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raised = 0
    for seed in range(12):
        instance = tight(seed)
        roomiest = fitted(changed(instance, 1.1, 1, 1), monkeypatch, 40)
        for memory, nvlink, nic in ((0.9, 1, 1), (1, 0.8, 1), (1, 1.25, 1), (1, 1, 0.8), (0.95, 1.1, 1.3)):
            other = changed(instance, memory, nvlink, nic)
            first, true = stricter(roomiest, other, goal_of(other)), fitted(other, monkeypatch, 40)
            assert codes(first) == codes(true)
            assert (first.pipelines.slowest <= true.pipelines.slowest * (1 + 1e-6)).all()
            assert (first.pipelines.extra <= true.pipelines.extra * (1 + 1e-6) + 1e-12)[
                np.isfinite(true.pipelines.slowest)
            ].all()
            raised += int((first.pipelines.slowest > blank_bound(other)).sum())
    assert raised > 100


def blank_bound(instance: Instance) -> np.ndarray:
    """What pipelines take at least whatever memory allows."""
    of = blank(instance)
    of.list_pipelines(np.arange(len(of.book.keys)))
    return of.pipelines.slowest


def test_costs_shrink_by_no_more_than_links_grow() -> None:
    shrunk = 0
    for seed in range(10):
        instance = tight(seed)
        ratio = cost_ratio(blank(instance).book, blank(changed(instance, 1, 2, 2)).book)
        assert ((ratio >= 0.5 - 1e-12) & (ratio <= 1 + 1e-12)).all()
        shrunk += int((ratio < 0.99).sum())
    assert shrunk


def test_pipelines_that_a_search_does_not_write_down_have_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    left_out = 0
    # However few there are of a layer key.
    monkeypatch.setattr(pipelines, "MANY", 0)
    for seed in range(30):
        instance = tight(seed)
        every, some = fitted(instance, monkeypatch, 5), blank(instance)
        some.list_pipelines(np.arange(len(some.book.keys)), roomy=True)
        missing = np.array([code not in set(codes(some)) for code in codes(every)], dtype=bool)
        assert np.isinf(every.pipelines.slowest[missing]).all(), seed
        left_out += int(missing.sum())
    assert left_out > 100


def test_few_halvings_say_nearly_what_many_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """All layers on one rank are no bracket: halving from there a few times stays at the lower end."""
    for seed in range(15):
        instance = tight(seed)
        few, many = (fitted(instance, monkeypatch, n).pipelines.slowest for n in (USUAL, 40))
        fits = np.isfinite(many)
        near = many < 3 * blank_bound(instance)
        assert (few[fits & near] >= 0.9 * many[fits & near]).all(), seed


def test_no_assignment_beats_what_its_pipeline_moves_among_as_many_replicas() -> None:
    raised = 0
    for seed in range(25):
        oracle, instance = tightened(seed)
        if instance.assume_mfu is not None:
            continue
        of = blank(instance)
        of.list_pipelines(np.arange(len(of.book.keys)))
        of.pipelines.fit(of.book, np.arange(len(of.pipelines)), of.layouts)
        found = by_key(of.pipelines.rows, PIPELINE)
        moving = [
            (found[values_of(of.instance, layout, PIPELINE)][0], layout, step)
            for layout, step in quickest(oracle, instance)
            if layout.zero > 1 and layout.zero_scope == FULL and np.isfinite(step)
        ]
        if not moving:
            continue
        index, dp = np.array([each[0] for each in moving]), np.array([layout.dp for _, layout, _ in moving])
        bound = traffic.moving_states(of.book, of.pipelines, index, dp)
        spent = [step * layout.num_gpus / (layout.batch * instance.seq_len) for _, layout, step in moving]
        assert (bound <= np.array(spent) * (1 + 1e-9)).all(), seed
        raised += int((bound > of.pipelines.gpu_seconds[index]).sum())
    assert raised > 20


@pytest.mark.slow
def test_the_report_of_the_largest_example_writes_little_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its plain solution, without what `--explore` keeps. Once it took half a million layouts and 10 s."""
    written = {"pipelines": 0, "layouts": 0}
    listing, opening = pipelines.PipelineTable.of, bounded.GroupTable.of

    def list_some(*given, **more):
        found = listing(*given, **more)
        written["pipelines"] += len(found)
        return found

    def open_some(*given):
        found = opening(*given)
        written["layouts"] += len(found)
        return found

    monkeypatch.setattr(pipelines.PipelineTable, "of", list_some)
    monkeypatch.setattr(bounded.GroupTable, "of", open_some)
    solution = Solution.from_text((ROOT / "solutions/moe_1.8T_15T.yaml").read_text(encoding="utf-8"))
    of = report_data(solution.model_copy(update={"explored": None}), time_limit=None)
    assert of.found.complete
    assert not of.left_out
    assert len(of.swings) == 6
    assert 0 < written["layouts"] < 50_000
    assert 0 < written["pipelines"] < 600_000
