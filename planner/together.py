"""The plans of a run's phases, chosen together: one pool, one number of nodes, one deadline and budget.

At a given pool and number of nodes (a place) every limit and every objective is better served by the
quickest run, so that a place has one plan a phase: the quickest of each, or one that lets phases go on in
the same job (`same_job`, `sharing`). Which place: CP-SAT, over the places that bounds leave. A phase's
table is searched for all of them at once, within what the limits, and the best that is achieved so far,
leave of time and money beside the other phases.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.units import DAY
from planner.choose_place import TERMS, choose_place
from planner.economics import Economy, first_key
from planner.instance import Instance, Limits, Term
from planner.limits import most_of
from planner.running import Running
from planner.same_job import joined, may_go_on, most_change, own_seconds, seconds_of, spared_at_most
from planner.search import Effort, Goal, Mask, Plan, Table, best_each, goal_of
from planner.search.goal import in_families
from planner.sharing import shared_layouts
from planner.space.columns import LayerKeys
from planner.space.recompute import recompute_families

Array = NDArray[Any]
SURE = 1 - 1e-9
Place = tuple[int, int]
"""Pool and GPUs."""


@dataclass(frozen=True, slots=True)
class Whole:
    """A run in phases: a plan each, in order, all at one place."""

    place: Place
    plans: tuple[Plan, ...]
    seconds: tuple[float, ...]
    """Of each phase: its start and steps, and the save for the next one."""
    totals: dict[Term, float]
    own: tuple[Plan, ...]
    """The quickest plan of each phase as a job of its own."""
    least: dict[Term, float]
    """No run at the place takes less: each phase with its own plan, going on wherever that could be."""


@dataclass(slots=True)
class Together:
    """Phases as instances of their own, and the run they belong to (all tokens, all limits)."""

    run: Instance
    phases: tuple[Instance, ...]
    """Without committed windows, which are of the whole run; all but the last save at their end."""
    limits: Limits
    objective: tuple[tuple[Term, float], ...]
    lexicographic: bool
    effort: Effort
    tables: dict[int, Table]
    """By phase: the last table that was searched."""

    @classmethod
    def of(
        cls, run: Instance, phases: Sequence[Instance], effort: Effort, limits: Limits | None = None,
        objective: Term | None = None,
    ) -> Together:  # fmt: skip
        """With the run's limits and objective, or others."""
        usual = objective is None
        return cls(
            run=run,
            phases=tuple(replace(each, saves=index < len(phases) - 1) for index, each in enumerate(phases)),
            limits=run.limits if limits is None else limits,
            objective=run.objective if usual else ((objective, 1.0),),
            lexicographic=run.lexicographic or not usual,
            effort=effort,
            tables={},
        )

    def best(self) -> tuple[Whole | None, list[Whole]]:
        """The best run, and the runs at all places that could have been better by their bounds.

        Raises OutOfTime where not even the costs of layers are known in time.
        """
        places = every_place(self.run)
        alone = [self._search(phase, [None], self._eased(phase)) for phase in range(len(self.phases))]
        if any(found[0] is None for found in alone):
            return None, []
        most = {place[0]: place for place in places}
        starts = sorted({place_of(found[0]) for found in alone if found[0] is not None} | set(most.values()))
        known = [run for run in self._at(starts, self.limits_beside()) if self.inside(run.place, run.totals)]
        ceiling = min((self.value(whole.totals) for whole in known), default=np.inf)
        runs = {whole.place: whole for whole in [*known, *self._at(places, self.limits_beside(ceiling))]}
        best = self._choose(list(runs.values()))
        # Limits may leave no run but one whose phases share a layout that none of them would take alone.
        if may_go_on(self.phases) and not self.effort.out_of_time:
            closer = {place: self._closer(run, best) for place, run in runs.items()}
            return self._choose(list(closer.values())), list(closer.values())
        return best, list(runs.values())

    def _closer(self, run: Whole, best: Whole | None) -> Whole:
        """A run with layouts that its phases could share, if it could then be better than the best so far."""
        ceiling = np.inf if best is None else self.value(best.totals) * SURE
        if not self.inside(run.place, run.least) or self.value(run.least) >= ceiling:
            return run
        tables = dict(self.tables)
        found = shared_layouts(self, run.place, run.own, sum(run.seconds) - run.least["time"])
        self.tables = tables
        return self.whole(run.place, run.own, found.plans, found.spared)

    def best_at(self, phase: int, mask: Mask, limits: Limits) -> Plan | None:
        """The quickest plan of a phase among what a mask lets through."""
        return self._search(phase, [mask], limits)[0]

    def _at(self, places: list[Place], limits: list[Limits]) -> list[Whole]:
        """Runs at places where every phase has a plan within its limits; the longest phases first."""
        order = sorted(range(len(self.phases)), key=lambda phase: -self.phases[phase].tokens)
        plans: dict[Place, dict[int, Plan]] = {place: {} for place in places}
        for phase in order:
            left = [place for place in places if len(plans[place]) == order.index(phase)]
            masks = [at_place(place) for place in left]
            for place, plan in zip(left, self._search(phase, masks, limits[phase]), strict=True):
                if plan is not None:
                    plans[place][phase] = plan
        whole = [place for place in places if len(plans[place]) == len(order)]
        return [self.whole(place, [plans[place][phase] for phase in sorted(order)]) for place in whole]

    def _search(self, phase: int, masks: Sequence[Mask | None], limits: Limits) -> list[Plan | None]:
        """The best plan of a phase for each mask."""
        if not masks:
            return []
        instance = self.phases[phase]
        families = recompute_families(instance)
        goal = replace(
            goal_of(instance, limits), objective=(("cost", 1.0), ("time", 1.0)), lexicographic=True
        )
        table = self.tables[phase] = self._table(phase, goal, families)
        return best_each(table, [in_families(families, mask) for mask in masks], self.effort)

    def _table(self, phase: int, goal: Goal, families: tuple[int, ...]) -> Table:
        """A table of its own for each question; what layers cost is the same for all of them."""
        old = self.tables.get(phase)
        if old is None:
            return Table.of(self.phases[phase], goal, families, self.effort.check)
        return replace(old, goal=goal).blank()

    def limits_beside(self, ceiling: float = np.inf) -> list[Limits]:
        """What the limits of the run, and a ceiling of its objective, leave to each phase."""
        floors = [self._least(phase) for phase in range(len(self.phases))]
        most = most_of(self.limits)
        for term in TERMS:
            most[term] = min(most[term], self._below(term, ceiling, floors))
        found = []
        for phase in range(len(self.phases)):
            others = {term: sum(floor[term] for floor in floors) - floors[phase][term] for term in TERMS}
            spared = spared_at_most(self.run, self.phases, phase)
            found.append(limits_of(self.limits, {t: most[t] - others[t] + spared[t] for t in TERMS}))
        return found

    def _eased(self, phase: int) -> Limits:
        """The limits of the run for a phase as a job of its own, which it need not be."""
        most, spared = most_of(self.limits), spared_at_most(self.run, self.phases, phase)
        return limits_of(self.limits, {term: most[term] + spared[term] for term in TERMS})

    def _below(self, term: Term, ceiling: float, floors: list[dict[Term, float]]) -> float:
        """The most that a run may take of one term if its objective is below the ceiling."""
        weight: dict[Term, float] = {"cost": 1.0, "time": 1 / DAY}
        if not np.isfinite(ceiling):
            return np.inf
        if self.lexicographic:
            return ceiling if self.objective[0][0] == term else np.inf
        factor: dict[Term, float] = {name: weight[name] * each for name, each in self.objective}
        rest = sum(factor[name] * sum(floor[name] for floor in floors) for name in factor if name != term)
        return (ceiling - rest) / factor[term] if factor.get(term) else np.inf

    def _least(self, phase: int) -> dict[Term, float]:
        """What a phase takes at least of each term, wherever it runs, even if it goes on in another's job."""
        least, spared = self.tables[phase].least_of_keys(), spared_at_most(self.run, self.phases, phase)
        seconds, cost = float(least.seconds.min()), float(least.dollars.min())
        left = {"time": seconds - spared["time"], "cost": cost - spared["cost"]}
        return {"time": max(left["time"], 0.0), "cost": max(left["cost"], 0.0), "energy": 0.0, "carbon": 0.0}

    def floor(self) -> float:
        """No run has a smaller first key."""
        least = [self._least(phase) for phase in range(len(self.phases))]
        return self.value({term: sum(each[term] for each in least) for term in TERMS})

    def whole(
        self, place: Place, own: Sequence[Plan], shared: Sequence[tuple[int, Plan]] = (), most: float = np.inf
    ) -> Whole:
        """The quickest run at a place, from each phase's quickest plan and layouts that they could share.

        No run there spares more than `most` seconds against its phases as jobs of their own.
        """
        plans, going = tuple(own), may_go_on(self.phases)
        alone = [own_seconds(*each) for each in zip(self.phases, own, strict=True)]
        spared = min(most, most_change(self.run, place) * len(going))
        if going:
            plans = joined([self.tables[phase].book for phase in range(len(own))], own, shared)
        seconds, kept = tuple(seconds_of(self.phases, plans)), max(0.0, 1 - spared / sum(alone))
        least = self._totals(own, [kept * each for each in alone])
        return Whole(place, plans, seconds, self._totals(plans, seconds), tuple(own), least)

    def _totals(self, plans: Sequence[Plan], seconds: Sequence[float]) -> dict[Term, float]:
        """What phases of so many seconds take, and the committed window."""
        one = Economy.of(self.run, plans[0].row)
        total = np.array([sum(seconds)])
        totals: dict[Term, float] = {term: float(one.total(term, total)[0]) for term in ("time", "cost")}
        if one.draw is not None:
            each = [Economy.of(p, plan.row) for p, plan in zip(self.phases, plans, strict=True)]
            for term in TERMS[2:]:
                parts = zip(each, seconds, strict=True)
                totals[term] = sum(float(e.total(term, np.array([s]))[0]) for e, s in parts)
        return totals

    def value(self, totals: dict[Term, float]) -> float:
        """The objective's first key."""
        columns: dict[Term, Array] = {term: np.array(number) for term, number in totals.items()}
        return float(first_key(self.objective, self.lexicographic, columns))

    def inside(self, place: Place, totals: dict[Term, float]) -> bool:
        """Whether what a run at a place takes is within all limits."""
        most = most_of(self.limits)
        room = float(Running.of(self.run).room[_row_of(self.run, place)])
        return totals["time"] <= room and all(
            number <= most[term] * (1 + 1e-12) for term, number in totals.items()
        )

    def _choose(self, runs: list[Whole]) -> Whole | None:
        """The best of all runs within the limits."""
        runs = [whole for whole in runs if self.inside(whole.place, whole.totals)]
        if not runs:
            return None
        seconds = np.array([whole.seconds for whole in runs])
        phases = [self._shares(runs, phase, seconds[:, phase]) for phase in range(len(self.phases))]
        one = [Economy.of(self.run, whole.plans[0].row) for whole in runs]
        windows = np.array([float(each.rent[0] * each.committed[0]) for each in one])
        most = most_of(self.limits)
        return runs[choose_place(phases, windows, most, self.objective, self.lexicographic)]

    def _shares(self, runs: list[Whole], phase: int, seconds: Array) -> dict[Term, Array]:
        """What a phase takes at each place; of money without the window."""
        each = [Economy.of(self.phases[phase], whole.plans[phase].row) for whole in runs]
        shares: dict[Term, Array] = {"time": seconds}
        shares["cost"] = np.array([float(of.rent[0]) for of in each]) * seconds
        for term in TERMS[2:]:
            if term in runs[0].totals:
                parts = zip(each, seconds, strict=True)
                shares[term] = np.array([float(of.total(term, took)[0]) for of, took in parts])
        return shares


