"""Where one way to pay becomes cheaper than another."""

from __future__ import annotations

from dataclasses import replace
from math import exp, log
from typing import TYPE_CHECKING

from costmodel.money.owned import HOURS_PER_YEAR, Ownership, owned_price

if TYPE_CHECKING:
    from collections.abc import Callable

    from costmodel.run import Column

LOGARITHMS = 14.0
"""Rates from e^-14 a month (once in a hundred thousand years) to e^14 (every two seconds) are looked at."""
HALVINGS = 40


def saving(cost: Column, alternative: Column) -> Column:
    """Share saved against an alternative, negative if it costs more: 1 - cost/alternative."""
    return 1 - cost / alternative


def dollars_at_mfu(cost: Column, mfu: Column, other: Column) -> Column:
    """What a run on the same GPUs costs at another MFU, as its time is inverse to it: c*mfu/mfu'."""
    return cost * mfu / other


def worth_of_mfu(mfu: Column, gained: Column = 0.01) -> Column:
    """Share of the cost that so much more MFU is worth, to first order: dm/m; a point at 38 % is 2.6 %."""
    return gained / mfu


def runs_for_the_same_money(one: Column, other: Column) -> Column:
    """How many of the other, such as fine-tunes, cost as much as one run: C/c."""
    return one / other


def days_until_reserved_pays(window: Column, reserved: Column, on_demand: Column) -> Column:
    """Days of a window from which reserving all of it is cheaper: window * reserved/on demand."""
    return window * reserved / on_demand


def longest_window_worth(days: Column, reserved: Column, on_demand: Column) -> Column:
    """Days of the longest window that a run of T days may reserve and still pay less: T * p_od/p_reserved."""
    return days * on_demand / reserved


def spot_slowdown_break_even(spot: Column, on_demand: Column) -> Column:
    """How much longer a run may take on spot and still cost less: p_od/p_spot."""
    return on_demand / spot


def stops_until(figure: Callable[[float], float], other: float) -> float | None:
    """Times a month that each spot node may be taken back until a figure of the run reaches another.

    `figure` (dollars, seconds) grows with the rate; the rate is doubled until it is too high, then found by
    bisection of its logarithm. None if not even the highest reaches it; 0 if it is reached without any stop.
    """
    if figure(0.0) >= other:
        return 0.0
    high = -LOGARITHMS
    while figure(exp(high)) <= other:
        high += log(2)
        if high > LOGARITHMS:
            return None
    low = high - log(2)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if figure(exp(middle)) <= other else (low, middle)
    return exp(low)


def node_price_to_own(ownership: Ownership, rent: float) -> float:
    """USD that a node may cost for owning to cost no more than rent at that price.

    The hourly price is linear in the node's: P + (rent - p) * n*8760*busy/((1 - residual)/years + upkeep).
    """
    o, now = ownership, owned_price(ownership).total
    a_dollar = ((1 - o.residual) / o.years + o.upkeep) / (o.gpus_per_node * HOURS_PER_YEAR * o.busy)
    return o.node + (rent - now) / a_dollar


def busy_share_to_own(ownership: Ownership, rent: float) -> float:
    """Share of its life that a GPU must train for owning to cost no more than rent at that price.

    Capital, upkeep and staff are paid always, power only while it trains: fixed/(rent - power). Above 1
    (or negative) rent is cheaper however busy the GPUs are.
    """
    always = owned_price(replace(ownership, busy=1.0))
    return (always.total - always.power) / (rent - always.power)


def days_to_own(ownership: Ownership, rent: float) -> float:
    """Days of training after which what was bought, with nothing left of it, has cost less than rent.

    Purchase and one day's power, upkeep and staff against one day's rent, for one GPU.
    """
    always = owned_price(replace(ownership, busy=1.0))
    capital = (ownership.node + ownership.network + ownership.storage) / ownership.gpus_per_node
    return capital / (24 * (rent - always.total + always.capital))
