"""The pipeline timeline against the closed forms, and against what every schedule has to keep."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.pipeline import micro_batches_in_flight
from costmodel.step import pipeline_time
from planner.report.timeline import ends, least_end, timeline

NEAR = 1e-9


@st.composite
def schedules(draw):
    """(pp, vpp, m) that interleaving allows."""
    pp, vpp = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    rounds = draw(st.integers(1, 5))
    return (pp, vpp, rounds * pp) if vpp > 1 and pp > 1 else (pp, 1, draw(st.integers(1, 14)))


@st.composite
def uneven(draw):
    """Times of virtual stages that differ, and a number of micro-batches."""
    pp, vpp, m = draw(schedules())
    times = st.lists(st.floats(0.01, 3), min_size=pp * vpp, max_size=pp * vpp)
    return np.reshape(draw(times), (pp, vpp)), np.reshape(draw(times), (pp, vpp)), m


@settings(max_examples=100, deadline=None)
@given(schedules(), st.floats(0.1, 4), st.floats(0.1, 4))
def test_with_equal_stages_it_ends_when_the_cost_model_says(schedule, forward, backward):
    pp, vpp, m = schedule
    shape = np.ones((pp, vpp))
    a_rank = vpp * (forward + backward)
    expected = pipeline_time(a_rank, pp * a_rank, m, vpp)
    assert ends(timeline(forward * shape, backward * shape, m)) == pytest.approx(float(expected), rel=NEAR)


@settings(max_examples=100, deadline=None)
@given(uneven())
def test_with_uneven_stages_it_never_ends_before_the_bound(case):
    forward, backward, m = case
    end = ends(timeline(forward, backward, m))
    assert end >= least_end(forward, backward, m) * (1 - NEAR)
    # Nor later than with every stage as slow as the slowest.
    slowest = timeline(np.full_like(forward, forward.max()), np.full_like(backward, backward.max()), m)
    assert end <= ends(slowest) * (1 + NEAR)


@settings(max_examples=60, deadline=None)
@given(uneven())
def test_a_rank_runs_one_pass_at_a_time_and_every_pass_once(case):
    forward, backward, m = case
    (pp, vpp), passes, by_rank = forward.shape, timeline(*case), defaultdict(list)
    for each in passes:
        by_rank[each.rank].append(each)
        times = forward if each.kind == "forward" else backward
        assert each.end - each.start == pytest.approx(times[each.rank, each.chunk])
    assert len({each[:4] for each in passes}) == len(passes) == 2 * m * pp * vpp
    for of in by_rank.values():
        assert all(a.end <= b.start + NEAR for a, b in pairwise(of))


@settings(max_examples=60, deadline=None)
@given(uneven())
def test_a_pass_starts_after_the_passes_that_feed_it(case):
    pp, vpp = case[0].shape
    end = {(e.chunk * pp + e.rank, e.microbatch, e.kind): e for e in timeline(*case)}
    for (stage, microbatch, kind), each in end.items():
        if kind == "forward" and stage:
            assert each.start >= end[stage - 1, microbatch, "forward"].end - NEAR
        if kind == "backward":
            assert each.start >= end[stage, microbatch, "forward"].end - NEAR
            if stage + 1 < pp * vpp:
                assert each.start >= end[stage + 1, microbatch, "backward"].end - NEAR


@settings(max_examples=60, deadline=None)
@given(uneven())
def test_a_rank_holds_as_many_micro_batches_as_the_memory_model_counts(case):
    forward, backward, m = case
    pp, vpp = forward.shape
    counted = micro_batches_in_flight(pp, vpp, m).sum(axis=1)
    held, most = np.zeros(pp, dtype=int), np.zeros(pp, dtype=int)
    for each in timeline(forward, backward, m):
        held[each.rank] += 1 if each.kind == "forward" else -1
        most[each.rank] = max(most[each.rank], held[each.rank])
    assert most.tolist() == counted.tolist()
    assert not held.any()


def test_a_slow_middle_stage_sets_the_pace():
    forward = np.array([[1.0], [3.0], [1.0]])
    passes = timeline(forward, forward, 4)
    middle = [each for each in passes if each.rank == 1]
    # The middle stage starts when the first forward pass is through the first one, and then waits for the
    # last stage only once, before its first backward pass.
    assert middle[0].start == 1.0
    assert sum(b.start - a.end for a, b in pairwise(middle)) == pytest.approx(0.0)
    assert ends(passes) == 1.0 + 4 * 6.0 + 1.0


def test_interleaving_refuses_what_megatron_refuses():
    with pytest.raises(ValueError, match="multiples of 2, got 3"):
        timeline(np.ones((2, 2)), np.ones((2, 2)), 3)
