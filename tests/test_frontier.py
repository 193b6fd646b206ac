"""The frontier is every plan that no other beats in both days and dollars, and nothing else."""

from __future__ import annotations

import json
from random import Random

import pytest
from oracle import Answer, small_problem, with_limits, within
from typer.testing import CliRunner

from planner.cli.app import app
from planner.frontier import knee_of
from planner.search.front import figures, frontier, undominated

SAME = 1e-6
runner = CliRunner()


def brute_force(answers: list[Answer], gpus: bool) -> list[tuple[float, ...]]:
    """Points that no other answer is no worse than in everything."""
    points = sorted(
        {(a.seconds, a.dollars, *([float(size_of(a))] if gpus else [])) for a in answers},
    )
    found: list[tuple[float, ...]] = []
    for point in points:
        if not any(all(x <= y * (1 + SAME) for x, y in zip(of, point, strict=True)) for of in found):
            found.append(point)
    return found


def size_of(answer: Answer) -> int:
    one = answer.layout
    return one.tp * one.cp * one.pp * one.dp


def near(mine: list[tuple[float, ...]], theirs: list[tuple[float, ...]]) -> bool:
    """Every point of either has one of the other that is no worse than it."""

    def covered(point: tuple[float, ...], by: list[tuple[float, ...]]) -> bool:
        return any(all(x <= y * (1 + 2 * SAME) for x, y in zip(of, point, strict=True)) for of in by)

    return all(covered(p, theirs) for p in mine) and all(covered(p, mine) for p in theirs)


def wrong(seed: int, axis: str | None) -> list[str]:
    random = Random(seed)
    oracle = small_problem(random, 300)
    instance = with_limits(random, oracle)
    answers = within(instance, oracle.answers(instance))
    plans, _ = frontier(instance, axis=axis)
    mine = [figures(instance, plan)[: 2 if axis is None else 3] for plan in plans]
    theirs = brute_force(answers, axis is not None)
    if not near(mine, theirs):
        return [f"seed {seed}: {mine}, brute force {theirs}"]
    return [] if undominated(mine) == sorted(mine) else [f"seed {seed}: dominated points in {mine}"]


@pytest.mark.parametrize("axis", [None, "gpus"])
@pytest.mark.parametrize("block", range(4))
def test_the_frontier_is_that_of_brute_force(block: int, axis: str | None) -> None:
    lines = [line for seed in range(500 + block * 10, 510 + block * 10) for line in wrong(seed, axis)]
    assert not lines, "\n".join(lines)


@pytest.mark.slow
@pytest.mark.parametrize("axis", [None, "gpus"])
@pytest.mark.parametrize("block", range(10))
def test_the_frontier_is_that_of_brute_force_on_many_more(block: int, axis: str | None) -> None:
    lines = [line for seed in range(50_000 + block * 20, 50_020 + block * 20) for line in wrong(seed, axis)]
    assert not lines, "\n".join(lines)


def test_the_knee_lies_farthest_below_the_line_between_the_ends() -> None:
    assert knee_of([]) is None
    assert knee_of([(1.0, 5.0)]) == 0
    assert knee_of([(0.0, 10.0), (1.0, 2.0), (10.0, 0.0)]) == 1
    assert knee_of([(0.0, 10.0), (6.0, 4.5), (7.0, 1.0), (10.0, 0.0)]) == 2


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


def test_what_cannot_be_is_said_with_numbers(tmp_path) -> None:
    file = tmp_path / "problem.yaml"
    file.write_text(PROBLEM + "limits: {budget: 10 USD}\n")
    shown = runner.invoke(app, ["frontier", str(file), "-q"])
    assert shown.exit_code == 3
    assert "budget from $10" in shown.output
