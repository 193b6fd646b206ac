"""How much the answer moves when a price, a limit or the hardware is 10 % other: every end is chosen again.

Prices, limits, tokens and step times leave each plan as it is, so that the choice is made again among all
candidates. Other bandwidths change what a plan takes: the candidates are priced again on them. With more or
less memory other plans fit: the problem is solved again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from costmodel.estimate import estimate
from costmodel.run import Run
from planner.answer import days_and_dollars, decisions
from planner.cli.words import decisions_line
from planner.economics import DAY, Economy
from planner.instance import Instance, Pool
from planner.problem import Problem
from planner.report.candidates import Candidate, row_of
from planner.report.choice import Setting, choose
from planner.search import Effort, Plan, Table, best, goal_of
from planner.solution import Decisions
from planner.space.values import recompute_families, recompute_modes
from planner.validate import described_run, stage_lists

Array = NDArray[Any]
CHANGE = 0.10
CLOSE = 1.0 + 3 * CHANGE
"""Candidates that take more than so many times the dollars and days of the chosen plan stay as they are."""


@dataclass(frozen=True, slots=True)
class End:
    """What is chosen at one end of a change."""

    to: str
    """The value there."""
    days: float | None
    """None where nothing is within the limits."""
    dollars: float | None
    plan: str
    """In words."""


@dataclass(frozen=True, slots=True)
class Swing:
    """One quantity, 10 % less and 10 % more."""

    name: str
    low: End
    high: End
    how: Literal["chosen again", "priced again", "solved again"]
    """Among all candidates; among them, each at its new price; among all plans there are."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What is asked of: a problem with its candidates."""

    problem: Problem
    instance: Instance
    candidates: tuple[Candidate, ...]

    def end(self, to: str, setting: Setting, seconds: Array | None = None) -> End:
        """The choice in one setting."""
        chosen = choose(self.instance, self.candidates, setting, seconds)
        if chosen is None:
            return End(to, None, None, "no plan is within the limits")
        one = self.candidates[chosen]
        length = one.seconds if seconds is None else float(seconds[chosen])
        paid = one.rent * setting.prices.get(one.pool, 1.0) * max(length, one.committed)
        return End(to, length / DAY, paid, one_line(one.plan.decisions))


def sensitivity(
    problem: Problem, instance: Instance, candidates: tuple[Candidate, ...], until: float | None = None
) -> tuple[Swing, ...]:
    """Every quantity that moves anything; those that move the answer most come first.

    What would have to be solved again after `until` (of time.monotonic) is left out.
    """
    scene = Scene(problem, instance, candidates)
    if choose(instance, candidates, Setting.of(instance)) is None:
        return ()
    found = [*prices(scene), *limits(scene), *lengths(scene), *links(scene), *memory(scene, until)]
    usual = scene.end("", Setting.of(instance))
    moved = [swing for swing in found if any(differs(usual, end) for end in (swing.low, swing.high))]
    first = "days" if instance.objective[0][0] == "time" else "dollars"
    return tuple(sorted(moved, key=lambda swing: -width(swing, first)))


def differs(usual: End, end: End) -> bool:
    """Whether another plan is chosen, or the same one takes otherwise."""
    return (end.days, end.dollars) != (usual.days, usual.dollars)


def width(swing: Swing, of: str) -> float:
    """How far the ends are apart; infinitely where there is no plan at one."""
    low, high = getattr(swing.low, of), getattr(swing.high, of)
    return np.inf if low is None or high is None else abs(high - low)


def prices(scene: Scene) -> Iterator[Swing]:
    """The price of each pool."""
    base = Setting.of(scene.instance)
    for index, pool in enumerate(scene.instance.pools):
        if not pool.price:
            continue
        ends = [
            scene.end(f"${pool.price * factor:.2f} a GPU-hour", replace(base, prices={index: factor}))
            for factor in (1 - CHANGE, 1 + CHANGE)
        ]
        yield Swing(f"price of {pool.gpu.name}", *ends, how="chosen again")


def limits(scene: Scene) -> Iterator[Swing]:
    """Deadline and budget."""
    base = Setting.of(scene.instance)
    if base.deadline is not None:
        days = base.deadline / DAY
        ends = [
            scene.end(f"{days * factor:.1f} days", replace(base, deadline=base.deadline * factor))
            for factor in (1 - CHANGE, 1 + CHANGE)
        ]
        yield Swing("deadline", *ends, how="chosen again")
    if base.budget is not None:
        ends = [
            scene.end(f"${base.budget * factor:,.0f}", replace(base, budget=base.budget * factor))
            for factor in (1 - CHANGE, 1 + CHANGE)
        ]
        yield Swing("budget", *ends, how="chosen again")


