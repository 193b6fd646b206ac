"""Dollars and GPU-hours of a rented run."""

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


def implied_price(cost: Column, num_gpus: Column, days: Column) -> Column:
    """USD per GPU-hour that a known bill amounts to: cost/(N*24*days)."""
    return cost / gpu_hours(num_gpus, days)


def idle_dollars(
    num_gpus: Column, days: Column, price_per_gpu_hour: Column, committed_days: Column
) -> Column:
    """What a reservation costs beyond the run: N * (committed - days)+ * 24 * price."""
    window = dollars(num_gpus, days, price_per_gpu_hour, committed_days)
    return window - dollars(num_gpus, days, price_per_gpu_hour)
