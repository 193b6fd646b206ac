"""The best plan of either kind, on one pool or on two, and what it takes: `choosing`, of both kinds."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from costmodel.units import DAY
from planner.instance import Instance
from planner.limit_move import Change, value_unit
from planner.limits import within
from planner.mixed.answer import predicted
from planner.mixed.best import Asked, Keys, best_of_each
from planner.mixed.decided import MixedMask
from planner.mixed.economy import PairEconomy, economy_of
from planner.mixed.plan import MixedPlan
from planner.mixed.questions import Either, entries, gpus_of
from planner.mixed.reasons import better_than, effect_of, first_wins, keys_of_single, told
from planner.mixed.search import Memo, memo_of
from planner.one_pool import ONE_POOL, OnOnePool
from planner.search import Effort, Plan, goal_of
from planner.search.rows import memory_limit
from planner.solution import Decisions, Scalar
from planner.variants import best_plan, best_using, holds

SAID = (
    "tp", "cp", "pp", "vpp", "dp", "ep", "etp", "micro_batch", "num_microbatches", "global_batch", "zero",
    "recompute",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class OnEither:
    """Plans on one pool and on two of an instance, and of those that differ from it in a word."""

    instance: Instance
    memo: Memo
    """Stage assignments of the instance's plans on two pools."""
    until: float | None = None
    """Searches raise OutOfTime where they would go on beyond this (of time.monotonic)."""
    stays: str = "stays in the best plan"
    wins: str = "is in the best plan"

    def best(self, instance: Instance, known: Either | None = None) -> Either | None:
        """The best plan."""
        single = best_plan(instance, self._reach(instance, known), self.until)
        return self._better(instance, single, known, None)

    def using(self, instance: Instance, index: int, known: Either | None = None) -> Either | None:
        """The best plan that uses a pool, alone or beside another."""
        single = best_using(instance, index, self._reach(instance, known), self.until)
        entry = instance.pools[index].entry
        return self._better(instance, single, known, lambda of: entry in entries(instance, of.pools))

    def _reach(self, instance: Instance, known: Either | None) -> float:
        return np.inf if known is None else self.value(instance, known)

    def _better(
        self, instance: Instance, single: Plan | None, known: Either | None, mask: MixedMask | None
    ) -> Either | None:
        """The best of a plan on one pool, a plan that is known, and those on two that a mask lets through."""
        best: Either | None = single
        if known is not None and (
            single is None or not first_wins(keys_of(instance, single), keys_of(instance, known))
        ):
            best = at(instance, known) if isinstance(known, MixedPlan) else known
        if instance.mixing is None or len(instance.described) < 2:
            return best
        keys = None if best is None else keys_of(instance, best)
        memo = memo_of(self.instance, instance, self.memo)
        effort = Effort(until=self.until)
        found = better_than(instance, keys, effort, memo, mask)[0]
        best = best if found is None else found
        effort.conclude(best)
        return best

    def why_none(self, instance: Instance, index: int) -> str:
        """Why no plan uses a pool: beside another, and alone."""
        alone = OnOnePool(self.until).why_none(instance, index)
        return f"no plan beside another pool is within the limits, and alone {alone}"

    def here(self, instance: Instance, plan: Either) -> Either | None:
        """The plan with other links or memory."""
        if isinstance(plan, Plan):
            return ONE_POOL.here(instance, plan)
        of = predicted(instance, plan)
        found = at(instance, replace(plan, step=of.step_time))
        room = [memory_limit(instance, pool) for pool in plan.pools]
        full = any(float(used.total) > most for used, most in zip(of.memory, room, strict=True))
        economy, step = economy_for(instance, found), np.array([found.step])
        return None if full or not within(instance.limits, economy, step)[0] else found

    def holds(self, instance: Instance, plan: Either) -> bool:
        """Whether a plan is within the limits of an instance, its nodes and batch too."""
        if isinstance(plan, Plan):
            return holds(instance, plan)
        nodes = gpus_by_entry(instance, plan)
        pools = (instance.pools[index] for index in plan.pools)
        enough = all(
            pool.min_nodes <= nodes[pool.entry] / pool.fabric.gpus_per_node <= pool.max_nodes
            for pool in pools
        )
        batch = instance.min_batch <= plan.global_batch <= instance.max_batch
        return enough and batch and self.here(instance, plan) is not None

    def value(self, instance: Instance, plan: Either) -> float:
        """The first sort key."""
        return float(keys_of(instance, plan)[0][0])

    def days(self, instance: Instance, plan: Either) -> float:
        """How long the run takes."""
        return plan.seconds / DAY if isinstance(plan, MixedPlan) else ONE_POOL.days(instance, plan)

    def pools(self, plan: Either) -> tuple[int, ...]:
        """One or two."""
        return plan.pools if isinstance(plan, MixedPlan) else ONE_POOL.pools(plan)

    def called(self, instance: Instance, plan: Either) -> str:
        """Its GPU types."""
        types = gpus_of(instance, plan)
        return f"a plan on {types}" if isinstance(plan, MixedPlan) else types

    def machines(self, instance: Instance, plan: Either) -> str:
        """128 x H20 + 128 x H800."""
        return told(instance, plan).decisions.machines

    def change(self, instance: Instance, plan: Either, there: Instance, other: Either) -> Change:
        """From one plan to the other."""
        mine, theirs = told(instance, plan), told(there, other)
        scale = DAY if value_unit(instance) == "days" else 1.0
        return Change(
            before=self.value(instance, plan) / scale,
            after=self.value(there, other) / scale,
            effect=effect_of(mine, theirs),
            decisions=decided_otherwise(mine.decisions, theirs.decisions),
            machines=theirs.decisions.machines,
        )

    def on_same_gpus(self, instance: Instance, plan: Either, there: Instance, other: Either) -> float | None:
        """Days of the best plan on exactly as many GPUs of each of the plan's pools."""
        wanted = gpus_by_entry(instance, plan)
        if gpus_by_entry(there, other) == wanted:
            return self.days(there, other)
        narrow = exactly(there, wanted)
        if len(narrow.described) < len(wanted):
            return None
        if len(wanted) == 1:
            found: Either | None = best_plan(narrow, until=self.until)
        else:
            effort = Effort(until=self.until)
            found = best_of_each(narrow, [Asked()], effort).best
            effort.conclude(found)
        return None if found is None else self.days(narrow, found)


