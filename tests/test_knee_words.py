"""Amounts along a frontier are told with digits that say something."""

from __future__ import annotations

import pytest

from planner.knee import knee_words, number


@pytest.mark.parametrize(
    ("value", "decimals", "said"),
    [
        (1234.4, 0, "1,234"),
        (7.46, 0, "7.5"),
        (0.1234, 0, "0.12"),
        (0.0554, 1, "0.055"),
        (8.0, 0, "8"),
        (0, 1, "0.0"),
    ],
)
def test_small_amounts_keep_two_digits(value: float, decimals: int, said: str) -> None:
    assert number(value, decimals) == said


def test_no_way_on_from_the_knee_costs_nothing_of_what_it_costs() -> None:
    points = [(11.5, 13200.0, 7.52), (17.2, 13189.0, 7.47), (33.8, 12996.0, 7.40)]
    words = knee_words(points, ("days", "dollars", "mwh"), 2)
    assert words == (
        "Knee at 33.8 days, $12,996, 7.4 MWh. At the best rates, quicker by 22.3 days for $204 more and 0.12 MWh more."
    )
