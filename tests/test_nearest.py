"""The plan nearest to limits that cannot hold together: against brute force, and in words."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from math import inf
from random import Random
from typing import Any

import numpy as np
import pytest
from lasting import lasting
from oracle import Answer, Oracle, with_limits
from random_problems import problem
from small_job import job
from test_realworld import small
from test_requirements import figures, holds, random_requirement, requiring

from planner.english import counted
from planner.instance import Instance
from planner.narrowed import valid
from planner.near import Near, near_of
from planner.nearest import AS_GOOD, PRECISION, nearest_found, nearest_miss
from planner.nearest_words import share_words
from planner.node_reach import MANY, TIMES, least_seconds, most_looked_at, most_used
from planner.requirements import Requirement
from planner.resolve import instance_of
from planner.search import Table, best, goal_of
from planner.search.goal import OutOfTime
from planner.solution import Conflict, Nearest, Solution
from planner.solve import solve
from planner.space.recompute import recompute_families
from planner.variants import only

NEAR = 3 * PRECISION
RUN = ("deadline", "budget", "energy", "carbon")


@dataclass(frozen=True, slots=True)
class Miss:
    """One plan of brute force, with the share by which it breaks each limit on a number."""

    figures: dict[str, Any]
    shares: dict[str, float]

    def worst(self, names: list[str]) -> float:
        return max((self.shares[name] for name in names), default=0.0)


def every_plan(oracle: Oracle) -> list[Answer]:
    """Of each candidate the assignments that no other beats in both time and memory, whatever fits."""
    found = []
    for layout, of in zip(oracle.layouts, oracle.priced, strict=True):
        least = inf
        for index in np.lexsort((of.memory, of.step)):
            if np.isfinite(of.step[index]) and of.memory[index] < least:
                least = float(of.memory[index])
                run = lasting(oracle.instance, layout, float(of.step[index]))
                took = run.seconds, run.dollars, run.kwh, run.tonnes
                found.append(Answer(layout, (), (), float(of.step[index]), least, *took))
    return found


def beyond(limit: float, used: float, at_most: bool = True) -> float:
    return max(0.0, used / limit - 1 if at_most else limit / used - 1)


def miss(instance: Instance, of: Answer, required: list[Requirement]) -> Miss:
    """How far a plan is beyond each limit of an instance."""
    limits, pool = instance.limits, instance.pools[of.layout.pool]
    shares = {"memory": beyond(pool.memory_limit(limits.memory_headroom), of.memory)}
    for name, used in zip(RUN, (of.seconds, of.dollars, of.kwh, of.tonnes), strict=True):
        if (limit := getattr(limits, name)) is not None:
            shares[name] = beyond(limit, used)
    run = lasting(instance, of.layout, of.step)
    if np.isfinite(run.room):
        shares["storage"] = beyond(run.room, run.kept)
    found = figures(instance, of)
    for each in required:
        if each.operator[0] in "<>" and least(each) > 0:
            shares[each.text] = beyond(least(each), found[each.name], each.operator[0] == "<")
    return Miss(found, shares)


def least(of: Requirement) -> float:
    """The tightest value that keeps to it."""
    whole = isinstance(of.value, int)
    return of.value + {"<": -whole, ">": whole}.get(of.operator, 0)


def too_tight(seed: int) -> tuple[Oracle, Instance, list[Requirement]] | None:
    """A problem that no plan meets, or None: limits of all kinds around what plans take."""
    random = Random(seed)
    oracle = small(random)
    instance = with_limits(random, oracle)
    answers = oracle.answers(instance) or oracle.answers(oracle.instance)
    some = random.choice(answers)
    took = dict(zip(RUN, (some.seconds, some.dollars, some.kwh, some.tonnes), strict=True))
    limits = {
        name: used * random.uniform(0.4, 1.1)
        for name, used in took.items()
        if random.random() < 0.6 and used > 0
    }
    instance = replace(instance, limits=replace(instance.limits, **limits))
    if random.random() < 0.3:
        room = lasting(instance, some.layout, some.step).kept * random.uniform(0.5, 1.1)
        pools = tuple(replace(pool, site=pool.site and pool.site.with_room(room)) for pool in instance.pools)
        instance = replace(instance, pools=pools)
    required = [random_requirement(random, instance, answers) for _ in range(random.choice((0, 1, 1, 2)))]
    if sum(of.operator[0] not in "<>" or least(of) <= 0 for of in required) > 1:
        return None
    by_name = {of.name: of for of in required}
    required = [tightened(random, of) for of in by_name.values()]
    instance = requiring(instance, required)
    plan = best(Table.of(instance, goal_of(instance), recompute_families(instance)))
    return None if plan is not None else (oracle, instance, required)


def tightened(random: Random, of: Requirement) -> Requirement:
    """A requirement on a prediction that fewer plans meet."""
    if of.decision is not None:
        return of
    share = random.uniform(1.0, 1.5)
    return replace(of, values=(of.value / share if of.operator[0] == "<" else of.value * share,))


def unmet(seed: int) -> list[str]:
    """What the nearest miss of a random problem has wrong."""
    found = too_tight(seed)
    if found is None:
        return []
    oracle, instance, required = found
    near = nearest_miss(instance)
    every = [miss(instance, of, required) for of in every_plan(oracle)]
    fixed = [of for of in required if of.operator[0] not in "<>" or least(of) <= 0]
    keeping = [of for of in every if all(holds(each, of.figures[each.name]) for each in fixed)]
    assert near is not None
    if bool(near.let_go) != (not keeping):
        return [
            f"{seed}: lets go {near.let_go}, and {len(keeping)} plans keep to everything without a number"
        ]
    left, order = keeping or every, [name for name in every[0].shares if name != "memory"]
    fitting = [of for of in left if not of.shares["memory"]]
    if "memory" not in near.share:
        if not fitting:
            return [f"{seed}: memory is kept to, and no plan does"]
        left = fitting
    mine = Miss({}, dict.fromkeys(every[0].shares, 0.0) | near.share)
    if "memory" in near.share:
        leanest = min(of.shares["memory"] for of in left)
        if mine.shares["memory"] > leanest * (1 + NEAR) + 1e-5 or fitting:
            return [f"{seed}: memory is broken by {mine.shares['memory']}, {leanest} would do"]
        left = [of for of in left if of.shares["memory"] <= mine.shares["memory"] + 1e-7]
    return [f"{seed}: {line}" for line in worse(mine, left, order)]


def worse(mine: Miss, left: list[Miss], names: list[str]) -> list[str]:
    """Where another plan breaks what is broken most by less, or of those that break it as little the next one."""
    if not names:
        return []
    nearest = min(left, key=lambda of: of.worst(names))
    share, theirs = mine.worst(names), nearest.worst(names)
    if not theirs * (1 - 1e-6) - 1e-5 <= share <= theirs * (1 + AS_GOOD) * (1 + NEAR) + 1e-5:
        return [f"the worst of {names} is {share}, and {theirs} would do"]
    worst = max(names, key=lambda name: nearest.shares[name])
    rest = [name for name in names if name != worst]
    as_good = [of for of in left if of.shares[worst] <= theirs * (1 + AS_GOOD) + 1e-7]
    wrong = worse(mine, as_good, rest)
    beside = [of.shares[worst] for of in left if no_more(of, mine, rest)]
    if beside and mine.shares[worst] > min(beside) * (1 + NEAR) + 1e-5:
        wrong.append(f"{worst} by {mine.shares[worst]}, and {min(beside)} would do beside the others")
    return wrong


def no_more(of: Miss, mine: Miss, names: list[str]) -> bool:
    """Whether a plan breaks some limits by no more."""
    return all(of.shares[name] <= mine.shares[name] + 1e-7 for name in names)


@pytest.mark.parametrize(
    "block", [0, *(pytest.param(block, marks=pytest.mark.slow) for block in range(1, 4))]
)
def test_the_nearest_miss_is_that_of_brute_force(block: int) -> None:
    wrong = list(chain.from_iterable(map(unmet, range(block * 6, block * 6 + 6))))
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(8))
def test_the_nearest_miss_is_that_of_brute_force_on_many_more(block: int) -> None:
    seeds = range(1000 + block * 40, 1000 + block * 40 + 40)
    wrong = list(chain.from_iterable(map(unmet, seeds)))
    assert not wrong, "\n".join(wrong)


def asked(*changes: tuple[str, Any]) -> Solution:
    """The small job with tighter limits, solved."""
    return solve(job(*changes))


def conflict(*changes: tuple[str, Any]) -> Conflict:
    found = asked(*changes).conflict
    assert found is not None
    return found


def nearest(*changes: tuple[str, Any]) -> Nearest:
    found = conflict(*changes).nearest
    assert found is not None
    return found


def test_a_plan_near_one_limit_breaks_that_one_alone() -> None:
    near = nearest(("limits.deadline", "1 day"))
    assert list(near.over) == ["deadline"]
    assert near.over["deadline"] == pytest.approx(near.plan.estimate.days - 1)
    assert near.share["deadline"] == pytest.approx(near.plan.estimate.days - 1)
    assert near.proved
    assert near.text.endswith(
        f"{near.over['deadline']:,.1f} days too long ({near.share['deadline'] + 1:.0f} times the limit)."
    )


def test_requirements_are_broken_in_their_own_units() -> None:
    near = nearest(("limits.require", ["mfu >= 0.9"]))
    of = near.plan.estimate
    assert list(near.over) == ["mfu >= 0.9"]
    assert near.over["mfu >= 0.9"] == pytest.approx(0.9 - of.mfu)
    assert near.share["mfu >= 0.9"] == pytest.approx(0.9 / of.mfu - 1)
    assert f"has MFU {100 * of.mfu:.3g} % instead of 90 %" in near.text


def test_the_nearest_plan_to_an_hfu_out_of_reach_recomputes() -> None:
    near = nearest(("limits.require", ["hfu >= 0.9"]))
    of = near.plan.estimate
    assert near.over["hfu >= 0.9"] == pytest.approx(0.9 - of.hfu)
    assert near.plan.decisions.recompute == "full"
    assert of.hfu > of.mfu


def test_shares_are_told_in_digits_that_show_how_far_they_differ() -> None:
    near = nearest(("limits.require", ["goodput >= 0.9995"]))
    of = near.plan.estimate
    assert of.goodput is not None
    assert near.over["goodput >= 0.9995"] == pytest.approx(0.9995 - of.goodput)
    assert f"has goodput {100 * of.goodput:.4g} % instead of 99.95 %" in near.text


def test_a_model_that_does_not_fit_needs_the_least_memory_that_would_do() -> None:
    near = nearest(
        ("search", {"tp": 1, "pp": 1, "zero": 0, "recompute": "none"}), ("limits.deadline", None),
        ("limits.budget", None),
    )  # fmt: skip
    assert list(near.over) == ["memory"]
    room = near.plan.slack["memory"].limit
    assert near.plan.estimate.memory_gib.total == pytest.approx(room + near.over["memory"])
    assert "GiB of a GPU instead of" in near.text


def test_what_has_no_number_is_let_go_and_as_little_as_can_be() -> None:
    near = nearest(("limits.require", ["tp == 3", "pp == 2"]))
    assert near.let_go == ("tp == 3",)
    assert near.plan.decisions.pp == 2
    assert "does without tp == 3" in near.text
    assert nearest(("search", {"tp": 16})).let_go == ("search.tp",)
    both = nearest(("limits.require", ["tp == 3", "cp == 3"]))
    assert both.let_go == ("tp == 3", "cp == 3")


def test_out_of_time_the_nearest_so_far_is_told_as_such() -> None:
    instance = instance_of(job(("limits.require", ["mfu >= 0.9"])))
    find = near_of(instance, None)
    searches = 0

    def two_searches(*asked: Any) -> Near | None:
        nonlocal searches
        searches += 1
        if searches > 2:
            raise OutOfTime
        return find(*asked)

    near = nearest_found(instance, two_searches)
    assert near is not None
    assert not near.proved
    assert "that was found in time" in near.text
    assert nearest_miss(instance, until=0.0) is None


def test_limits_of_which_none_alone_is_enough_are_told_with_the_others() -> None:
    found = conflict(("limits.deadline", "1 day"), ("limits.budget", "100 USD"))
    (name,) = found.limits
    other = {"deadline": "budget", "budget": "deadline"}[name]
    assert found.stuck[name].startswith(f"no other {name} makes a plan possible by itself")
    assert other in found.stuck[name]


def test_a_limit_that_can_move_alone_is_not_stuck() -> None:
    found = conflict(("limits.require", ["mfu >= 0.9"]))
    assert [move.limit for move in found.relaxations] == ["mfu >= 0.9"]
    assert found.stuck == {}


def test_more_nodes_are_looked_at_as_far_as_they_may_help() -> None:
    one = ("hardware", [{"gpu": "H800", "nodes": {"max": 1}, "price": "2 USD/gpu-hour"}])
    soon = ("limits.deadline", "9 days"), ("limits.budget", None)
    moves = {move.limit: move for move in conflict(one, *soon).relaxations}
    assert int(str(moves["nodes"].to).split()[0]) > TIMES
    never = conflict(one, ("limits.deadline", "1 minute"))
    assert "on any number of them" in never.stuck["nodes"]
    instance = instance_of(job(one))
    assert most_looked_at(instance, 0) <= max(MANY, TIMES)


def test_no_layout_uses_more_nodes_than_the_most_that_are_used() -> None:
    for seed in range(8):
        instance = problem(Random(seed))
        for index in range(len(instance.pools)):
            most = most_used(instance, index)
            beyond_it = only(instance, index, min_nodes=most + 1, max_nodes=most + 3)
            assert not valid(beyond_it)


def test_no_run_takes_less_time_than_one_micro_batch_a_step() -> None:
    for seed in range(8):
        oracle = small(Random(seed))
        instance = oracle.instance
        floor = min(least_seconds(instance, index) for index in instance.described)
        assert floor <= min(of.seconds for of in oracle.answers(oracle.instance)) * (1 + 1e-9)


def test_a_run_in_phases_has_a_nearest_one() -> None:
    phases = [{"name": "first", "tokens": "900B"}, {"name": "last", "tokens": "100B", "seq_len": 8192}]
    found = conflict(("limits.require", ["mfu >= 0.9"]), ("phases", phases))
    (move,) = found.relaxations
    near = found.nearest
    assert near is not None
    assert near.phase == "first"
    assert list(near.over) == ["mfu >= 0.9"]
    reached = float(str(move.to).removeprefix("mfu >= "))
    assert near.over["mfu >= 0.9"] == pytest.approx(0.9 - reached, abs=2e-3)
    assert "run in phases" in near.text


@pytest.mark.parametrize(
    ("share", "words"), [(0.2, "20 %"), (0.0031, "0.31 %"), (24.0, "25 times the limit")]
)
def test_shares_in_words(share: float, words: str) -> None:
    assert share_words(share) == words


@pytest.mark.parametrize(
    ("number", "noun", "form", "words"),
    [(1, "day", "g", "1 day"), (1.0, "day", ".1f", "1.0 days"), (2, "micro-batch", "", "2 micro-batches"),
     (1234, "plan", ",", "1,234 plans"), (0, "node", ",", "0 nodes")],
)  # fmt: skip
def test_counted_nouns(number: float, noun: str, form: str, words: str) -> None:
    assert counted(number, noun, form) == words
