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
    least, most, each, surplus = (
        np.broadcast_to(of, shape) for of in (reach.least, reach.most, reach.each, reach.surplus)
    )
    for row, ((p, v), m) in enumerate(zip(rows, counts, strict=True)):
        flying = micro_batches_in_flight(p, v, m)
        assert reach.exists[row].sum() == p
        assert reach.in_flight_least[row, :p].tolist() == flying.min(axis=1).tolist()
        assert reach.in_flight_most[row, :p].tolist() == flying.max(axis=1).tolist()
        level = level_chunks(layers, p, v)
        if level is None:
            assert (set(least[row, :p]), set(most[row, :p])) == ({1}, {layers})
            continue
        held = sum(level.sizes)
        assert set(most[row, :p]) == {held}
        fewest = np.min([level.split(p, first).reshape(v, p).sum(axis=0) for first in level.at_first], axis=0)
        assert least[row, :p].tolist() == fewest.tolist()
        # A whole rank keeps what its chunks keep, and a layer of the first one is spared the most.
        kept = (np.array(level.sizes) * flying).sum(axis=1)
        np.testing.assert_allclose(each[row, :p] * held + surplus[row, :p], kept)
        shorter = level.at_first[-1] > 0
        assert each[row, :p].tolist() == [
            flying[0].max() if shorter else flying[0].min(),
            *flying[1:].min(axis=1),
        ]


def shortened(layers: int, pp: int, vpp: int) -> list[list[int]]:
    """Layers of every virtual stage, by what the first one is without."""
    level = level_chunks(layers, pp, vpp)
    assert level is not None
    return [level.split(pp, first).tolist() for first in level.at_first]


INTERLEAVED = st.integers(4, 90).flatmap(
    lambda layers: st.tuples(
        st.just(layers), st.sampled_from([of for of in schedules(layers) if of[1] > 1] or [(2, 2)])
    )
).filter(lambda of: level_chunks(of[0], *of[1]) is not None)  # fmt: skip


@settings(max_examples=80, deadline=None, derandomize=True)
@given(INTERLEAVED, st.integers(1, 4), st.booleans())
def test_what_interleaved_ranks_hold_and_keep_is_no_less_than_their_extent_says(
    of: tuple[int, tuple[int, int]], rounds: int, whichever: bool
) -> None:
    """`whichever`: of any vpp > 1."""
    layers, (p, v) = of
    pp, m = np.array([p]), np.array([rounds * p])
    reach = extent(
        LayerMix(np.array([layers]), 0), pp, np.array([1 if whichever else v]), m,
        any_vpp=whichever, interleaved=whichever,
    )  # fmt: skip
    flying = micro_batches_in_flight(p, v, rounds * p)
    for split in shortened(layers, p, v):
        for rank in range(p):
            held = np.array(split[rank::p])
            n, kept = int(held.sum()), float((held * flying[rank]).sum())
            least, most, each, surplus = (
                float(np.broadcast_to(getattr(reach, name), reach.exists.shape)[0, rank])
                for name in ("least", "most", "each", "surplus")
            )
            assert least <= n <= most
            assert kept >= each * n + surplus
            assert flying[rank].max() >= reach.in_flight_most[0, rank]


@settings(max_examples=120, deadline=None, derandomize=True)
@given(
    INTERLEAVED, st.integers(1, 4), st.booleans(), st.integers(0, 6),
    st.floats(0.1, 10.0), st.floats(0.1, 10.0),
)  # fmt: skip
def test_ranks_of_two_kinds_keep_no_less_than_the_bound_beside_the_rarer_kind_says(
    of: tuple[int, tuple[int, int]], rounds: int, whichever: bool, lead: int, light: float, heavy: float
) -> None:
    """n*a + (H - n)*b beside leading layers, and what chunks keep beside the least of the rank."""
    layers, (p, v) = of
    rare = min(lead or layers // 2, (layers - 1) // 2)
    if not rare:
        return
    pattern = (
        [k < rare for k in range(layers)] if lead else [k % 2 == 0 and k < 2 * rare for k in range(layers)]
    )
    mix = LayerMix(np.array([rare, layers - rare]), rare if lead else 0)
    reach = extent(
        mix, np.array([p]), np.array([1 if whichever else v]), np.array([rounds * p]),
        any_vpp=whichever, interleaved=whichever,
    )  # fmt: skip
    flying = micro_batches_in_flight(p, v, rounds * p)
    for split in shortened(layers, p, v):
        start = np.concatenate([[0], np.cumsum(split)])
        for rank in range(p):
            chunks = [pattern[start[s] : start[s + 1]] for s in range(rank, p * v, p)]
            rarer = np.array([sum(chunk) for chunk in chunks])
            usual = np.array([len(chunk) for chunk in chunks]) - rarer
            kept = float((flying[rank] * (usual * heavy + rarer * light)).sum())
            level, surplus, least, most, leading = (
                float(np.broadcast_to(getattr(reach, name), reach.exists.shape)[0, rank])
                for name in ("level", "level_surplus", "in_flight_least", "in_flight_most", "lead")
            )
            assert rarer.sum() >= leading
            assert usual.sum() + rarer.sum() - leading >= level
            spare = min(light, heavy) if surplus > 0 else max(light, heavy)
            n = usual.sum()
            claimed = leading * most * light + surplus * spare
            claimed += least * (n * heavy + (level - n) * light)
            assert kept >= claimed * (1 - 1e-9) - 1e-9, (split, rank)
