"""The optimiser's curse: a search picks the plan that its model flatters most. No chosen plan beats all that was published."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from published_plans import solved_plans

from planner.published import best_published, beyond_published

PLANS = 100
ENOUGH = 10
"""Published runs that a class needs for its best to say something."""


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def plans() -> list[tuple[Any, Any]]:
    return list(solved_plans(Random(5), PLANS))


def test_no_plan_of_a_hundred_solved_problems_beats_the_best_published_run_beyond_its_band(plans) -> None:
    known = [
        (run, estimate) for run, estimate in plans if (best := best_published(run)) and best.runs >= ENOUGH
    ]
    assert len(known) > PLANS * 2 / 3
    beaten = {
        f"{run.architecture.name} on {run.num_gpus} {run.gpu.name} {run.precision}": beyond_published(
            run, estimate.mfu
        )
        for run, estimate in known
        if beyond_published(run, estimate.mfu) > 1
    }
    assert beaten == {}


def test_plans_come_near_the_best_published_runs(plans) -> None:
    """A guard that nothing could trip would guard nothing: the best plan of the hundred reaches 80 % of the best run."""
    shares = [estimate.mfu / best.mfu for run, estimate in plans if (best := best_published(run)) is not None]
    assert max(shares) > 0.8
