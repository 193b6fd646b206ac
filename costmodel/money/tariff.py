"""One shape for every way to pay: USD per GPU-hour, and a window that is paid in any case."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from costmodel.money.rent import dollars, idle_dollars

if TYPE_CHECKING:
    from costmodel.run import Column

Kind = Literal["on_demand", "reserved", "spot", "owned"]


@dataclass(frozen=True, slots=True)
class Tariff:
    """What GPUs of one pool cost."""

    kind: Kind
    price: float
    """USD per GPU-hour."""
    committed_days: float = 0.0
    """A window paid for whether it is used or not."""
    lost_a_month: float = 0.0
    """Spot: share of nodes taken back within a month; adds to the failures."""


@dataclass(frozen=True, slots=True)
class Bill:
    """Dollars of a run; `total` is `used` + `idle` + `spares`."""

    used: Column
    """GPUs that train, for as long as the run lasts."""
    idle: Column
    """The rest of a committed window."""
    spares: Column
    """Spare nodes, for as long as the others."""

    @property
    def total(self) -> Column:
        return self.used + self.idle + self.spares


def bill(tariff: Tariff, num_gpus: Column, days: Column, spare_gpus: Column = 0) -> Bill:
    """What a run of N GPUs and its spares costs: (N + s) * max(days, committed) * 24 * price."""
    committed = tariff.committed_days
    return Bill(
        used=dollars(num_gpus, days, tariff.price),
        idle=idle_dollars(num_gpus, days, tariff.price, committed),
        spares=dollars(spare_gpus, days, tariff.price, committed),
    )
