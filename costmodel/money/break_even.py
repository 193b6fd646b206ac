"""Where one way to pay becomes cheaper than another."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from costmodel.money.owned import Ownership, owned_price

if TYPE_CHECKING:
    from costmodel.run import Column


def saving(cost: Column, alternative: Column) -> Column:
    """Share saved against an alternative, negative if it costs more: 1 - cost/alternative."""
    return 1 - cost / alternative


def runs_for_the_same_money(one: Column, other: Column) -> Column:
    """How many of the other, such as fine-tunes, cost as much as one run: C/c."""
    return one / other


def days_until_reserved_pays(window: Column, reserved: Column, on_demand: Column) -> Column:
    """Days of a window from which reserving all of it is cheaper: window * reserved/on demand."""
    return window * reserved / on_demand


def spot_slowdown_break_even(spot: Column, on_demand: Column) -> Column:
    """How much longer a run may take on spot and still cost less: p_od/p_spot."""
    return on_demand / spot


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
