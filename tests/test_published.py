"""What was published bounds what is believed."""

from __future__ import annotations

import pytest
from time_runs import some_run

from planner.confidence import band_of
from planner.published import best_published, beyond_published


def test_a_gpu_that_many_measured_is_compared_with_its_own_best():
    best = best_published(some_run("H100"))
    assert best is not None
    assert best.gpu == "H100"
    assert best.sources > 2
    assert 0.5 < best.mfu < 0.6


def test_h800_may_do_what_h100_did_as_only_one_stack_was_measured_on_it():
    h800, h100 = best_published(some_run("H800")), best_published(some_run("H100"))
    assert h800 is not None
    assert h100 is not None
    assert (h800.gpu, h800.mfu) == ("H100", h100.mfu)


def test_b200_may_reach_the_flops_of_gb200_but_over_its_own_peak():
    b200, gb200 = best_published(some_run("B200")), best_published(some_run("GB200"))
    assert b200 is not None
    assert gb200 is not None
    assert b200.gpu == "GB200"
    assert b200.mfu == pytest.approx(gb200.mfu * 2500 / 2250)


def test_precisions_and_model_classes_are_kept_apart():
    dense, fp8 = best_published(some_run("H100")), best_published(some_run("H100", precision="fp8"))
    experts = best_published(some_run("H100", model="mixtral-8x7b"))
    assert len({best.run for best in (dense, fp8, experts) if best}) == 3


def test_a_prediction_is_beyond_only_when_its_band_is_as_well():
    run = some_run("H100")
    best = best_published(run)
    assert best is not None
    at_the_edge = best.mfu * band_of(run).high
    assert beyond_published(run, at_the_edge) == pytest.approx(1)
    assert beyond_published(run, best.mfu * 1.5) > 1


def test_nothing_is_said_of_a_gpu_without_published_runs():
    assert beyond_published(some_run("L40S", tp=1), 0.9) is None
