"""What GPUs of one's own cost: purchase over its life, power, upkeep, staff."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from costmodel.money.rent import DAYS_PER_YEAR, HOURS_PER_DAY, gpu_hours

if TYPE_CHECKING:
    from costmodel.run import Column

HOURS_PER_YEAR = DAYS_PER_YEAR * HOURS_PER_DAY


def power_dollars(
    num_gpus: Column,
    watts: Column,
    days: Column,
    price_per_kwh: Column,
    pue: Column = 1,
    cooling: Column = 0,
) -> Column:
    """Electricity: N * kW * hours * $/kWh * PUE * (1 + cooling).

    `cooling` (0.3 to 0.5) is for where no PUE is known; a PUE contains it.
    """
    return gpu_hours(num_gpus, days) * watts / 1000 * price_per_kwh * pue * (1 + cooling)


def depreciation_dollars(units: Column, price: Column, years: Column, days: Column) -> Column:
    """Share of a purchase that so many days use up, straight line: n * price * days/(years*365)."""
    return units * price * days / (years * DAYS_PER_YEAR)


def owned_price_per_gpu_hour(capital: Column, num_gpus: Column, years: Column) -> Column:
    """Capital spread over every GPU-hour of its life: capital/(N * years * 8760)."""
    return capital / gpu_hours(num_gpus, years * DAYS_PER_YEAR)


@dataclass(frozen=True, slots=True)
class Ownership:
    """What one node costs its owner. USD, years, watts."""

    node: float
    """A server with its GPUs."""
    network: float
    """Switches, cables and optics for each node."""
    gpus_per_node: int
    years: float
    """Until the purchase is written off."""
    busy: float = 1.0
    """Share of its life in which somebody trains on it; idle hours are paid by the busy ones."""
    residual: float = 0.0
    """Share of the price that is left at the end."""
    upkeep: float = 0.0
    """Parts, support and space, a year, as a share of the price."""
    staff: float = 0.0
    """USD a GPU and year."""
    storage: float = 0.0
    """USD of storage servers for each node."""
    watts: float = 0.0
    """A node's draw in training."""
    pue: float = 1.0
    price_per_kwh: float = 0.0


@dataclass(frozen=True, slots=True)
class OwnedPrice:
    """USD per GPU-hour by what it pays for."""

    capital: float
    power: float
    upkeep: float
    staff: float

    @property
    def total(self) -> float:
        return self.capital + self.power + self.upkeep + self.staff


def owned_price(ownership: Ownership) -> OwnedPrice:
    """What an hour of one's own GPU costs while it trains.

    (capital*(1 - residual)/years + upkeep*capital + staff) over the busy hours of a year, and power as
    drawn: kW*PUE*$/kWh. Capital is node, network and storage.
    """
    o = ownership
    capital = o.node + o.network + o.storage
    hourly = owned_price_per_gpu_hour(capital, o.gpus_per_node, 1) / o.busy
    return OwnedPrice(
        capital=float(hourly) * (1 - o.residual) / o.years,
        power=float(power_dollars(1, o.watts / o.gpus_per_node, 1 / HOURS_PER_DAY, o.price_per_kwh, o.pue)),
        upkeep=float(hourly) * o.upkeep,
        staff=o.staff / (HOURS_PER_YEAR * o.busy),
    )
