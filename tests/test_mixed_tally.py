"""What the search on two pools says that limits removed, against brute force."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from mixed_oracle import MixedAnswer, MixedOracle, small_mixed_problem, with_mixed_limits
from mixed_problems import on_a_site

from planner.instance import Instance
from planner.mixed.best import BestOfPairs, best_of_pairs
from planner.mixed.cells import Part
from planner.mixed.layouts import cells_of
from planner.mixed.tally import Tally
from planner.search.goal import Effort, goal_of

MOST, MOST_ASSIGNMENTS = 400, 40_000
Pair = tuple[str, tuple[int, int], tuple[int, int]]
"""Form, pools and GPUs of each."""


class Watched(Tally):
    """Remembers the limit of every pair; `now` are the pairs of the rows that are sifted next."""

    def __init__(self) -> None:
        super().__init__()
        self.by_pair: dict[Pair, str] = {}
        self.now: list[Pair] = []

    def sift(self, limits: Any, economy: Any, least: Any, impossible: str) -> Any:
        for index, pair in enumerate(self.now):
            one, at = Tally(), np.array([index])
            one.sift(limits, economy.take(at), least[at], impossible)
            for name in one.rejected:
                self.by_pair[pair] = name
        self.now = []
        return Tally.sift(self, limits, economy, least, impossible)


def pairs_of(part: Part) -> list[Pair]:
    of = part.arranged
    gpus = cells_of(of.instance, of, part.first).T.tolist()
    return [(of.form, of.pools, (first, second)) for first, second in gpus]


def watched(instance: Instance, patch: pytest.MonkeyPatch) -> tuple[BestOfPairs, dict[Pair, str]]:
    """The search, and which limit it says removed each pair."""
    tally, recall, broken = Watched(), Part.recall, Part.broken

    def recalled(part: Part, search: Any) -> Any:
        tally.now = pairs_of(part)
        return recall(part, search)

    def named(part: Part, limits: Any) -> str | None:
        name = broken(part, limits)
        tally.by_pair |= {} if name is None else dict.fromkeys(pairs_of(part), name)
        return name

    patch.setattr(Part, "recall", recalled)
    patch.setattr(Part, "broken", named)
    search = BestOfPairs(instance, goal_of(instance), Effort(), pairs=tally)
    search.run()
    return search, tally.by_pair


def keeps(instance: Instance, of: MixedAnswer, limit: str) -> bool:
    """Whether a plan that fits in memory keeps a limit."""
    limits = instance.limits
    most = {"deadline": (of.seconds, limits.deadline), "budget": (of.dollars, limits.budget)}
    most |= {"memory": (0.0, 0.0), "storage": (0.0, 0.0)}  # all answers fit
    used, allowed = most[limit]
    assert allowed is not None
    return used <= allowed


def problems(seeds: range) -> Iterator[tuple[MixedOracle, Instance]]:
    """With limits that are often tight enough for a pair's bound."""
    for seed in seeds:
        random = Random(seed)
        oracle = small_mixed_problem(
            random, MOST, MOST_ASSIGNMENTS, **({"make": on_a_site} if seed % 3 == 0 else {})
        )
        instance = with_mixed_limits(random, oracle)
        found = oracle.answers(instance)
        if found and seed % 2:
            quick, cheap = min(of.seconds for of in found), min(of.dollars for of in found)
            own = {"deadline": quick * random.uniform(0.05, 0.7), "budget": None}
            if seed % 4 == 3:
                own = {"deadline": None, "budget": cheap * random.uniform(0.4, 1.2)}
            instance = replace(instance, limits=replace(instance.limits, **own))
        yield oracle, instance


def test_no_plan_keeps_the_limit_that_is_said_to_have_removed_its_pair(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: Counter[str] = Counter()
    for oracle, instance in problems(range(82_000, 82_024)):
        with monkeypatch.context() as patch:
            search, by_pair = watched(instance, patch)
        counts = {name: list(by_pair.values()).count(name) for name in set(by_pair.values())}
        assert counts == search.pairs.rejected
        for of in oracle.answers(instance):
            limit = by_pair.get((of.layout.form, of.layout.pools, of.layout.num_gpus))
            if limit is not None:
                assert not keeps(instance, of, limit), (limit, of)
                seen[limit] += 1
    assert min(seen["deadline"], seen["budget"]) > 10


def test_counts_add_up_and_leave_nothing_bounded_where_there_is_no_plan() -> None:
    infeasible = 0
    for _, instance in problems(range(82_000, 82_024)):
        search = best_of_pairs(instance)
        for of in (search.pairs, search.written):
            assert of.left >= 0
            assert of.number == sum(of.rejected.values()) + of.left + of.opened
            # A bound can only be no better than something.
            assert search.best is not None or of.left == 0
        infeasible += search.best is None
        again = best_of_pairs(instance)
        assert (again.pairs, again.written) == (search.pairs, search.written)
    assert infeasible > 2
