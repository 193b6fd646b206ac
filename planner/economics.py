"""From the time of a step to the days and dollars of a run, and to the order of plans."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.money import dollars
from planner.instance import Instance, Limits, Term
from planner.space.columns import Groups

Array = NDArray[Any]
DAY = 86400.0


@dataclass(frozen=True, slots=True)
class Economy:
    """What turns the time of a step into days and dollars, a row each."""

    seconds_per_step: Array
    """Seconds of the run for each second of a step: tokens / tokens a step."""
    rent: Array
    """Dollars a second of the run."""
    committed: Array
    """Seconds that are paid for even if the run ends sooner."""
    num_gpus: Array

    @classmethod
    def of(cls, instance: Instance, rows: Groups) -> Economy:
        price = np.array([pool.price for pool in instance.pools])[rows.pool]
        return cls(
            instance.tokens / (rows.micro_batch * rows.m_high * rows.dp * float(instance.seq_len)),
            np.asarray(dollars(rows.num_gpus, 1 / DAY, price)),
            np.array([pool.committed for pool in instance.pools])[rows.pool],
            rows.num_gpus.astype(float),
        )

    @classmethod
    def of_columns(cls, instance: Instance, pool: int, tokens_per_step: Array, num_gpus: Array) -> Economy:
        """Of layouts of one pool, from columns that broadcast."""
        of = instance.pools[pool]
        rent = np.asarray(dollars(num_gpus, 1 / DAY, of.price))
        return cls(instance.tokens / tokens_per_step, rent, np.asarray(of.committed), num_gpus)

    def take(self, index: Array) -> Economy:
        return Economy(*(getattr(self, f.name)[index] for f in fields(self)))

    @staticmethod
    def concatenate(parts: list[Economy]) -> Economy:
        return Economy(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Economy)))

    @staticmethod
    def empty() -> Economy:
        return Economy(*(np.empty(0) for _ in fields(Economy)))

    def seconds(self, step: Array) -> Array:
        """Seconds of the whole run."""
        return self.seconds_per_step * step

    def dollars(self, step: Array) -> Array:
        """What the run costs: rent for as long as it runs, or for the committed window if that is longer."""
        return self.rent * np.maximum(self.seconds(step), self.committed)


    def longest(self, seconds: Any, cost: Any) -> Array:
        """The longest step whose run takes at most so many seconds and costs at most so much.

        Of a committed window it only counts that the rent of the run itself is within `cost`.
        """
        return np.minimum(seconds, cost / self.rent) / self.seconds_per_step


def run_seconds(instance: Instance, rows: Groups, step: Array) -> Array:
    """Seconds of the whole run: tokens / tokens a step x seconds a step."""
    return Economy.of(instance, rows).seconds(step)


def run_dollars(instance: Instance, rows: Groups, seconds: Array) -> Array:
    """What a run of so many seconds costs."""
    economy = Economy.of(instance, rows)
    return economy.rent * np.maximum(seconds, economy.committed)


def outside(limits: Limits, seconds: Array, cost: Array) -> tuple[Array, Array]:
    """Runs that break the deadline, and runs that break the budget."""
    late = np.zeros(np.shape(seconds), dtype=bool) if limits.deadline is None else seconds > limits.deadline
    dear = np.zeros(np.shape(cost), dtype=bool) if limits.budget is None else cost > limits.budget
    return late, dear


def within(limits: Limits, economy: Economy, step: Array) -> Array:
    """Rows that meet deadline and budget."""
    late, dear = outside(limits, economy.seconds(step), economy.dollars(step))
    return np.isfinite(step) & ~late & ~dear


def first_key(
    objective: tuple[tuple[Term, float], ...], lexicographic: bool, seconds: Array, dollars: Array
) -> Array:
    """The most important sort key of runs: the first goal, or the weighted sum in dollars."""
    terms = {"time": seconds, "cost": dollars}
    if lexicographic:
        return terms[objective[0][0]]
    weight = {"cost": 1.0, "time": 1 / DAY}
    return sum(
        (terms[name] * weight[name] * factor for name, factor in objective), np.zeros(np.shape(seconds))
    )


def keys(
    objective: tuple[tuple[Term, float], ...], lexicographic: bool, economy: Economy, step: Array
) -> tuple[Array, ...]:
    """Sort keys of plans, most important first: the objective, then time, then fewer GPUs."""
    seconds = economy.seconds(step)
    priced = any(name == "cost" for name, _ in objective)
    cost = economy.dollars(step) if priced else seconds
    more = [{"time": seconds, "cost": cost}[name] for name, _ in objective[1:]] if lexicographic else []
    return (first_key(objective, lexicographic, seconds, cost), *more, seconds, economy.num_gpus)


def no_worse(columns: tuple[Array, ...], achieved: tuple[Array, ...]) -> Array:
    """Rows whose sort keys do not come after those of one achieved plan, compared to 1e-9 relative."""
    result = np.zeros(len(columns[0]), dtype=bool)
    tied = np.ones(len(columns[0]), dtype=bool)
    for column, value in zip(columns, achieved, strict=True):
        limit = float(value[0])
        result |= tied & (column < limit * (1 - 1e-9))
        tied &= np.abs(column - limit) <= 1e-9 * abs(limit)
    return result | tied


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
