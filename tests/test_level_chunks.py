"""Interleaved pipelines whose ranks keep step: which there are, and that a schedule run event by event agrees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from costmodel.pipeline import level_chunks, plain_layers
from costmodel.step import pipeline_time


@pytest.mark.parametrize(
    ("layers", "pp", "vpp", "sizes", "short"),
    [
        (80, 10, 8, (1,) * 8, 0),
        (96, 8, 4, (3, 3, 3, 3), 0),
        (94, 4, 8, (3,) * 8, 2),  # with embedding and loss as a layer each: 96 on 32
        (126, 16, 4, (2,) * 4, 2),
        (61, 4, 4, (4, 4, 4, 4), 3),
        (61, 16, 2, (2, 2), 3),  # DeepSeek-V3: Et|(tt|)*30mL
        (61, 8, 4, (2,) * 4, 3),
        (126, 16, 8, (1,) * 8, 2),  # Llama 3: nothing but the embedding, and nothing but the head
        (60, 16, 3, (), None),
        (60, 16, 2, (2, 2), 4),  # both ends hold no layer
        (58, 16, 2, (), None),  # they would have to be without six of four
        (60, 10, 4, (1, 1, 2, 2), 0),
    ],
)  # fmt: skip
def test_chunks_hold_as_many_layers_on_every_rank_but_at_the_ends(
    layers: int, pp: int, vpp: int, sizes: tuple[int, ...], short: int | None
) -> None:
    level = level_chunks(layers, pp, vpp)
    if short is None:
        assert level is None
        return
    assert level is not None
    assert (level.sizes, level.short) == (sizes, short)
    split = plain_layers(layers, pp, vpp).reshape(vpp, pp)
    assert split.sum() == layers
    assert split.ravel()[1:-1].min() >= 1
    full = np.array(sizes)[:, None]
    missing = full - split
    assert missing.sum() == short
    assert not missing.ravel()[1:-1].any()


def test_there_are_level_chunks_exactly_where_counting_finds_them() -> None:
    for layers in range(1, 40):
        for pp in range(2, 10):
            for vpp in range(2, 8):
                a_rank = next(n for n in range(layers + 1) if n * pp >= layers)
                sizes = [a_rank // vpp + (chunk >= vpp - a_rank % vpp) for chunk in range(vpp)]
                ways = [
                    first
                    for first in range(sizes[0] + 1)
                    for last in range(sizes[-1] + 1)
                    if a_rank * pp - first - last == layers and a_rank >= vpp
                ]
                level = level_chunks(layers, pp, vpp)
                assert (level is not None) == bool(ways), (layers, pp, vpp, ways)
                if level is not None:
                    assert [*level.at_first] == ways
                    for first in ways:
                        split = level.split(pp, first)
                        assert (split.sum(), split[0], split.min() >= 0) == (layers, sizes[0] - first, True)


def simulated(pp: int, vpp: int, m: int, layers: Any, head: float = 0.0) -> float:
    """Seconds of interleaved 1F1B, pass by pass in each rank's order.

    A layer takes 1 forward and 2 backward, the head as long as `head` layers. Of its m*v forward passes a rank
    runs 2(p - r - 1) + (v - 1)p before its first backward one (Narayanan et al. 2021, section 2.2).
    """
    seconds, every = np.array(layers, dtype=float), m * vpp
    seconds[-1] += head
    forward = [(i % (pp * vpp) // pp, i // (pp * vpp) * pp + i % pp) for i in range(every)]
    backward = [(vpp - 1 - chunk, which) for chunk, which in forward]
    orders = []
    for rank in range(pp):
        warm = min(2 * (pp - rank - 1) + (vpp - 1) * pp, every)
        order = [(1, *of) for of in forward[:warm]]
        for one, other in zip(forward[warm:], backward, strict=False):
            order += [(1, *one), (-1, *other)]
        orders.append(iter([*order, *((-1, *of) for of in backward[every - warm :])]))
    ended: dict[tuple[int, int, int], float] = {}
    clocks = [0.0] * pp
    waiting = [next(order, None) for order in orders]
    while len(ended) < 2 * every * pp:
        for rank in range(pp):
            while (of := waiting[rank]) is not None:
                way, chunk, which = of
                stage = chunk * pp + rank
                turns = way < 0 and stage == pp * vpp - 1
                needed = (1, stage, which) if turns else (way, stage - way, which)
                if needed not in ended and (way < 0 or stage):
                    break
                start = max(clocks[rank], ended.get(needed, 0.0))
                clocks[rank] = ended[way, stage, which] = start + (1 if way > 0 else 2) * float(
                    seconds[stage]
                )
                waiting[rank] = next(orders[rank], None)
    return max(clocks)


@pytest.mark.parametrize(
    ("layers", "pp", "vpp"), [(64, 16, 2), (61, 16, 2), (61, 8, 4), (60, 16, 2), (126, 16, 4), (92, 8, 3)]
)
@pytest.mark.parametrize("head", [0.0, 1.0])
def test_the_step_is_that_of_the_schedule_whichever_end_is_short(
    layers: int, pp: int, vpp: int, head: float
) -> None:
    level = level_chunks(layers, pp, vpp)
    assert level is not None
    for rounds, closeness in ((1, 0.05), (8, 0.008)):
        for first in level.at_first:
            split = level.split(pp, first)
            busy = 3.0 * split.reshape(vpp, pp).sum(axis=0)
            busy[-1] += 3 * head
            said = pipeline_time(busy.max(), busy.sum(), rounds * pp, vpp)
            assert simulated(pp, vpp, rounds * pp, split, head) == pytest.approx(said, rel=closeness)


def test_a_chunk_that_is_longer_on_some_ranks_makes_the_others_wait() -> None:
    """Every rank holds four layers either way."""

    def period(split: Any) -> float:
        return (simulated(4, 2, 64, split) - simulated(4, 2, 32, split)) / 32

    level = level_chunks(16, 4, 2)
    assert level is not None
    assert period(level.split(4)) == pytest.approx(3 * 4)
    assert period([3, 1, 3, 1, 1, 3, 1, 3]) / (3 * 4) == pytest.approx(1.19, abs=0.005)


@pytest.mark.parametrize(("pp", "vpp"), [(2, 2), (4, 2), (4, 4), (8, 2), (8, 3)])
@pytest.mark.parametrize("slow", ["first half", "last half", "one"])
def test_ranks_that_are_not_equally_quick_take_no_longer_than_said_and_idle_less(
    pp: int, vpp: int, slow: str
) -> None:
    """Every rank has level chunks of its own; where the last ranks are the slow ones the formula is exact."""
    rank = np.arange(pp)
    where = {"first half": rank < pp // 2, "last half": rank >= pp // 2, "one": rank == pp // 2}[slow]
    seconds = np.where(where, 1.2, 1.0)
    busy, split = 3 * vpp * seconds, np.tile(seconds, vpp)
    took = {rounds: simulated(pp, vpp, rounds * pp, split) for rounds in (1, 2, 8, 16)}
    said = {
        rounds: float(pipeline_time(busy.max(), busy.sum(), rounds * pp, vpp)) for rounds in (1, 2, 8, 16)
    }
    assert took[16] - took[8] == pytest.approx(8 * pp * busy.max())
    for rounds, seconds_said in said.items():
        assert seconds_said * 0.92 <= took[rounds] <= seconds_said * (1 + 1e-9)
        if slow == "last half":
            assert took[rounds] == pytest.approx(seconds_said)
