"""What narrows a problem removes as many candidates as brute force says, one thing after the other."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from random import Random
from typing import Any

import pytest
from oracle import Layout, launches, layouts, module_sets, scoped, small_problem
from random_problems import launched, leading, overlapping, precise, problem
from searched import blank, num_modes, usual_families
from small_job import job
from test_docs import printed

from costmodel.architecture import Architecture
from planner.census import Census
from planner.cli.proof_words import proof_words
from planner.cli.table import solution_table
from planner.frameworks import models
from planner.instance import Instance, Narrowing
from planner.requirements import Requirement
from planner.search import Effort
from planner.search.ledger import Ledger
from planner.solution import Proof
from planner.solve import proof, solve

MOST = 5_000
"""Candidates that are walked one by one."""
USUAL = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
PER_OP = frozenset({"per_op"})
MAKERS = (problem, leading, overlapping, precise, launched)
REQUIRED = (
    "gpus",
    "nodes",
    "tp",
    "pp",
    "vpp",
    "dp",
    "micro_batch",
    "num_microbatches",
    "global_batch",
    "zero",
)


def unrestricted(instance: Instance) -> Instance:
    """On any framework, with what `search` adds to the usual values beside them."""
    named, free = instance.narrowing.allowed, replace(instance, framework="any", narrowing=Narrowing())
    more: dict[str, tuple[Any, ...]] = {"micro_batch": tuple({*USUAL, *named.get("micro_batch", ())})}
    if "recompute_modules" in named:
        usual = {"+".join(sorted(of)) for of in module_sets(free)}
        more["recompute_modules"] = (*usual, *named["recompute_modules"], "per_op")
    return replace(free, narrowing=Narrowing(more))


def every(instance: Instance, free: Instance) -> Iterator[tuple[Layout, str]]:
    """Each candidate of the unrestricted problem with its recompute mode."""
    for of in layouts(free):
        if of.modules:
            yield of, "selective"
            continue
        yield of, "none"
        if not of.ep_overlap:
            yield of, "full"
            if instance.framework == "torchtitan":
                yield replace(of, modules=PER_OP), "selective"


def values(instance: Instance, of: Layout, mode: str) -> dict[str, Any]:
    """Decisions by the names of `search` and of requirements."""
    own = ("tp", "cp", "pp", "vpp", "dp", "ep", "etp", "micro_batch", "num_microbatches", "zero")
    nodes = of.num_gpus // instance.pools[of.pool].fabric.gpus_per_node
    return {name: getattr(of, name) for name in own} | {
        "gpus": of.num_gpus, "nodes": nodes, "global_batch": of.batch, "recompute": mode,
        "zero_scope": ("full", "node")[of.zero_scope], "recompute_modules": "+".join(sorted(of.modules)),
        "ep_overlap": of.ep_overlap, "gpu": instance.pools[of.pool].gpu.name,
    }  # fmt: skip


def removed_by(instance: Instance, own: Instance, of: Layout, mode: str) -> str:
    """The first thing that leaves out a candidate, "" if nothing does. `own`: unrestricted, on the framework."""
    sets = (frozenset[str](), *module_sets(own))
    if own.framework != "any" and not (of.modules in sets and scoped(own, of) and launches(own, of)):
        return "search.framework"
    if of.ep_overlap and own.framework not in ("megatron", "any"):
        return "search.framework"
    found = values(instance, of, mode)
    for name, allowed in instance.narrowing.allowed.items():
        about = {"recompute_modules": bool(of.modules), "ep_overlap": instance.architecture.moe is not None}
        if about.get(name, True) and found[name] not in allowed:
            return f"search.{name}"
    for each in instance.narrowing.required:
        if not bool(each.holds(found[each.name])):
            return each.text
    return ""


def required(random: Random, instance: Instance, of: Layout) -> tuple[Requirement, ...]:
    """One or two requirements on decisions that a layout keeps to, or just breaks."""
    found = values(instance, of, "none")
    names = random.sample(REQUIRED, random.choice((0, 1, 2)))
    return tuple(
        Requirement(name, random.choice(("<=", ">=", "==", "!=", "<")), (found[name],)) for name in names
    )


def drawn(seed: int) -> tuple[Instance, list[tuple[Layout, str]]] | None:
    """A random problem with all candidates of the unrestricted one; None if those are too many."""
    random, make = Random(seed), MAKERS[seed % len(MAKERS)]
    instance = make(random)
    instance = replace(instance, max_batch=min(instance.max_batch, 4), min_batch=min(instance.min_batch, 4))
    found = list(islice(every(instance, unrestricted(instance)), MOST + 1))
    if not 0 < len(found) <= MOST:
        return None
    narrowing = replace(instance.narrowing, required=required(random, instance, random.choice(found)[0]))
    return replace(instance, narrowing=narrowing), found


@pytest.fixture
def _every_model_in_torchtitan(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every random model were registered."""

    def module(of: Architecture) -> frozenset[str]:
        return frozenset({"torchtitan-deepseek_v3" if of.mla else "torchtitan-qwen3"})

    monkeypatch.setattr(models, "torchtitan_modules", module)


