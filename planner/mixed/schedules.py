"""Layouts on two pools with their numbers of micro-batches, by bounds that come closer step by step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from costmodel.records import gather
from planner.bound.mix import LayerMix
from planner.hfu import again_at_most, hfu_requirement, longest_with
from planner.instance import Instance
from planner.mixed.arrangement import Arrangement
from planner.mixed.bound import SURE, pace_of_work, pace_without_memory, step_of
from planner.mixed.branch import Branch, branches_of, least_of
from planner.mixed.costs import Around
from planner.mixed.decided import Decided
from planner.mixed.economy import PairEconomy, Running, peak_of_both
from planner.mixed.layouts import MixedRows, chunked, most_chunks_of
from planner.mixed.micro_batches import numbers_of
from planner.mixed.plan import MixedPlan
from planner.mixed.pricing import costs_of
from planner.mixed.stages import MixedStages
from planner.running import by_replicas
from planner.space.columns import families
from planner.space.recompute import stage_recompute
from planner.stages.problem import StagePlan, StageProblem

if TYPE_CHECKING:
    from planner.mixed.search import MixedSearch

Array = NDArray[Any]
ROWS = 1 << 10
"""Layouts that are priced together."""
FIRST_ROWS = 16
"""Layouts whose schedules are written down first; each further batch is twice as large."""


def loosely(instance: Instance, economy: PairEconomy) -> PairEconomy:
    """With what is required of the step itself as loose as the smallest batch has it.

    Time for each sequence falls with their number: a step of B sequences that takes t at least leaves
    t*b/B to one of b.
    """
    if economy.required is None:
        return economy
    steps = np.array([of.name == "step_time_s" for of in instance.limits.steps])
    fixed = economy.fixed[..., None]
    smallest = fixed + (economy.required - fixed) * (instance.max_batch / instance.min_batch)
    return replace(economy, required=np.where(steps, smallest, economy.required))


@dataclass(frozen=True, slots=True)
class Schedules:
    """Layouts with their numbers of micro-batches: what is left to decide is where layers lie."""

    of: Arrangement
    family: int
    branch: Branch
    row: Array
    """Of the branch."""
    num_microbatches: Array
    """(2, schedules)"""
    bound: Array
    """Least seconds of a step."""
    economy: PairEconomy
    decided: Decided

    def plan(self, index: int) -> MixedPlan:
        """The decisions of one; its stages and figures are still open."""
        rows, at = self.branch.rows, int(self.row[index])
        keys = self.of.keys.take(rows.key[[at]])
        decided = {n: int(getattr(keys, n)[0]) for n in ("tp", "cp", "ep", "etp", "micro_batch")}
        first, second = (int(m) for m in self.num_microbatches[:, index])
        return MixedPlan(
            form=self.of.form,
            pools=self.of.pools,
            **decided,
            pp=int(rows.pp[at]),
            vpp=int(rows.vpp[at]),
            zero=int(rows.zero[at]),
            split=int(rows.split[at]),
            dp=(int(rows.dp[0, at]), int(rows.dp[1, at])),
            num_microbatches=(first, second),
            variant=int(keys.variant[0]),
            stages=StagePlan((), ()),
            step=float("nan"),
            seconds=float("nan"),
            dollars=float("nan"),
        )

    def problem(self, index: int) -> MixedStages:
        """The stage assignment of one."""
        instance, at = self.of.instance, self.row[[index]]
        assert self.branch.costs is not None
        costs = self.branch.costs.take(at)
        first, second = (int(m) for m in self.num_microbatches[:, index])
        longest, longer = self._longest(self.plan(index))
        shape = StageProblem(
            architecture=instance.architecture,
            rates=gather(costs.rates[0], np.array(0)),
            pp=int(costs.pp[0]),
            vpp=int(costs.vpp[0]),
            # Chunks that one pool's replicas keep alike may differ on those that run more.
            num_microbatches=max(first, second),
            memory_limit=float("inf"),
            recompute=stage_recompute(self.family),
            uniform=not instance.per_stage_recompute,
            longest=longest,
            longer=longer,
        )
        return MixedStages.of(shape, costs, (first, second))

    def _longest(self, row: MixedPlan) -> tuple[float, tuple[float, ...]]:
        """The longest step with no layer recomputed whole, and what each adds, where an HFU is required."""
        instance = self.of.instance
        required = hfu_requirement(instance)
        if required is None:
            return np.inf, ()
        tokens, peak = row.global_batch * instance.seq_len, peak_of_both(self.of.both, np.array(row.num_gpus))
        return longest_with(instance, row.variant, float(tokens / peak / required.value))


@dataclass(frozen=True, slots=True)
class LayoutBounds:
    """Bounds of layouts of one arrangement, each closer than the one before, down to their schedules."""

    of: Arrangement
    running: Running
    search: MixedSearch

    def each(self, rows: MixedRows) -> None:
        """Settles all schedules of layouts that may win, best bounds first."""
        # First what needs no prices, of all layouts at once, with as many chunks as each may have.
        rows, least = self._sifted(rows)
        for _, family, at in families(self.of.keys.take(rows.key)):
            for start in range(0, len(at), ROWS):
                self.search.effort.check()
                some = at[start : start + ROWS]
                # What was found since may leave fewer of them.
                some = some[self._wins(rows.take(some), least[some])]
                self.search.written.opened += len(some)
                each = self._promising(chunked(self.of.instance, self.of, rows.take(some)))
                for first in range(0, len(each), ROWS):
                    self._block(each.take(np.arange(first, min(first + ROWS, len(each)))), family)

    def _sifted(self, rows: MixedRows) -> tuple[MixedRows, Array]:
        """`_promising`, with the least that they take; counts those that break a limit."""
        search, least, economy = self.search, least_of(self.of, self._bare(rows)), self._economy(rows)
        some = search.written.sift(search.goal.limits, economy, least, impossible="search")
        decided = self._decided(rows).take(some)
        some = some[search.best_first(economy.take(some), least[some], decided)]
        return rows.take(some), least[some]

    def _promising(self, rows: MixedRows) -> MixedRows:
        """Layouts that may win by what needs no prices, the best first."""
        return rows.take(self._wins(rows, least_of(self.of, self._bare(rows))))

    def _wins(self, rows: MixedRows, least: Array) -> Array:
        """Layouts that may win, the best first, if they take so long for the largest batch."""
        return self.search.wins(self._economy(rows), least, self._decided(rows))

    def _decided(self, rows: MixedRows, num_microbatches: Array | None = None) -> Decided:
        return Decided(self.of, self.running.num_gpus[:, rows.cell], rows.key, rows, num_microbatches)

    def _bare(self, rows: MixedRows) -> Branch:
        """Layouts by their layers, bubble and stragglers alone."""
        of, stages = self.of, self.of.form == "stages"
        pace = pace_of_work(of.parts[:, rows.key], rows.pp, rows.split, stages)
        scale = of.book.stragglers(self.running.num_gpus[:, rows.cell].sum(axis=0))
        most = most_chunks_of(of.instance, of.form)[rows.pp]
        vpp = np.where(rows.vpp > 0, rows.vpp, most)
        around = Around.nothing(1 if stages else 2, scale, vpp, of.instance.stack.pipeline.bubble)
        return Branch.opened(rows, None, pace, around)

    def _block(self, rows: MixedRows, family: int) -> None:
        mix, costs = LayerMix.of(self.of.instance.architecture), costs_of(self.of, rows)
        pace = pace_without_memory(costs, mix)
        rough = Branch.opened(rows, costs, pace, costs.around(mix))
        some = self._wins(rows, least_of(self.of, rough))
        branches = branches_of(self.of, rough.take(some), family)
        bounds = [least_of(self.of, of) for of in branches]
        size = FIRST_ROWS
        while any(len(of.rows) for of in branches):
            for number, of in enumerate(branches):
                self.search.effort.check()
                order = self._wins(of.rows, bounds[number])
                first, rest = order[:size], order[size:]
                if len(first):
                    self.search.settle(self._schedules(of.take(first), family))
                branches[number], bounds[number] = of.take(rest), bounds[number][rest]
            size *= 2

    def _economy(self, rows: MixedRows) -> PairEconomy:
        """At the largest batch: what no schedule of the rows can beat."""
        instance = self.of.instance
        tokens = np.full(len(rows), float(instance.max_batch * instance.seq_len))
        return loosely(instance, self._priced(rows, tokens))

    def _priced(self, rows: MixedRows, tokens: Array) -> PairEconomy:
        """With so many tokens a step."""
        instance, again = self.of.instance, None
        if hfu_requirement(instance) is not None:
            again = again_at_most(instance, self.of.keys.take(rows.key))
        return self._running(rows).economy(instance, self.of.both, tokens, again)

    def _running(self, rows: MixedRows) -> Running:
        """What is fixed by the GPUs, and by the replicas where these save or load for themselves."""
        if not any(by_replicas(pool.site) for pool in self.of.both):
            return self.running.take(rows.cell)
        gpus = self.running.num_gpus[:, rows.cell]
        return Running.of(self.of.instance, self.of.both, gpus, rows.replicas(self.of))

    def _schedules(self, of: Branch, family: int) -> Schedules:
        """All schedules of a branch's layouts that may win."""
        found: list[Array] = []
        for index in range(len(of.rows)):
            self.search.effort.check()
            found.append(self._numbers(of.take(np.array([index])), family))
        row = np.concatenate([np.full(each.shape[1], index) for index, each in enumerate(found)])
        return self._bounded(of, family, row, np.concatenate(found, axis=1))

    def _numbers(self, one: Branch, family: int) -> Array:
        """(2, schedules) numbers of micro-batches of one layout that may win."""

        def winning(m: Array) -> Array:
            some = self._bounded(one, family, np.zeros(m.shape[1], dtype=np.int64), m)
            return self.search.wins(some.economy, some.bound, some.decided)

        def largest(m: Array) -> Array:
            rows = one.rows.take(np.zeros(m.shape[1], dtype=np.int64))
            return self.search.largest(self._decided(rows, m))

        return numbers_of(self.of, one, winning, largest)

    def _bounded(self, of: Branch, family: int, row: Array, m: Array) -> Schedules:
        at = of.take(row)
        bound = step_of(at.around, at.pace, m) * SURE
        tokens = at.rows.sequences(self.of, m) * float(self.of.instance.seq_len)
        economy = self._priced(at.rows, tokens)
        return Schedules(self.of, family, of, row, m, bound, economy, self._decided(at.rows, m))
