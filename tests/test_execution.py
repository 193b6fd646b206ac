"""Which modules are recomputed and whether the experts' traffic is hidden, as decisions of the search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import Answer, Oracle, module_sets, small_problem, ways, within
from random_problems import leading, overlapping, problem, with_room
from searched import SAME, execution, least, limited, solved, value, written_down

from planner.instance import Instance, Narrowing
from planner.listing import listed, records
from planner.search.tight import row_memory_bound

seeds = st.integers(0, 1 << 20)
some = settings(max_examples=12, deadline=None, derandomize=True)
Make = Callable[[Random], Instance]


def narrowed(instance: Instance, **values: tuple[int | str, ...]) -> Instance:
    """The problem with fewer values of some decisions."""
    allowed = instance.narrowing.allowed | values
    return replace(instance, narrowing=replace(instance.narrowing, allowed=allowed))


def several_sets(random: Random) -> Instance:
    """Problems with more sets of modules to choose from, and fewer of everything else."""
    instance = random.choice((problem, leading, overlapping))(random)
    allowed = dict(instance.narrowing.allowed)
    allowed.pop("recompute_modules", None)
    allowed |= {"tp": (1, 2), "cp": (1,), "zero": (0, 1), "recompute": ("none", "selective")}
    return replace(instance, narrowing=Narrowing(allowed))


@pytest.mark.parametrize("seed", range(8))
def test_sets_that_others_make_needless_never_change_the_optimum(seed: int) -> None:
    """The search over all sets at once, where some are dropped, against a search over each set by itself."""
    oracle, instance = limited(seed, 1200, several_sets)
    together = value(instance, solved(instance))
    apart = [narrowed(instance, recompute=("none",))]
    apart += [
        narrowed(instance, recompute=("selective",), recompute_modules=("+".join(sorted(modules)),))
        for modules in module_sets(instance)
    ]
    best = min(value(each, solved(each)) for each in apart)
    assert together == pytest.approx(best, rel=SAME)
    assert together == pytest.approx(least(instance, oracle.answers(instance)), rel=SAME)


def test_there_are_sets_that_others_make_needless() -> None:
    made = [small_problem(Random(seed), 1200, several_sets) for seed in range(8)]
    fewer = [len(of.needed) < len(of.layouts) for of in made]
    assert 2 < sum(fewer) < len(made)


def answers_with(oracle: Oracle, instance: Instance, hidden: bool) -> list[Answer]:
    """Brute force over plans that hide the experts' traffic, or over those that do not."""
    found = within(instance, oracle.answers(instance))
    return [of for of in found if of.layout.ep_overlap == hidden]


def test_hidden_traffic_or_not_makes_the_plan_that_brute_force_says() -> None:
    better = {True: 0, False: 0}
    for seed in range(40):
        oracle, instance = limited(seed, 300, overlapping)
        if {hidden for _, hidden in ways(instance)} != {False, True}:
            continue
        both = {}
        for hidden in (False, True):
            alone = narrowed(instance, ep_overlap=(hidden,))
            both[hidden] = value(alone, solved(alone))
            theirs = least(instance, answers_with(oracle, instance, hidden))
            assert both[hidden] == pytest.approx(theirs, rel=SAME), (seed, hidden)
        assert value(instance, solved(instance)) == pytest.approx(min(both.values()), rel=SAME), seed
        if both[False] != both[True]:
            better[both[True] < both[False]] += 1
    assert min(better.values()) > 1, better


def check_rules(of: dict[str, int], modules: frozenset[str]) -> None:
    """What a plan that hides the experts' traffic has to be."""
    assert of["ep"] > 1
    assert of["pp"] == 1 or of["vpp"] > 1
    assert "moe" not in modules


@some
@given(seeds)
def test_no_candidate_that_hides_traffic_breaks_its_rules(seed: int) -> None:
    oracle = small_problem(Random(seed), 300, overlapping)
    rows = written_down(oracle.instance).rows.rows
    for index in np.flatnonzero(rows.hidden).tolist():
        how = execution(oracle.instance, int(rows.variant[index]))
        assert how["ep_overlap"]
        check_rules({name: int(getattr(rows, name)[index]) for name in ("ep", "pp", "vpp")}, how["modules"])


@some
@given(seeds)
def test_no_listed_plan_that_hides_traffic_breaks_its_rules(seed: int) -> None:
    oracle, instance = limited(seed, 200, overlapping)
    found = [record["decisions"] for block in listed(instance) for record in records(instance, block)]
    for of in found:
        assert bool(of["recompute_modules"]) == (of["recompute"] == "selective")
        if of["ep_overlap"]:
            assert of["recompute"] != "full"
            check_rules(of, frozenset(of["recompute_modules"]))
    named = {(frozenset(of["recompute_modules"]), of["ep_overlap"]) for of in found}
    assert named <= set(ways(oracle.instance))


@settings(max_examples=25, deadline=None, derandomize=True)
@given(seeds, st.sampled_from((problem, leading, overlapping)), st.sampled_from((0.05, 0.3, 0.7)))
def test_what_leaves_no_choice_of_stages_is_bounded_by_what_it_takes(
    seed: int, make: Make, share: float
) -> None:
    """Rows on one stage or interleaved, without full recompute: their bound is their quickest assignment."""
    oracle = small_problem(Random(seed), 300, make)
    low, high = oracle.memory_range()
    instance = with_room(oracle.instance, low + share * (high - low))
    room = [pool.memory_limit(instance.limits.memory_headroom) for pool in instance.pools]
    steps = {
        layout: float(np.where(of.memory <= room[layout.pool], of.step, np.inf).min())
        for layout, of in zip(oracle.layouts, oracle.priced, strict=True)
    }
    table = written_down(instance)
    rows = table.rows.rows
    bound = row_memory_bound(table.book, rows, uniform=False)
    settled = ((rows.pp == 1) | (rows.vpp > 1)) & (rows.family >= 2)
    names = ("pool", "tp", "cp", "pp", "vpp", "dp", "ep", "etp", "micro_batch", "zero", "zero_scope")
    by_row = {
        (tuple(getattr(of, n) for n in names), of.modules, of.ep_overlap, of.num_microbatches): step
        for of, step in steps.items()
    }
    for index in np.flatnonzero(settled).tolist():
        how = execution(instance, int(rows.variant[index]))
        sizes = tuple(int(getattr(rows, n)[index]) for n in names)
        step = by_row[sizes, how["modules"], how["ep_overlap"], int(rows.m_high[index])]
        assert bound[index] == pytest.approx(step, rel=1e-9)
