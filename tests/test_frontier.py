"""The frontier is every plan that no other beats in days, dollars and a third axis, and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from oracle import Answer, Oracle, small_problem, with_limits, within
from random_problems import problem
from test_oracle import room_rounded
from test_realworld import surrounded
from typer.testing import CliRunner

from planner.cli.app import app
from planner.cli.frontier import curve
from planner.instance import Instance
from planner.knee import knee_of, knee_words
from planner.search.front import figures, frontier, undominated
from planner.search.headroom import frontier_with_headroom, used

SAME = 1e-6
AXES = [None, "gpus", "energy", "carbon"]
Point = tuple[float, ...]
runner = CliRunner()


def point_of(answer: Answer, axis: str | None) -> Point:
    """What a brute-force answer takes."""
    third = {"gpus": float(answer.layout.num_gpus), "energy": answer.kwh, "carbon": answer.tonnes}
    return (answer.seconds, answer.dollars, *([] if axis is None else [third[axis]]))


def best_of(points: set[Point]) -> list[Point]:
    """Points that no other is no worse than in everything."""
    found: list[Point] = []
    for point in sorted(points):
        if not any(all(x <= y * (1 + SAME) for x, y in zip(of, point, strict=True)) for of in found):
            found.append(point)
    return found


def covered(points: list[Point], by: list[Point]) -> bool:
    """Every point has one of the others that is no worse than it."""
    return all(
        any(all(x <= y * (1 + 2 * SAME) for x, y in zip(of, point, strict=True)) for of in by)
        for point in points
    )


def metered(random: Random) -> Instance:
    """A random problem whose pools have sites, and so draw power."""
    return surrounded(random, problem(random))


def wrong(seed: int, axis: Any) -> list[str]:
    random = Random(seed)
    oracle = small_problem(random, 300, metered if axis in ("energy", "carbon") else problem)
    instance = with_limits(random, oracle)
    answers = within(instance, oracle.answers(instance))
    plans, _ = frontier(instance, axis=axis)
    mine = [figures(instance, plan, axis) for plan in plans]
    theirs = best_of({point_of(answer, axis) for answer in answers})
    if not (covered(mine, theirs) and covered(theirs, mine)):
        return [f"seed {seed}: {mine}, brute force {theirs}"]
    return [] if undominated(mine) == sorted(mine) else [f"seed {seed}: dominated points in {mine}"]


def by_headroom(oracle: Oracle, instance: Instance, step: int) -> list[Point]:
    """Brute force at every limit on memory, one after the other: (seconds, dollars, percent used)."""
    points: set[Point] = set()
    first = 100 - step * int(100 * instance.limits.memory_headroom / step)
    for most in range(first, 0, -step):
        left = max(1 - most / 100, instance.limits.memory_headroom)
        tight = replace(instance, limits=replace(instance.limits, memory_headroom=left))
        answers = within(tight, oracle.answers(tight))
        points |= {(*point_of(answer, None), float(most)) for answer in answers}
        if not answers:
            break
    return best_of(points)


def wrong_in_headroom(seed: int) -> list[str]:
    """As `wrong`; the planner may miss a plan that fills a GPU to within what it rounds."""
    random = Random(seed)
    oracle = small_problem(random, 150)
    instance, step = with_limits(random, oracle), random.choice((4, 7, 10))
    plans, _ = frontier_with_headroom(instance, step=step)
    mine = [(*figures(instance, plan), float(used(instance, plan, step))) for plan in plans]
    possible, safe = (by_headroom(oracle, of, step) for of in (instance, room_rounded(instance)))
    if not (covered(mine, possible) and covered(safe, mine)):
        return [f"seed {seed}, step {step}: {mine}, brute force {possible}"]
    return [] if undominated(mine) == sorted(mine) else [f"seed {seed}: dominated points in {mine}"]


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("block", range(4))
def test_the_frontier_is_that_of_brute_force(block: int, axis: str | None) -> None:
    lines = [line for seed in range(500 + block * 10, 510 + block * 10) for line in wrong(seed, axis)]
    assert not lines, "\n".join(lines)


@pytest.mark.slow
@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("block", range(10))
def test_the_frontier_is_that_of_brute_force_on_many_more(block: int, axis: str | None) -> None:
    lines = [line for seed in range(50_000 + block * 20, 50_020 + block * 20) for line in wrong(seed, axis)]
    assert not lines, "\n".join(lines)


@pytest.mark.parametrize("block", range(4))
def test_the_frontier_with_headroom_is_that_of_brute_force(block: int) -> None:
    lines = [line for seed in range(700 + block * 8, 708 + block * 8) for line in wrong_in_headroom(seed)]
    assert not lines, "\n".join(lines)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_the_frontier_with_headroom_is_that_of_brute_force_on_many_more(block: int) -> None:
    seeds = range(60_000 + block * 20, 60_020 + block * 20)
    lines = [line for seed in seeds for line in wrong_in_headroom(seed)]
    assert not lines, "\n".join(lines)


def test_of_points_that_are_the_same_in_one_figure_the_better_one_stays() -> None:
    nearly = 1.0 + 1e-12
    assert undominated([(1.0, 5.0, 94.0), (nearly, 5.0, 90.0)]) == [(nearly, 5.0, 90.0)]
    assert undominated([(1.0, 5.0), (1.0, 5.0), (2.0, 5.0), (2.0, 4.0)]) == [(1.0, 5.0), (2.0, 4.0)]


def test_the_knee_lies_farthest_below_the_line_between_the_ends() -> None:
    assert knee_of([]) is None
    assert knee_of([(1.0, 5.0)]) == 0
    assert knee_of([(0.0, 10.0), (1.0, 2.0), (10.0, 0.0)]) == 1
    assert knee_of([(0.0, 10.0), (6.0, 4.5), (7.0, 1.0), (10.0, 0.0)]) == 2


def test_with_three_axes_the_knee_weighs_all_of_them() -> None:
    # Scaled sums: 1 + 0 + 1, 0.1 + 0.2 + 0.9, 0.3 + 0.3 + 0.1, 0 + 1 + 0.
    points = [(10.0, 0.0, 100.0), (1.0, 2.0, 90.0), (3.0, 3.0, 10.0), (0.0, 10.0, 0.0)]
    assert knee_of(points) == 2
    assert knee_of([of[:2] for of in points]) == 1


def test_an_axis_on_which_all_plans_are_the_same_decides_nothing() -> None:
    assert knee_of([(0.0, 10.0, 8.0), (1.0, 2.0, 8.0), (10.0, 0.0, 8.0)]) == 1


def test_the_knee_says_what_each_way_on_from_it_costs() -> None:
    points = [(10.0, 5000.0), (20.0, 2000.0), (22.0, 1950.0), (30.0, 1000.0)]
    words = knee_words(points, ("days", "dollars"), 1)
    assert words == (
        "Knee at 20.0 days, $2,000. At the best rates, quicker by 10.0 days for $3,000 more, $300 a day; "
        "cheaper by $1,000 for 10.0 days more, $100 a day."
    )
    third = [(*of, gpus) for of, gpus in zip(points, (64.0, 48.0, 40.0, 32.0), strict=True)]
    assert "smaller by 8 GPUs for 2.0 days more and $50 less" in knee_words(
        third, ("days", "dollars", "gpus"), 1
    )


def test_the_curve_tells_apart_what_is_there_for_the_third_axis() -> None:
    drawn = curve([(1.0, 9.0), (2.0, 3.0), (3.0, 8.0), (9.0, 1.0)], 1)
    assert [drawn.count(mark) for mark in "o*"] == [2, 1]
    assert drawn.split("+")[0].count(" .") == 1


PROBLEM = """
model: llama-2-7b
training: {tokens: 20B, seq_len: 4096, global_batch: 256 sequences}
hardware: {gpu: H100, nodes: {max: 4}, price: 2 USD/gpu-hour}
search: {tp: [1, 2], cp: 1, pp: [1, 2], vpp: 1, micro_batch: [1, 2]}
"""


def test_the_verb_prints_a_curve_and_writes_what_it_found(tmp_path) -> None:
    file = tmp_path / "problem.yaml"
    file.write_text(PROBLEM)
    shown = runner.invoke(app, ["frontier", str(file), "-q", "-o", str(tmp_path / "out"), "--axis", "gpus"])
    assert shown.exit_code == 0, shown.output
    assert "no other plan belongs here" in shown.output
    written = json.loads((tmp_path / "out" / "frontier.json").read_text())
    assert written["status"] == "optimal"
    assert written["axes"] == ["days", "dollars", "gpus"]
    days = [point["estimate"]["days"] for point in written["points"]]
    assert days == sorted(days)
    for point in written["points"]:
        assert f"{point['estimate']['days']:.1f}" in shown.output


@pytest.mark.parametrize(
    ("axis", "name", "title"),
    [
        ("energy", "mwh", "MWh"),
        ("carbon", "tonnes_co2", "t CO2"),
        ("headroom", "memory_percent", "free %"),
    ],
)
def test_every_axis_is_in_the_table_and_in_the_file(tmp_path, axis: str, name: str, title: str) -> None:
    file = tmp_path / "problem.yaml"
    file.write_text(PROBLEM)
    shown = runner.invoke(app, ["frontier", str(file), "-q", "-o", str(tmp_path), "--axis", axis])
    assert shown.exit_code == 0, shown.output
    assert title in shown.output
    written = json.loads((tmp_path / "frontier.json").read_text())
    assert written["axes"] == ["days", "dollars", name]
    for point, values in zip(written["points"], written["values"], strict=True):
        of = point["estimate"]
        assert values[:2] == pytest.approx([of["days"], of["dollars"]])
        if axis == "headroom":
            whole = point["slack"]["memory"]["limit"] / 0.95
            assert values[2] - 5 <= 100 * of["memory_gib"]["total"] / whole <= values[2]
        else:
            assert values[2] == pytest.approx(of["energy"][name], rel=1e-6)


def test_a_step_without_headroom_is_refused(tmp_path) -> None:
    file = tmp_path / "problem.yaml"
    file.write_text(PROBLEM)
    shown = runner.invoke(app, ["frontier", str(file), "-q", "--step", "3", "--axis", "gpus"])
    assert shown.exit_code == 2
    assert "3 without --axis headroom" in shown.output


def test_what_cannot_be_is_said_with_numbers(tmp_path) -> None:
    file = tmp_path / "problem.yaml"
    file.write_text(PROBLEM + "limits: {budget: 10 USD}\n")
    shown = runner.invoke(app, ["frontier", str(file), "-q"])
    assert shown.exit_code == 3
    assert "budget from $10" in shown.output
