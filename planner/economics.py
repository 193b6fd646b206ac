"""From the time of a step to the days and dollars of a run, and to the order of plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.units import DAY
from planner.chance import least_margins_of
from planner.instance import Instance, Term
from planner.required import longest_runs, longest_steps
from planner.running import Running
from planner.space.columns import Groups

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Economy:
    """What turns the time of a step into days, dollars and energy of a run, a row each."""

    seconds_per_step: Array
    """Seconds of the run for each second of a step: tokens / tokens a step x slowdown."""
    fixed: Array
    """Seconds of the run beside its steps: start and evaluations."""
    rent: Array
    """Dollars a second of the run, spare nodes included."""
    committed: Array
    """Seconds that are paid for even if the run ends sooner."""
    num_gpus: Array
    draw: Array | None = None
    """kWh a second of the run, where limits or objective ask for energy."""
    emission: Array | None = None
    """Tonnes of CO2 a second, likewise."""
    room: Array | None = None
    """Seconds after which the storage is full, where it has a limit."""
    margin: Array | None = None
    """Length of the run over its prediction for which deadline and budget have to hold, where a confidence
    is asked for: `chance.margin_of`, or less."""
    required: Array | None = None
    """(rows, requirements) seconds of the run with the longest step that requirements allow."""

    @classmethod
    def of(cls, instance: Instance, rows: Groups, surely: bool = True) -> Economy:
        """Of rows of an instance, at their largest number of micro-batches; margins only if `surely`."""
        running = Running.of(instance)
        num_gpus = rows.num_gpus
        place = running.place(rows.pool, num_gpus)
        lost = running.losses(instance, rows, place)
        steps = instance.tokens / (rows.micro_batch * rows.m_high * rows.dp * float(instance.seq_len))
        each = steps * lost["slowdown"]
        metered, limited = asks_for_energy(instance), bool(np.isfinite(running.room).any())
        fixed = each * running.evaluation[place] + lost["startup"]
        steps = longest_steps(instance, rows, lost["slowdown"])
        return cls(
            each,
            fixed,
            running.rent[place],
            running.committed[place],
            num_gpus.astype(float),
            lost["draw"] if metered else None,
            lost["emission"] if metered else None,
            running.room[place] if limited else None,
            least_margins_of(instance, rows) if surely else None,
            None if steps is None else longest_runs(steps, each, fixed),
        )

    def take(self, index: Array) -> Economy:
        columns: list[Any] = [getattr(self, f.name) for f in fields(self)]
        taken: list[Any] = [None if column is None else column[index] for column in columns]
        return type(self)(*taken)

    def seconds(self, step: Array) -> Array:
        """Seconds of the whole run by the clock on the wall."""
        return self.seconds_per_step * step + self.fixed

    @property
    def surely(self) -> Economy:
        """Of runs as long as deadline and budget have to allow for."""
        if self.margin is None:
            return self
        longer = {"seconds_per_step": self.seconds_per_step * self.margin, "fixed": self.fixed * self.margin}
        # What else is limited is so as predicted.
        return replace(self, **longer, room=None, required=None)

    def total(self, term: Term, seconds: Array) -> Array:
        """What a run of so many seconds takes: seconds, dollars, kWh or tonnes.

        Dollars: rent for as long as it runs, or for the committed window if that is longer.
        """
        if term == "cost":
            return self.rent * np.maximum(seconds, self.committed)
        return seconds if term == "time" else at_rate(seconds, self._meter(term))

    def dollars(self, step: Array) -> Array:
        """What the run costs."""
        return self.total("cost", self.seconds(step))

    def affordable(self, dollars: float) -> Array:
        """The longest run that costs at most so much; 0 where a committed window alone is dearer."""
        idle = self.total("cost", np.zeros(np.shape(self.rent)))
        return np.where(idle <= dollars, _until(dollars, self.rent), 0.0)

    def longest(self, seconds: Any, cost: Any, energy: Any = np.inf, carbon: Any = np.inf) -> Array:
        """The longest step whose run takes at most so many seconds, and so much of the others, and has room.

        Of a committed window it only counts that the rent of the run itself is within `cost`.
        """
        most = np.minimum(seconds, _until(cost, self.rent))
        if self.room is not None:
            most = np.minimum(most, self.room)
        if self.required is not None:
            most = np.minimum(most, self.required.min(axis=1))
        for term, value in (("energy", energy), ("carbon", carbon)):
            if np.isfinite(value).any():
                most = np.minimum(most, _until(value, self._meter(term)))
        return (most - self.fixed) / self.seconds_per_step

    def later(self, step: Array, share: float) -> Array:
        """Steps whose runs take longer by such a share."""
        return step + share * (step + self.fixed / self.seconds_per_step)

    def _meter(self, term: str) -> Array:
        column = self.draw if term == "energy" else self.emission
        assert column is not None, "neither limits nor objective of the instance ask for energy"
        return column


def at_rate(total: Array, rate: Array) -> Array:
    """What so much takes: total * rate; without end if forever, even at a rate of 0 (clean grids)."""
    shape = np.broadcast_shapes(np.shape(total), np.shape(rate))
    return np.multiply(total, rate, out=np.full(shape, np.inf), where=~np.isinf(total))


def _until(value: Any, rate: Array) -> Array:
    """Seconds in which so much is taken; however long a run is, where it takes nothing."""
    forever = np.full(np.broadcast_shapes(np.shape(value), np.shape(rate)), np.inf)
    return np.divide(value, rate, out=forever, where=np.asarray(rate) > 0)


def asks_for_energy(instance: Instance) -> bool:
    """Whether limits or objective are about energy or carbon."""
    limits, asked = instance.limits, ("energy", "carbon")
    return (
        limits.energy is not None
        or limits.carbon is not None
        or any(name in asked for name, _ in instance.objective)
    )


def run_seconds(instance: Instance, rows: Groups, step: Array) -> Array:
    """Seconds of the whole run: tokens / tokens a step x seconds a step, and what is lost."""
    return Economy.of(instance, rows).seconds(step)


def run_dollars(instance: Instance, rows: Groups, seconds: Array) -> Array:
    """What a run of so many seconds costs."""
    return Economy.of(instance, rows).total("cost", seconds)


def first_key(
    objective: tuple[tuple[Term, float], ...], lexicographic: bool, totals: Mapping[Term, Array]
) -> Array:
    """The most important sort key of runs: the first goal, or the weighted sum in dollars."""
    if lexicographic:
        return totals[objective[0][0]]
    weight = {"cost": 1.0, "time": 1 / DAY}
    return sum(
        (totals[name] * weight[name] * factor for name, factor in objective),
        np.zeros(np.shape(totals["time"])),
    )


def totals(objective: tuple[tuple[Term, float], ...], economy: Economy, seconds: Array) -> dict[Term, Array]:
    """Seconds of runs, and what they take of everything that the objective names."""
    found: dict[Term, Array] = {"time": seconds}
    for name, _ in objective:
        found[name] = economy.total(name, seconds)
    return found


def keys(
    objective: tuple[tuple[Term, float], ...], lexicographic: bool, economy: Economy, step: Array
) -> tuple[Array, ...]:
    """Sort keys of plans, most important first: the objective, then time, then fewer GPUs."""
    seconds = economy.seconds(step)
    of = totals(objective, economy, seconds)
    more = [of[name] for name, _ in objective[1:]] if lexicographic else []
    return (first_key(objective, lexicographic, of), *more, seconds, economy.num_gpus)


def no_worse(columns: tuple[Array, ...], achieved: tuple[Array, ...]) -> Array:
    """Rows whose sort keys do not come after those of one achieved plan, compared to 1e-9 relative."""
    result = np.zeros(len(columns[0]), dtype=bool)
    tied = np.ones(len(columns[0]), dtype=bool)
    for column, value in zip(columns, achieved, strict=True):
        limit = float(value[0])
        result |= tied & (column < limit * (1 - 1e-9))
        tied &= np.abs(column - limit) <= 1e-9 * abs(limit)
    return result | tied


def gap(value: float, least: float) -> float:
    """How far a plan may be from the best, as a share of its objective: (value - least) / value, or nothing.

    Nothing as well where the objective is 0, of a grid that emits nothing: there is no better plan.
    """
    return (value - least) / value if value > max(least, 0.0) else 0.0


def ranks(columns: tuple[Array, ...]) -> Array:
    """Position of each row in the order of the keys; equal rows share a position.

    Keys are compared to 1e-9 relative, so that rounding does not decide between equal plans.
    """
    rounded = [np.where(np.isfinite(c), _digits(c), np.inf) for c in columns]
    order = np.lexsort(rounded[::-1])
    differs = np.zeros(len(order), dtype=bool)
    for column in rounded:
        differs[1:] |= column[order][1:] != column[order][:-1]
    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.cumsum(differs)
    return position


def _digits(values: Array) -> Array:
    """Values rounded to ten significant digits."""
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = 10.0 ** (10 - np.ceil(np.log10(np.abs(values))))
    scale = np.where(np.isfinite(scale) & (scale > 0), scale, 1.0)
    return np.round(values * scale) / scale
