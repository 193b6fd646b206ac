"""Dollars: rented and owned."""

from __future__ import annotations

import numpy as np
import pytest

from costmodel.money import depreciation_dollars, dollars, gpu_hours, owned_price_per_gpu_hour, power_dollars


def test_a_reservation_is_paid_to_its_end() -> None:
    assert dollars(640, 57.6, 2.0, committed_days=60) == 640 * 60 * 24 * 2
    assert dollars(640, 57.6, 2.0) == pytest.approx(640 * 57.6 * 24 * 2)


def test_a_run_longer_than_its_reservation_pays_for_every_day() -> None:
    assert dollars(8, 70, 1.0, committed_days=60) == 8 * 70 * 24


def test_columns_of_candidates_are_priced_at_once() -> None:
    cost = dollars(np.array([8, 16]), np.array([2.0, 1.0]), 1.5, committed_days=1.5)
    assert cost.tolist() == [8 * 2 * 24 * 1.5, 16 * 1.5 * 24 * 1.5]


def test_owning_spreads_the_purchase_over_its_life() -> None:
    assert depreciation_dollars(256, 25000, 3, 3 * 365) == 256 * 25000
    rate = owned_price_per_gpu_hour(256 * 25000, 256, 3)
    assert rate * gpu_hours(1, 10) == pytest.approx(depreciation_dollars(1, 25000, 3, 10))


def test_a_kilowatt_for_a_day_is_24_kilowatt_hours() -> None:
    assert power_dollars(1, 1000, 1, 0.1) == pytest.approx(2.4)
