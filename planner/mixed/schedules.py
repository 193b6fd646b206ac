"""Numbers of micro-batches of layouts on two pools, and bounds of layouts over all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.mixed import crossing, replica_rates
from costmodel.stage import StageRates
from planner.bound.mix import LayerMix
from planner.bound.recompute import recompute_cases
from planner.economics import Economy
from planner.instance import Instance
from planner.keybook import gather, run_of_rows
from planner.mixed.arrangement import Arrangement
from planner.mixed.bound import (
    Around,
    MixedCosts,
    Pace,
    pace_of_work,
    pace_within_memory,
    pace_without_memory,
    step_of,
)
from planner.mixed.economy import PairEconomy, Running
from planner.mixed.layouts import MixedRows
from planner.mixed.plan import MixedPlan
from planner.mixed.stages import MixedStages
from planner.running import by_replicas
from planner.search.rows import memory_limit
from planner.space.columns import SELECTIVE, STAGE_RECOMPUTE, values_of
from planner.stages import StagePlan, StageProblem

Array = NDArray[Any]
Wins = Callable[[Economy, Array], Array]
"""Which rows may be better than the best plan, in order of their bounds."""
ROWS = 1 << 12
"""Layouts that are priced together."""
FIRST_ROWS = 16
"""Layouts whose schedules are written down first; each further batch is twice as large."""
PAIRS = 1 << 20
"""Pairs of numbers of micro-batches that are written down together."""
SURE = 1 - 1e-9


def loosely(instance: Instance, economy: PairEconomy) -> PairEconomy:
    """Without what is required of the step itself: smaller batches may keep to it."""
    if economy.required is None:
        return economy
    steps = np.array([of.name == "step_time_s" for of in instance.limits.steps])
    return replace(economy, required=np.where(steps, np.inf, economy.required))


@dataclass(frozen=True, slots=True)
class Branch:
    """Layouts with what memory leaves of them: all micro-batches that they keep in flight, or fewer."""

    rows: MixedRows
    costs: MixedCosts | None
    """None: not priced yet."""
    pace: Pace
    around: Around
    capped: Array
    """(2, rows) most micro-batches of each pool's replicas; inf where nothing caps them."""
    filled: Array
    """Whether every pipeline fills."""

    def take(self, index: Array) -> Branch:
        """Of some rows."""
        costs = None if self.costs is None else self.costs.take(index)
        return Branch(
            self.rows.take(index), costs, self.pace.take(index), self.around.take(index),
            self.capped[:, index], self.filled[index],
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Schedules:
    """Layouts with their numbers of micro-batches: what is left to decide is where layers lie."""

    views: Views
    family: int
    branch: Branch
    row: Array
    """Of the branch."""
    num_microbatches: Array
    """(2, schedules)"""
    bound: Array
    """Least seconds of a step."""
    economy: PairEconomy

    def plan(self, index: int) -> MixedPlan:
        """The decisions of one; its stages and figures are still open."""
        of, at = self.branch.rows, int(self.row[index])
        keys = self.views.of.keys.take(of.key[[at]])
        decided = {n: int(getattr(keys, n)[0]) for n in ("tp", "cp", "ep", "etp", "micro_batch")}
        first, second = (int(m) for m in self.num_microbatches[:, index])
        return MixedPlan(
            form=self.views.of.form,
            pools=self.views.of.pools,
            **decided,
            pp=int(of.pp[at]),
            zero=int(of.zero[at]),
            split=int(of.split[at]),
            dp=(int(of.dp[0, at]), int(of.dp[1, at])),
            num_microbatches=(first, second),
            selective=self.family == SELECTIVE,
            stages=StagePlan((), ()),
            step=float("nan"),
            seconds=float("nan"),
            dollars=float("nan"),
        )

    def problem(self, index: int) -> MixedStages:
        """The stage assignment of one."""
        instance, at = self.views.instance, self.row[[index]]
        assert self.branch.costs is not None
        costs = self.branch.costs.take(at)
        first, second = (int(m) for m in self.num_microbatches[:, index])
        shape = StageProblem(
            architecture=instance.architecture,
            rates=gather(costs.rates[0], np.array(0)),
            pp=int(costs.pp[0]),
            vpp=1,
            num_microbatches=first,
            memory_limit=float("inf"),
            recompute=STAGE_RECOMPUTE[self.family],
            uniform=not instance.per_stage_recompute,
        )
        return MixedStages.of(shape, costs, (first, second))


@dataclass(frozen=True, slots=True)
class Views:
    """Layouts of one arrangement, looked at more and more closely."""

    instance: Instance
    of: Arrangement
    running: Running

    def each(self, rows: MixedRows, wins: Wins, settle: Callable[[Schedules], None]) -> None:
        """Hands over all schedules of layouts that may win, best bounds first."""
        # First what needs no prices, of all layouts at once.
        some = wins(self._economy(rows), self.least(self._bare(rows)))
        rows = rows.take(some)
        family_of = self.of.keys.family[rows.key]
        for family in values_of(family_of):
            at = np.flatnonzero(family_of == family)
            for start in range(0, len(at), ROWS):
                self._block(rows.take(at[start : start + ROWS]), family, wins, settle)

    def _bare(self, rows: MixedRows) -> Branch:
        """Layouts by their layers, bubble and stragglers alone."""
        of, stages = self.of, self.of.form == "stages"
        pace = pace_of_work(of.parts[:, rows.key], rows.pp, rows.split, stages)
        scale = of.book.stragglers(self.running.num_gpus[:, rows.cell].sum(axis=0))
        around = Around.nothing(1 if stages else 2, scale, self.instance.stack.pipeline.bubble)
        return self._open(rows, None, pace, around)

    @staticmethod
    def _open(rows: MixedRows, costs: MixedCosts | None, pace: Pace, around: Around) -> Branch:
        """Layouts with any number of micro-batches."""
        free = np.full((2, len(rows)), np.inf)
        return Branch(rows, costs, pace, around, free, np.zeros(len(rows), dtype=bool))

    def _block(self, rows: MixedRows, family: int, wins: Wins, settle: Callable[[Schedules], None]) -> None:
        rows = rows.take(wins(self._economy(rows), self.least(self._bare(rows))))
        if not len(rows):
            return
        mix, costs = LayerMix.of(self.instance.architecture), self._costs(rows, family)
        pace = pace_without_memory(costs, mix)
        rough = self._open(rows, costs, pace, costs.around(mix))
        some = wins(self._economy(rows), self.least(rough))
        branches = [of for of in self._branches(rough.take(some), family) if len(of.rows)]
        bounds = [self.least(of) for of in branches]
        size = FIRST_ROWS
        while any(len(of.rows) for of in branches):
            for number, of in enumerate(branches):
                order = wins(self._economy(of.rows), bounds[number])
                first, rest = order[:size], order[size:]
                if len(first):
                    settle(self._schedules(of.take(first), family, wins))
                branches[number], bounds[number] = of.take(rest), bounds[number][rest]
            size *= 2

    def _economy(self, rows: MixedRows) -> PairEconomy:
        """At the largest batch: what no schedule of the rows can beat."""
        instance = self.instance
        tokens = np.full(len(rows), float(instance.max_batch * instance.seq_len))
        return loosely(instance, self._running(rows).economy(instance, self.of.both, tokens))

    def _running(self, rows: MixedRows) -> Running:
        """What is fixed by the GPUs, and by the replicas where these save or load for themselves."""
        if not any(by_replicas(pool.site) for pool in self.of.both):
            return self.running.take(rows.cell)
        gpus = self.running.num_gpus[:, rows.cell]
        return Running.of(self.instance, self.of.both, gpus, rows.replicas(self.of))

    def _costs(self, rows: MixedRows, family: int) -> MixedCosts:
        of, stages = self.of, self.of.form == "stages"
        rates: list[StageRates] = []
        for side, pool in enumerate(of.pools):
            own = of.book.rates(rows.on(of, side, rows.dp[side]), pool, family, vpp=1)
            if not stages:
                joint = of.joint.rates(rows.on(of, side, rows.replicas(of)), pool, family, vpp=1)
                own = replica_rates(own, joint)
            rates.append(own)
        each = self.instance.stack.optimizer.micro_batch
        rates = [replace(r, fixed=r.fixed - each) for r in rates]  # rows are priced at one micro-batch
        if stages:
            joint_run = run_of_rows(
                of.joint.instance, of.pools[0], family, rows.on(of, 0, rows.dp[0]), vpp=np.ones_like(rows.pp)
            )
            steady, fill = crossing(joint_run)
            steady = np.maximum(steady, np.maximum(rates[0].p2p_steady, rates[1].p2p_steady))[None]
            fill = (
                fill + (rows.split - 1) * rates[0].p2p_fill + (rows.pp - rows.split - 1) * rates[1].p2p_fill
            )[None]
        else:
            steady = np.stack([r.p2p_steady for r in rates])
            fill = np.stack([(rows.pp - 1) * r.p2p_fill for r in rates])
        limits = (memory_limit(self.instance, of.pools[0]), memory_limit(self.instance, of.pools[1]))
        return MixedCosts(stages, (rates[0], rates[1]), steady, fill, rows.pp, rows.split, limits, each)

    def _branches(self, of: Branch, family: int) -> list[Branch]:
        """Full pipelines, and for each pool those in which its pipelines do not fill."""
        rows, layers = of.rows, self.instance.architecture.layers
        assert of.costs is not None
        if not len(rows):
            return []
        (case,) = recompute_cases(STAGE_RECOMPUTE[family], False, layers, rows.pp, np.ones_like(rows.pp))
        mix = LayerMix.of(self.instance.architecture)
        full = np.stack([rows.pp, rows.pp])
        paces = [pace_within_memory(of.costs, mix, m, case) for m in (full, np.ones_like(full))]
        found = [self._fitting(replace(of, pace=paces[0], filled=np.ones(len(rows), dtype=bool)))]
        short = np.flatnonzero(rows.pp > 1)
        for side in (0,) if self.alike else (0, 1):
            capped = of.capped.copy()
            capped[side] = rows.pp - 1
            if self.alike:
                capped[1] = rows.pp - 1
            branch = replace(of, pace=paces[1], capped=capped)
            found.append(self._fitting(branch.take(short)))
        return found

    @staticmethod
    def _fitting(of: Branch) -> Branch:
        return of.take(np.flatnonzero(of.pace.fits))

    @property
    def alike(self) -> bool:
        """Whether both pools' replicas run the same number of micro-batches."""
        return self.of.form == "stages" or self.instance.framework == "megatron"

    def least(self, of: Branch) -> Array:
        """Seconds for the largest batch's sequences at the best rate of any schedule: (rows,).

        Time for each sequence falls with the number of micro-batches. Where pools run different numbers of
        them, lines of S seconds do up to sum_i dp_i*(S - b_i)/t_i micro-batches, of one pool no more than its
        cap, which is the best rate at the largest batch or where the cap begins.
        """
        rows, most = of.rows, float(self.instance.max_batch)
        size = self.of.keys.micro_batch[rows.key]
        if self.alike:
            sequences = size * rows.replicas(self.of)
            m = np.minimum(self.instance.max_batch // sequences, of.capped[0])
            fits = m >= self._fewest(of)
            step = step_of(of.around, of.pace, np.stack([m, m]))
            return np.where(fits, step * most / np.maximum(sequences * m, 1), np.inf) * SURE
        around = of.around
        one, two = (of.pace.line(around, np.full(rows.dp.shape, n)) for n in (1.0, 2.0))
        # What each micro-batch adds to the fixed part is that of the pool that runs most of them at least.
        each = two - one
        rest = around.end + around.fixed.max(axis=0)
        return self._best_rate(of, each, one - each, rest, most / size) * around.scale * most / size * SURE

    def _best_rate(self, of: Branch, each: Array, start: Array, rest: Array, most: Array) -> Array:
        """Least seconds a micro-batch with lines of m*each + start; `most` micro-batches in all."""
        dp, cap = of.rows.dp, of.capped
        first = np.maximum(*(each * self._fewest(of) + start))

        def done(seconds: Array) -> Array:
            free = np.maximum((seconds - start) / each, 0.0)
            return np.minimum((dp * np.minimum(free, cap)).sum(axis=0), most)

        def when_all(index: int | None) -> Array:
            """When the largest batch is done, with the cap of one pool reached or none."""
            rates, late = dp / each, dp * start / each
            if index is None:
                return (most + late.sum(axis=0)) / rates.sum(axis=0)
            left = most - dp[index] * np.where(np.isinf(cap[index]), 0.0, cap[index])
            return (left + late[1 - index]) / rates[1 - index]

        moments = [when_all(None)]
        for index in (0, 1):
            known = np.isfinite(cap[index])
            cap_at = start[index] + each[index] * np.where(known, cap[index], 0.0)
            moments += [np.where(known, cap_at, moments[0]), np.where(known, when_all(index), moments[0])]
        best = np.full(len(most), np.inf)
        for moment in moments:
            seconds = np.maximum(moment, first)
            best = np.minimum(best, (seconds + rest) / np.maximum(done(seconds), 1e-300))
        return np.where(of.pace.fits, best, np.inf)

    @staticmethod
    def _fewest(of: Branch) -> Array:
        """Micro-batches that every pool's replicas run at least."""
        return np.where(of.filled, of.rows.pp, 1)

    def _schedules(self, of: Branch, family: int, wins: Wins) -> Schedules:
        """All schedules of a branch's layouts that may win."""
        found = [self._of_row(of, index, family, wins) for index in range(len(of.rows))]
        row = np.concatenate([np.full(each.shape[1], index) for index, each in enumerate(found)])
        return self._bounded(of, family, row, np.concatenate(found, axis=1))

    def _bounded(self, of: Branch, family: int, row: Array, m: Array) -> Schedules:
        at = of.take(row)
        bound = step_of(at.around, at.pace, m) * SURE
        sequences = self._sequences(at.rows, m)
        tokens = sequences * float(self.instance.seq_len)
        economy = self._running(at.rows).economy(self.instance, self.of.both, tokens)
        return Schedules(self, family, of, row, m, bound, economy)

    def _sequences(self, rows: MixedRows, m: Array) -> Array:
        """Sequences a step with (2, rows) micro-batches."""
        each = rows.dp * m
        return self.of.keys.micro_batch[rows.key] * (
            each[0] if self.of.form == "stages" else each.sum(axis=0)
        )

    def _of_row(self, of: Branch, index: int, family: int, wins: Wins) -> Array:
        """(2, schedules) numbers of micro-batches of one layout that may win."""
        one = of.take(np.array([index]))
        size, (first, second) = int(self.of.keys.micro_batch[one.rows.key[0]]), one.rows.dp[:, 0].tolist()
        low = int(self._fewest(one)[0])
        cap = one.capped[:, 0]
        if self.alike:
            most = self.instance.max_batch // (size * int(one.rows.replicas(self.of)[0]))
            m = self._allowed(np.arange(low, int(min(most, cap[0])) + 1))
            pairs = self._within(one.rows, np.stack([m, m]))
            # More of them are never slower a token, and need no more memory once the pipeline is full.
            keep = one.filled[0] and not self.instance.limits.steps
            return pairs[:, -1:] if keep else pairs
        total = self.instance.max_batch // size
        tops = [
            int(min((total - other) // mine, c))
            for mine, other, c in ((first, second, cap[0]), (second, first, cap[1]))
        ]
        others = self._allowed(np.arange(low, tops[1] + 1))
        block, parts = max(PAIRS // max(len(others), 1), 1), [np.empty((2, 0), dtype=np.int64)]
        mine = self._allowed(np.arange(low, tops[0] + 1))
        for start in range(0, len(mine), block):
            grid = np.stack(
                [g.reshape(-1) for g in np.meshgrid(mine[start : start + block], others, indexing="ij")]
            )
            grid = self._within(one.rows, grid)
            of_block = self._bounded(one, family, np.zeros(grid.shape[1], dtype=np.int64), grid)
            parts.append(grid[:, wins(of_block.economy, of_block.bound)])
        return np.concatenate(parts, axis=1)

    def _allowed(self, m: Array) -> Array:
        return m[self.instance.narrowing.permitted("num_microbatches", m)]

    def _within(self, rows: MixedRows, m: Array) -> Array:
        """Of pairs of one layout, those whose global batch is allowed."""
        each = rows.dp * m
        size = int(self.of.keys.micro_batch[rows.key[0]])
        batch = size * (each[0] if self.of.form == "stages" else each.sum(axis=0))
        inside = (batch >= self.instance.min_batch) & (batch <= self.instance.max_batch)
        return m[:, inside & self.instance.narrowing.permitted("global_batch", batch)]