def keys_of(instance: Instance, plan: Either) -> Keys:
    """Sort keys of a plan of either kind."""
    if isinstance(plan, Plan):
        return keys_of_single(instance, plan)
    return goal_of(instance).keys(economy_for(instance, plan), np.array([plan.step]))


def economy_for(instance: Instance, plan: MixedPlan) -> PairEconomy:
    """What turns the step of a plan on two pools into days and dollars."""
    pools = instance.pools[plan.pools[0]], instance.pools[plan.pools[1]]
    tokens = np.array([float(plan.global_batch * instance.seq_len)])
    return economy_of(instance, pools, np.array(plan.num_gpus)[:, None], tokens, np.array([plan.replicas]))


def at(instance: Instance, plan: MixedPlan) -> MixedPlan:
    """A plan on two pools at an instance's prices."""
    economy = economy_for(instance, plan)
    seconds = economy.seconds(np.array([plan.step]))
    return replace(plan, seconds=float(seconds[0]), dollars=float(economy.total("cost", seconds)[0]))


def gpus_by_entry(instance: Instance, plan: Either) -> dict[int, int]:
    """GPUs that a plan has of each described pool that it uses."""
    pools, gpus = (
        (plan.pools, plan.num_gpus)
        if isinstance(plan, MixedPlan)
        else ((plan.of("pool"),), (plan.of("num_gpus"),))
    )
    return {instance.pools[index].entry: number for index, number in zip(pools, gpus, strict=True)}


def exactly(instance: Instance, wanted: dict[int, int]) -> Instance:
    """The instance with these pools only, each with exactly so many GPUs."""
    pools = []
    for pool in instance.pools:
        nodes, rest = divmod(wanted.get(pool.entry, 0), pool.fabric.gpus_per_node)
        if nodes and not rest:
            pools.append(replace(pool, min_nodes=nodes, max_nodes=nodes))
    return replace(instance, pools=tuple(pools))


def decided_otherwise(mine: Decisions, theirs: Decisions) -> dict[str, Scalar]:
    """What another plan decides otherwise, its machines first."""
    found: dict[str, Scalar] = {"gpus": theirs.machines} if theirs.machines != mine.machines else {}
    return found | {
        name: getattr(theirs, name) for name in SAID if getattr(theirs, name) != getattr(mine, name)
    }
