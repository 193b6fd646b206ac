"""Interleaved pipelines whose ranks keep step: which there are, and that a schedule run event by event agrees."""

from __future__ import annotations

import numpy as np
import pytest

from costmodel.pipeline import level_chunks, plain_layers


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
