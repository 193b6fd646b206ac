"""Dollars: rented, reserved, spot and owned GPUs, and where one becomes cheaper than the other."""

from costmodel.money.break_even import (
    busy_share_to_own,
    days_to_own,
    days_until_reserved_pays,
    dollars_at_mfu,
    longest_window_worth,
    node_price_to_own,
    runs_for_the_same_money,
    saving,
    spot_slowdown_break_even,
    stops_until,
    worth_of_mfu,
)
from costmodel.money.owned import (
    HOURS_PER_YEAR,
    OwnedPrice,
    Ownership,
    depreciation_dollars,
    owned_price,
    owned_price_per_gpu_hour,
    power_dollars,
)
from costmodel.money.rent import DAYS_PER_YEAR, HOURS_PER_DAY, dollars, gpu_hours, idle_dollars, implied_price
from costmodel.money.tariff import Bill, Kind, Tariff, bill

__all__ = [
    "DAYS_PER_YEAR",
    "HOURS_PER_DAY",
    "HOURS_PER_YEAR",
    "Bill",
    "Kind",
    "OwnedPrice",
    "Ownership",
    "Tariff",
    "bill",
    "busy_share_to_own",
    "days_to_own",
    "days_until_reserved_pays",
    "depreciation_dollars",
    "dollars",
    "dollars_at_mfu",
    "gpu_hours",
    "idle_dollars",
    "implied_price",
    "longest_window_worth",
    "node_price_to_own",
    "owned_price",
    "owned_price_per_gpu_hour",
    "power_dollars",
    "runs_for_the_same_money",
    "saving",
    "spot_slowdown_break_even",
    "stops_until",
    "worth_of_mfu",
]