def limits_of(limits: Limits, most: dict[Term, float]) -> Limits:
    """Limits of one phase; a little above, so that rounding excludes nothing."""
    left = {term: most[term] * (1 + 1e-9) if np.isfinite(most[term]) else None for term in TERMS}
    of = {"deadline": left["time"], "budget": left["cost"], "energy": left["energy"]}
    return replace(limits, **of, carbon=left["carbon"], confidence=None)


def _row_of(instance: Instance, place: Place) -> int:
    return int(Running.of(instance).place(np.array(place[0]), np.array(place[1])))


def every_place(instance: Instance) -> list[Place]:
    """Each pool with each number of GPUs in whole nodes."""
    return [
        (index, nodes * pool.fabric.gpus_per_node)
        for index, pool in enumerate(instance.pools)
        for nodes in range(max(pool.min_nodes, 1), pool.max_nodes + 1)
    ]


def place_of(plan: Plan) -> Place:
    """Where a plan runs."""
    return plan.of("pool"), int(plan.row.num_gpus[0])


def at_place(place: Place) -> Callable[[LayerKeys], Array | bool]:
    """Lets through rows at a place, and those that have no number of GPUs yet."""

    def mask(rows: LayerKeys) -> Array | bool:
        column = getattr(rows, "num_gpus", None)
        of = rows.pool == place[0]
        return of if column is None else of & (column == place[1])

    return mask