@pytest.mark.usefixtures("_every_model_in_torchtitan")
@pytest.mark.parametrize("block", range(4))
def test_each_candidate_is_removed_by_the_first_thing_that_leaves_it_out(block: int) -> None:
    tried, seen = 0, set[str]()
    for seed in range(block * 20, block * 20 + 20):
        case = drawn(seed)
        if case is None:
            continue
        instance, found = case
        own = replace(unrestricted(instance), framework=instance.framework)
        theirs = Tally(removed_by(instance, own, *each) for each in found)
        census = Census.of(instance)
        assert census.valid == theirs.total(), seed
        assert {name: number for name, number in census.removed.items() if number} == {
            name: number for name, number in theirs.items() if name
        }, seed
        assert census.valid - sum(census.removed.values()) == theirs[""], seed
        tried, seen = tried + 1, seen | set(theirs)
    assert tried > 5
    assert {"", "search.framework", "search.micro_batch"} <= seen


@pytest.mark.parametrize("seed", range(24))
def test_what_is_left_is_what_is_searched_but_for_needless_sets_of_modules(seed: int) -> None:
    oracle = small_problem(Random(seed), 300, MAKERS[seed % 4])
    instance = oracle.instance
    table = blank(instance)
    found = proof(instance, Ledger.of(table, usual_families(instance)), Effort())
    found = Census.of(instance).within(found)
    dropped = set(oracle.layouts) - set(oracle.needed)
    assert found.needless == sum(num_modes(instance, of) for of in dropped)
    adds_up(found)


def adds_up(of: Proof) -> None:
    assert of.unrestricted is not None
    assert of.unrestricted - sum(of.narrowed.values()) - of.needless == of.valid
    assert of.valid - sum(of.rejected.values()) == of.feasible == of.screened + of.bounded + of.solved


def test_an_infeasible_problem_shows_what_each_limit_removed_and_what_was_left() -> None:
    of = solve(
        job(
            ("limits.require", ["tp == 2", "gpus <= 40"]),
            ("search", {"pp": [1, 2], "framework": "nanotron"}),
        )
    )
    assert of.status == "infeasible"
    adds_up(of.proof)
    assert list(of.proof.narrowed) == ["search.framework", "search.pp", "tp == 2", "gpus <= 40"]
    assert all(of.proof.narrowed.values())
    assert of.proof.feasible == 0
    shown = printed(solution_table(of))
    left = of.proof.unrestricted
    for name, number in (of.proof.narrowed | of.proof.rejected).items():
        assert left is not None
        left -= number
        (line,) = [
            each
            for each in shown.splitlines()
            if each.strip().split("  ")[0] == name and f"{number:,} " in each
        ]
        assert line.split()[-1] == f"{left:,}"
    assert left == 0


@pytest.mark.slow
def test_room_that_a_requirement_takes_is_counted_apart_from_what_gpus_lack() -> None:
    """GPUs with 40 % headroom have no room for some plans, and within 20 GiB there is none for more."""
    alone, both = (
        solve(
            job(("limits.memory_headroom", "40 %"), ("limits.deadline", None), ("limits.require", required))
        )
        for required in ([], ["memory_gib <= 20"])
    )
    assert "memory_gib <= 20" not in alone.proof.rejected
    assert both.proof.rejected["memory"] > 0
    assert both.proof.rejected["memory_gib <= 20"] > 0
    none = solve(
        job(("limits.deadline", None), ("limits.budget", None), ("limits.require", ["memory_gib <= 4"]))
    )
    assert none.status == "infeasible"
    adds_up(none.proof)
    assert none.proof.feasible == 0
    assert set(none.proof.rejected) == {"memory", "memory_gib <= 4"}


def test_a_plain_problem_with_a_plan_is_counted_no_further() -> None:
    of = solve(job(("search", {})))
    assert (of.status, of.proof.unrestricted, of.proof.narrowed) == ("optimal", None, {})
    narrowed = solve(job(("search.tp", [2])))
    adds_up(narrowed.proof)
    words = proof_words(narrowed)
    assert f"left out before, of {narrowed.proof.unrestricted:,} valid" in words
    assert f"{narrowed.proof.narrowed['search.tp']:,} by search.tp" in words


def test_out_of_time_counts_say_that_more_may_be_open() -> None:
    of = solve(job())
    late = of.model_copy(update={"status": "feasible", "proof": of.proof.model_copy(update={"gap": 0.1})})
    assert "screened or still open" in proof_words(late)
    assert "ruled out so far" in proof_words(late)
    assert "still open" not in proof_words(of)


def test_phases_count_candidates_of_all_of_them() -> None:
    phases = [{"name": "first", "tokens": "900B"}, {"name": "last", "tokens": "100B", "seq_len": 8192}]
    of = solve(job(("limits.require", ["tp == 2"]), ("limits.deadline", "1 day"), ("phases", phases)))
    assert of.status == "infeasible"
    adds_up(of.proof)
    assert of.proof.narrowed["tp == 2"] > 0
    assert "Candidates of all phases together" in printed(solution_table(of))
