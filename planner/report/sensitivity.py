"""How much the answer moves when a price, a limit or the hardware is 10 % other: every end is chosen again.

Prices, limits, tokens and step times leave each plan as it is, so that the choice is made again among all
candidates. Other links change what a plan takes, and with other memory other plans fit: the problem is solved
again, from what the chosen plan takes there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.units import DAY
from planner.answer import days_and_dollars, decisions
from planner.cli.words import decisions_line
from planner.economics import Economy
from planner.instance import Instance, Pool
from planner.problem import Problem
from planner.report.candidates import Candidate, row_of
from planner.report.choice import Setting, choose
from planner.search import Effort, Plan, Table, best, goal_of
from planner.search.goal import OutOfTime
from planner.search.stricter import stricter
from planner.solution import Decisions, End, Swing
from planner.space.recompute import recompute_families
from planner.stages.problem import StagePlan
from planner.validate import stage_lists
from planner.variants import reach_of

Array = NDArray[Any]
CHANGE = 0.10


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
            return nothing(to)
        one = self.candidates[chosen]
        length = one.seconds if seconds is None else float(seconds[chosen])
        paid = one.rent * setting.prices.get(one.entry, 1.0) * max(length, one.committed)
        return End(to=to, days=length / DAY, dollars=paid, plan=one_line(one.plan.decisions))


def nothing(to: str) -> End:
    """An end at which no plan is within the limits."""
    return End(to=to, days=None, dollars=None, plan="no plan is within the limits")


def sensitivity(
    problem: Problem, instance: Instance, candidates: tuple[Candidate, ...], until: float | None = None
) -> tuple[tuple[Swing, ...], tuple[str, ...]]:
    """Every quantity that moves anything, those that move the answer most first; and what was not asked.

    That is what would have to be solved again after `until` (of time.monotonic).
    """
    scene = Scene(problem, instance, candidates)
    if choose(instance, candidates, Setting.of(instance)) is None:
        return (), ()
    solved_again = list(hardware(scene, until))
    left_out = [name for name in changes_of(scene) if name not in {swing.name for swing in solved_again}]
    found = [*prices(scene), *limits(scene), *lengths(scene), *solved_again]
    usual = scene.end("", Setting.of(instance))
    moved = [swing for swing in found if any(differs(usual, end) for end in (swing.low, swing.high))]
    first = "days" if instance.objective[0][0] == "time" else "dollars"
    return tuple(sorted(moved, key=lambda swing: -width(swing, first))), tuple(left_out)


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
    for pool in (scene.instance.pools[index] for index in scene.instance.described):
        if not pool.price:
            continue
        ends = [
            scene.end(f"${pool.price * factor:.2f} a GPU-hour", replace(base, prices={pool.entry: factor}))
            for factor in (1 - CHANGE, 1 + CHANGE)
        ]
        yield Swing(name=f"price of {pool.gpu.name}", low=ends[0], high=ends[1], how="chosen again")


def limits(scene: Scene) -> Iterator[Swing]:
    """Deadline and budget."""
    base = Setting.of(scene.instance)
    if base.deadline is not None:
        days = base.deadline / DAY
        ends = [
            scene.end(f"{days * factor:.1f} days", replace(base, deadline=base.deadline * factor))
            for factor in (1 - CHANGE, 1 + CHANGE)
        ]
        yield Swing(name="deadline", low=ends[0], high=ends[1], how="chosen again")
    if base.budget is not None:
        ends = [
            scene.end(f"${base.budget * factor:,.0f}", replace(base, budget=base.budget * factor))
            for factor in (1 - CHANGE, 1 + CHANGE)
        ]
        yield Swing(name="budget", low=ends[0], high=ends[1], how="chosen again")


def lengths(scene: Scene) -> Iterator[Swing]:
    """Tokens, and step times that come out otherwise than predicted."""
    instance, base = scene.instance, Setting.of(scene.instance)
    ends = []
    for factor in (1 - CHANGE, 1 + CHANGE):
        other = replace(instance, tokens=instance.tokens * factor)
        ends.append(scene.end(token_words(other.tokens), base, seconds_of(other, scene.candidates)))
    yield Swing(name="tokens", low=ends[0], high=ends[1], how="chosen again")
    ends = [
        scene.end(f"{factor - 1:+.0%}", base, seconds_of(instance, scene.candidates, factor))
        for factor in (1 - CHANGE, 1 + CHANGE)
    ]
    yield Swing(name="step time", low=ends[0], high=ends[1], how="chosen again")


def token_words(tokens: float) -> str:
    """3T, 2.7T, 90B."""
    return f"{tokens / 1e12:.3g}T" if tokens >= 1e12 else f"{tokens / 1e9:.3g}B"


def seconds_of(instance: Instance, candidates: tuple[Candidate, ...], factor: float = 1.0) -> Array:
    """Lengths of the candidates' runs with steps so many times as long."""
    steps = [one.plan.estimate.step_time_s * factor for one in candidates]
    return np.array([length(instance, one, step) for one, step in zip(candidates, steps, strict=True)])


