"""Plans on two pools when the time is too short: nothing is claimed that was not proved."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from test_docs import printed

from planner import solve as solving
from planner.cli.table import solution_table
from planner.errors import TimeLimit
from planner.mixed import BestOfPairs, best_of_pairs, cells
from planner.mixed import search as searching
from planner.mixed.best import any_of_pairs
from planner.problem import Problem, parse_problem
from planner.resolve import instance_of
from planner.search import Effort, rows
from planner.search.goal import OutOfTime
from planner.solve import solve

HOUR = 3600.0


def job(objective: str = "time", **limits: Any) -> Problem:
    data: dict[str, Any] = {
        "model": "llama-2-7b",
        "training": {"tokens": "300B", "seq_len": 4096, "global_batch": "512 sequences"},
        "hardware": [
            {"gpu": "H800", "nodes": 4, "price": "2 USD/gpu-hour"},
            {"gpu": "H20", "nodes": 4, "price": "0.8 USD/gpu-hour"},
        ],
        "objective": objective,
        "search": {"tp": [1, 2], "cp": 1, "micro_batch": [1, 2], "pp": [1, 2, 4], "framework": "any"},
        "limits": limits,
        "mixing": {"network": "25 GB/s"},
    }
    return parse_problem(data)


def with_batches(problem: Problem, sizes: Any) -> Problem:
    """The problem with other batches."""
    data: dict[str, Any] = dict(problem.as_written())
    return parse_problem(data | {"training": {**data["training"], "global_batch": sizes}})


@cache
def days() -> tuple[float, float]:
    """Of the quickest plan on two pools, and of that on one."""
    mixed, single = solve(job()).plans
    return mixed.estimate.days, single.estimate.days


def leave_no_time_for_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time is out as soon as plans on two pools are looked for."""
    look = best_of_pairs

    def late(instance: Any, effort: Effort) -> BestOfPairs:
        effort.until = 0.0
        return look(instance, effort)

    monkeypatch.setattr("planner.mixed.best_of_pairs", late)


def test_a_plan_on_one_pool_is_not_proved_best_while_two_pools_are_not_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fast, slow = days()
    leave_no_time_for_pairs(monkeypatch)
    solution = solve(job(), time_limit=HOUR)
    assert solution.status == "feasible"
    assert solution.mixing is not None
    assert solution.mixing.text == "None on two pools was found in time, and there may be one."
    # The plan itself is the best on one pool: the gap is to what two pools may reach at most.
    assert solution.plans[0].estimate.days == slow
    assert 1 - fast / slow <= solution.proof.gap <= 1
    assert solution.mixing.proof.gap == solution.proof.gap
    # It is said once.
    shown = printed(solution_table(solution))
    assert shown.count(f"gap {100 * solution.proof.gap:.2f} %") == shown.count("gap ") == 1


