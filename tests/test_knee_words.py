"""Amounts along a frontier are told with digits that say something."""

from __future__ import annotations

import pytest

from planner.knee import knee_of, knee_words, number


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
        "The knee is the cheapest and thriftiest plan itself, at 33.8 days, $12,996, 7.4 MWh: of no other do the "
        "axes, each as a share of its range, add up to less. At the best rates, quicker by 22.3 days for $204 more and "
        "0.12 MWh more."
    )


def test_a_frontier_that_bulges_has_its_knee_at_an_end_and_says_so() -> None:
    """Between the ends every plan gains less of one axis than it loses of the other."""
    points = [(10.0, 200.0), (18.0, 199.0), (20.0, 100.0)]
    knee = knee_of(points)
    assert knee == 0
    assert knee_words(points, ("days", "dollars"), knee) == (
        "The knee is the quickest plan itself, at 10.0 days, $200: of no other do days and dollars, each as a share "
        "of its range, add up to less. At the best rates, cheaper by $100 for 10.0 days more, $10 a day."
    )


def test_memory_is_told_by_what_is_free_everywhere() -> None:
    points = [(10.0, 100.0, 95.0), (11.0, 105.0, 60.0), (20.0, 200.0, 50.0)]
    words = knee_words(points, ("days", "dollars", "memory_percent"), 1)
    assert words == (
        "Knee at 11.0 days, $105, 40 % of memory free. At the best rates, quicker by 1.0 days for $5 less and 35 points "
        "of free memory less; cheaper by $5 for 1.0 days less and 35 points of free memory less; roomier by 10 points "
        "of free memory for 9.0 days more and $95 more."
    )