def length(instance: Instance, one: Candidate, step: float) -> float:
    """Seconds of a candidate's run with another time of a step."""
    economy = Economy.of(instance, row_of(instance, one.pool, one.plan.decisions))
    return float(economy.seconds(np.array([step]))[0])


def changes_of(scene: Scene) -> dict[str, Callable[[Pool, float], Pool]]:
    """Memory, and bandwidths where time comes from the cost model."""
    changes: dict[str, Callable[[Pool, float], Pool]] = {"GPU memory": with_memory}
    if scene.instance.assume_mfu is None:
        changes["NVLink bandwidth"] = partial(with_link, "nvlink")
        if max(one.plan.decisions.nodes for one in scene.candidates) > 1:
            changes["network bandwidth"] = partial(with_link, "nic")
    return changes


def hardware(scene: Scene, until: float | None) -> Iterator[Swing]:
    """What other hardware changes, as far as there is time: the problem solved again."""
    instance, roomiest, clock = scene.instance, None, Effort(until=until)
    for name, change in changes_of(scene).items():
        ends = []
        # With more memory first: what has no room there has none on any of the others.
        for factor in (1 + CHANGE, 1 - CHANGE):
            other = replace(instance, pools=tuple(change(pool, factor) for pool in instance.pools))
            goal = goal_of(other)
            try:
                table = table_of(other, clock) if roomiest is None else stricter(roomiest, other, goal)
                found = solved(scene, table, until)
            except OutOfTime:
                return
            roomiest = table if roomiest is None else roomiest
            ends.append(found.model_copy(update={"to": f"{factor - 1:+.0%}"}))
        yield Swing(name=name, low=ends[1], high=ends[0], how="solved again")


def with_link(field: str, pool: Pool, factor: float) -> Pool:
    """A pool with links so many times as fast."""
    return replace(pool, fabric=replace(pool.fabric, **{field: getattr(pool.fabric, field) * factor}))


def with_memory(pool: Pool, factor: float) -> Pool:
    """A pool whose GPUs have so many times the memory."""
    memory = pool.gpu.memory.model_copy(update={"driver": pool.gpu.memory.driver * factor})
    return replace(pool, gpu=pool.gpu.model_copy(update={"memory": memory}))


def table_of(instance: Instance, clock: Effort) -> Table:
    """A search of which nothing is known."""
    return Table.of(instance, goal_of(instance), recompute_families(instance), clock.check)


def solved(scene: Scene, table: Table, until: float | None) -> End:
    """What is chosen on other hardware. Raises OutOfTime."""
    effort, other = Effort(until=until), table.instance
    plan = best(table, None, effort, reach_on(scene, other))
    effort.conclude()
    if plan is None:
        return nothing("")
    days, dollars = days_and_dollars(other, plan)
    return End(to="", days=days, dollars=dollars, plan=one_line(decisions(other, plan)))


def reach_on(scene: Scene, other: Instance) -> float:
    """What the chosen plan has of the objective's first term on other hardware; inf if it is none there."""
    chosen = choose(scene.instance, scene.candidates, Setting.of(scene.instance))
    assert chosen is not None
    one = scene.candidates[chosen]
    layers, recomputed = stage_lists(one.plan.decisions)
    row = row_of(other, one.pool, one.plan.decisions)
    return reach_of(other, Plan(row, StagePlan(tuple(layers), tuple(recomputed)), np.nan, np.nan))


def one_line(d: Decisions) -> str:
    """A plan in a line."""
    return f"{d.num_gpus} x {d.gpu}, {decisions_line(d)}"