def test_a_problem_that_two_pools_might_solve_is_not_called_infeasible(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    between = job(deadline=f"{sum(days()) / 2} days")
    leave_no_time_for_pairs(monkeypatch)
    with pytest.raises(TimeLimit, match="no single pool has a plan within the limits; none on two pools"):
        solve(between, time_limit=HOUR)


def test_two_pools_are_looked_at_before_a_conflict_is_worked_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """What explains why there is no plan has no time limit, and is of no use where two pools have one."""
    between = job("cost", deadline=f"{sum(days()) / 2} days")

    def never(*_: Any) -> None:
        raise AssertionError("there is a plan on two pools")

    monkeypatch.setattr(solving, "nearest_miss", never)
    solution = solve(between)
    assert solution.status == "optimal"
    assert solution.plans[0].decisions.mixed is not None


def test_where_two_pools_have_no_plan_either_the_ways_out_are_of_both_kinds() -> None:
    solution = solve(job(deadline="1 day"))
    assert solution.status == "infeasible"
    assert solution.conflict is not None
    assert solution.conflict.limits == ("deadline",)
    moved = {move.limit: float(str(move.to).split()[0]) for move in solution.conflict.relaxations}
    quicker = min(days())
    assert quicker < max(days())
    assert moved["deadline"] == pytest.approx(quicker, rel=1e-2)
    assert solution.conflict.nearest is not None
    assert solution.conflict.nearest.plan.decisions.mixed is not None
    assert solution.conflict.nearest.plan.estimate.days == pytest.approx(quicker, rel=1e-3)


def test_a_deadline_moved_as_said_leaves_a_plan() -> None:
    conflict = solve(job(deadline="1 day")).conflict
    assert conflict is not None
    (move,) = [of for of in conflict.relaxations if of.limit == "deadline"]
    assert solve(job(deadline=str(move.to))).status == "optimal"
    (days, unit) = str(move.to).split()
    assert solve(job(deadline=f"{float(days) * 0.99} {unit}")).status == "infeasible"


@pytest.mark.parametrize("module", [searching, rows])
def test_a_solver_whose_clock_is_ahead_ends_the_search_as_any_other(
    monkeypatch: pytest.MonkeyPatch, module: Any
) -> None:
    """CP-SAT may find its time over before `Effort.check` does."""

    def late(*_: Any) -> None:
        raise TimeoutError

    monkeypatch.setattr(module, "solve_mixed_stages" if module is searching else "solve_stages", late)
    try:
        solution = solve(job(), time_limit=HOUR)
    except TimeLimit:
        return
    assert solution.status == "feasible"


def test_time_is_out_for_those_only_who_have_a_limit() -> None:
    with pytest.raises(AssertionError):
        Effort().stop()
    effort = Effort(until=1e12)
    with pytest.raises(OutOfTime):
        effort.stop()
    assert effort.out_of_time


def test_a_step_too_short_for_both_pools_is_ruled_out_by_their_nodes() -> None:
    """Whatever the batch: a smaller one has its share of the largest one's step at least."""
    smallest = best_of_pairs(instance_of(with_batches(job(), "128 sequences"))).best
    assert smallest is not None
    wide = {"min": "128 sequences", "max": "512 sequences"}
    met, found = (
        best_of_pairs(
            instance_of(with_batches(job(require=[f"step_time_s <= {share * smallest.step:.6f}"]), wide))
        )
        for share in (1.0001, 0.5)
    )
    assert met.best is not None
    assert met.best.step == pytest.approx(smallest.step, rel=1e-4)
    assert (found.best, found.complete, found.layouts) == (None, True, 0)


def test_whether_there_is_a_plan_is_known_with_the_first_one() -> None:
    whole = best_of_pairs(instance_of(job()))
    assert any_of_pairs(instance_of(job()), Effort())
    any_one = BestOfPairs(whole.instance, whole.goal, Effort(), any_will_do=True)
    any_one.run()
    assert any_one.best is not None
    assert any_one.solved == 1
    assert any_one.layouts <= whole.layouts
    assert not any_of_pairs(instance_of(job(deadline="1 day")), Effort())


def test_parts_of_cells_that_are_forgotten_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = best_of_pairs(instance_of(job()))
    monkeypatch.setattr(cells, "PART", 1)
    monkeypatch.setattr(searching, "KEPT", 1)
    parts = best_of_pairs(instance_of(job()))
    assert (parts.best, parts.achieved, parts.cells) == (whole.best, whole.achieved, whole.cells)


def test_layouts_of_nodes_and_keys_that_come_late_are_not_written_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The plans that are found first rule them out, and the best one stays the best."""
    whole = best_of_pairs(instance_of(job()))
    monkeypatch.setattr(cells, "FIRST_PAIRS", 1)
    few = best_of_pairs(instance_of(job()))
    assert (few.best, few.achieved) == (whole.best, whole.achieved)
    assert few.layouts < whole.layouts
