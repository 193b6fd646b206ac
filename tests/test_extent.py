"""What ranks may hold in closed form, against the schedules counted out chunk by chunk."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.pipeline import level_chunks, micro_batches_in_flight
from planner.bound.extent import extent
from planner.bound.mix import LayerMix

LAYERS = st.integers(2, 130)


def schedules(layers: int) -> list[tuple[int, int]]:
    """Every (pp, vpp) that keeps step with so many layers."""
    level = [(pp, v) for pp in range(2, layers + 1) for v in range(2, layers // pp + 2)]
    return [(pp, 1) for pp in range(1, layers + 1)] + [of for of in level if level_chunks(layers, *of)]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(LAYERS, st.data())
def test_extents_are_those_of_the_schedule_whatever_shares_their_array(layers: int, data: st.DataObject):
    rows = data.draw(st.lists(st.sampled_from(schedules(layers)), min_size=1, max_size=6))
    # Interleaved, micro-batches come by rounds of pp.
    counts = [data.draw(st.integers(1, 40)) * (pp if vpp > 1 else 1) for pp, vpp in rows]
    pp, vpp = np.array(rows).T
    reach = extent(LayerMix(np.array([layers]), 0), pp, vpp, np.array(counts), any_vpp=False)
    shape = reach.exists.shape
    least, most, short = (np.broadcast_to(of, shape) for of in (reach.least, reach.most, reach.short))
    surplus = np.broadcast_to(reach.surplus, shape)
    for row, ((p, v), m) in enumerate(zip(rows, counts, strict=True)):
        flying = micro_batches_in_flight(p, v, m)
        assert reach.exists[row].sum() == p
        assert reach.in_flight_least[row, :p].tolist() == flying.min(axis=1).tolist()
        assert reach.in_flight_most[row, :p].tolist() == flying.max(axis=1).tolist()
        level = level_chunks(layers, p, v)
        if level is None:
            assert (set(least[row, :p]), set(most[row, :p])) == ({1}, {layers})
            continue
        assert set(most[row, :p]) == {sum(level.sizes)}
        ends = [sum(level.sizes) - (level.short > 0) * ((r == 0) + (r == p - 1)) for r in range(p)]
        assert least[row, :p].tolist() == ends
        # What chunks keep beside the rank's least: no more than with the sizes that ranks do have.
        kept = (np.array(level.sizes) * (flying - flying.min(axis=1, keepdims=True))).sum(axis=1)
        spared = short[row, :p]
        assert (surplus[row, :p] - spared <= kept).all()
        assert (surplus[row, :p] <= kept).all()
        assert spared.tolist() == [(level.short > 0) * (flying[0].max() - flying[0].min()), *[0] * (p - 1)]
