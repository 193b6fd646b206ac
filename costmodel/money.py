"""Dollars and GPU-hours of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from costmodel.run import Column

HOURS_PER_DAY = 24
DAYS_PER_YEAR = 365


def gpu_hours(num_gpus: Column, days: Column) -> Column:
    """N * 24 * days."""
    return num_gpus * days * HOURS_PER_DAY


def dollars(num_gpus: Column, days: Column, price_per_gpu_hour: Column, committed_days: Column = 0) -> Column:
    """Rent: N * max(days, committed_days) * 24 * price.

    A reservation is paid for its whole window even when the run ends earlier.
    """
    return gpu_hours(num_gpus, np.maximum(days, committed_days)) * price_per_gpu_hour


def power_dollars(num_gpus: Column, watts: Column, days: Column, price_per_kwh: Column) -> Column:
    """Electricity: N * kW * hours * $/kWh. Cooling is a factor of the caller's."""
    return gpu_hours(num_gpus, days) * watts / 1000 * price_per_kwh


def depreciation_dollars(units: Column, price: Column, years: Column, days: Column) -> Column:
    """Share of a purchase that so many days use up, straight line: n * price * days/(years*365)."""
    return units * price * days / (years * DAYS_PER_YEAR)


def owned_price_per_gpu_hour(capital: Column, num_gpus: Column, years: Column) -> Column:
    """Capital spread over every GPU-hour of its life: capital/(N * years * 8760)."""
    return capital / gpu_hours(num_gpus, years * DAYS_PER_YEAR)