def lengths(scene: Scene) -> Iterator[Swing]:
    """Tokens, and step times that come out otherwise than predicted."""
    instance, base = scene.instance, Setting.of(scene.instance)
    ends = []
    for factor in (1 - CHANGE, 1 + CHANGE):
        other = replace(instance, tokens=instance.tokens * factor)
        ends.append(scene.end(token_words(other.tokens), base, seconds_of(other, scene.candidates)))
    yield Swing("tokens", *ends, how="chosen again")
    ends = [
        scene.end(f"{factor - 1:+.0%}", base, seconds_of(instance, scene.candidates, factor))
        for factor in (1 - CHANGE, 1 + CHANGE)
    ]
    yield Swing("step time", *ends, how="chosen again")


def token_words(tokens: float) -> str:
    """3T, 2.7T, 90B."""
    return f"{tokens / 1e12:.3g}T" if tokens >= 1e12 else f"{tokens / 1e9:.3g}B"


def seconds_of(instance: Instance, candidates: tuple[Candidate, ...], factor: float = 1.0) -> Array:
    """Lengths of the candidates' runs with steps so many times as long."""
    steps = [one.plan.estimate.step_time_s * factor for one in candidates]
    return np.array([length(instance, one, step) for one, step in zip(candidates, steps, strict=True)])


def length(instance: Instance, one: Candidate, step: float) -> float:
    """Seconds of a candidate's run with another time of a step."""
    economy = Economy.of(instance, row_of(one.pool, one.plan.decisions))
    return float(economy.seconds(np.array([step]))[0])


def links(scene: Scene) -> Iterator[Swing]:
    """Bandwidths, where time comes from the cost model."""
    if scene.problem.assume_mfu is not None:
        return
    base, nodes = Setting.of(scene.instance), max(one.plan.decisions.nodes for one in scene.candidates)
    for name, field in (("NVLink bandwidth", "nvlink"), ("network bandwidth", "nic")):
        if field == "nic" and nodes == 1:
            continue
        ends = [
            scene.end(f"{factor - 1:+.0%}", base, repriced(scene, with_link(field, factor)))
            for factor in (1 - CHANGE, 1 + CHANGE)
        ]
        yield Swing(name, *ends, how="priced again")


def with_link(field: str, factor: float) -> Callable[[Run], Run]:
    """The same run over faster or slower links."""
    return lambda run: replace(
        run, fabric=replace(run.fabric, **{field: getattr(run.fabric, field) * factor})
    )


def repriced(scene: Scene, other: Callable[[Run], Run]) -> Array:
    """Lengths of the candidates' runs on other hardware; those far from the choice stay as they were."""
    chosen = choose(scene.instance, scene.candidates, Setting.of(scene.instance))
    assert chosen is not None
    mine = scene.candidates[chosen]
    seconds = np.array([one.seconds for one in scene.candidates])
    for i, one in enumerate(scene.candidates):
        if one.dollars <= CLOSE * mine.dollars or one.seconds <= CLOSE * mine.seconds:
            seconds[i] = length(scene.instance, one, step_on(scene.problem, one, other))
    return seconds


def step_on(problem: Problem, one: Candidate, other: Callable[[Run], Run]) -> float:
    """Seconds of a candidate's step on other hardware."""
    run = other(described_run(problem, problem.hardware[one.pool], one.plan.decisions))
    return estimate(run, *stage_lists(one.plan.decisions)).step_time


def memory(scene: Scene, until: float | None) -> Iterator[Swing]:
    """Memory of every GPU."""
    ends = []
    for factor in (1 - CHANGE, 1 + CHANGE):
        pools = tuple(with_memory(pool, factor) for pool in scene.instance.pools)
        other, effort = replace(scene.instance, pools=pools), Effort(until=until)
        plan = best(Table.of(other, goal_of(other), recompute_families(recompute_modes(other))), None, effort)
        if effort.out_of_time:
            return
        ends.append(solved_end(f"{factor - 1:+.0%}", other, plan))
    yield Swing("GPU memory", *ends, how="solved again")


def with_memory(pool: Pool, factor: float) -> Pool:
    """A pool whose GPUs have so many times the memory."""
    memory = pool.gpu.memory.model_copy(update={"driver": pool.gpu.memory.driver * factor})
    return replace(pool, gpu=pool.gpu.model_copy(update={"memory": memory}))


def solved_end(to: str, instance: Instance, plan: Plan | None) -> End:
    """What a search chose."""
    if plan is None:
        return End(to, None, None, "no plan is within the limits")
    return End(to, *days_and_dollars(instance, plan), one_line(decisions(instance, plan)))


def one_line(d: Decisions) -> str:
    """A plan in a line."""
    return f"{d.num_gpus} x {d.gpu}, {decisions_line(d)}"
