"""Where layers lie on a pipeline, and how many micro-batches each stage keeps in flight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.architecture import Architecture
from costmodel.run import Run
from costmodel.stack_parallel import Placing
from costmodel.stage import StageSplit

Ints = NDArray[np.int64]


def micro_batches_in_flight(pp: int, vpp: int, num_microbatches: int) -> Ints:
    """Micro-batches whose activations a rank holds at its peak, by chunk: (pp, vpp).

    1F1B keeps min(m, p - s) on rank s. Interleaved 1F1B runs min(2(p-s-1) + (v-1)p + 1, m*v)
    chunk forwards before its first backward, p of a chunk, then p of the next one, and so on
    (Narayanan et al. 2021, section 2.2).
    """
    rank = np.arange(pp)
    if vpp == 1:
        return np.minimum(num_microbatches, pp - rank)[:, None]
    warm_up = np.minimum(2 * (pp - rank - 1) + (vpp - 1) * pp + 1, num_microbatches * vpp)
    rounds, rest = np.divmod(warm_up, pp * vpp)
    return rounds[:, None] * pp + np.clip(rest[:, None] - np.arange(vpp) * pp, 0, pp)


def saturating_microbatches(pp: int, vpp: int) -> int:
    """The smallest number of micro-batches beyond which more of them need no more memory."""
    return pp if vpp == 1 else 2 * pp


class ChunkSizes(NamedTuple):
    """Layers of an interleaved pipeline's ranks and chunks, whose ends hold a few fewer."""

    held: Ints
    """Of a rank: ceil(L/p)."""
    smaller: Ints
    """Of its first chunk."""
    larger: Ints
    """Of its last chunk: as many, or one more."""
    short: Ints
    """Layers that the two ends of the pipeline hold fewer, both together: p*ceil(L/p) - L."""

    @property
    def at_first(self) -> Ints:
        """Of these, the most that the first stage can be without."""
        return np.minimum(self.short, self.smaller)

    @property
    def at_last(self) -> Ints:
        """The most that the last stage can be without."""
        return np.minimum(self.short, self.larger)


def most_chunks(layers: int, pp: int | Ints) -> Ints:
    """Chunks of a rank at most: as many as it has layers where they all keep step (`level_chunks`)."""
    return -(-layers // np.asarray(pp))


def chunk_sizes(layers: int, pp: int | Ints, vpp: int | Ints) -> ChunkSizes:
    """What ranks and chunks hold if all of them keep step (`level_chunks`)."""
    held = most_chunks(layers, pp)
    return ChunkSizes(held, held // vpp, -(-held // np.asarray(vpp)), held * np.asarray(pp) - layers)


@dataclass(frozen=True, slots=True)
class LevelChunks:
    """Chunks of an interleaved pipeline that take every rank equally long."""

    sizes: tuple[int, ...]
    """Layers of each chunk on every rank, the larger ones last: those keep least in flight."""
    short: int
    """Layers that the two ends of the pipeline hold fewer, both together."""

    @property
    def at_first(self) -> range:
        """How many of `short` the first stage may be without; the last one is without the others."""
        return range(max(0, self.short - self.sizes[-1]), min(self.short, self.sizes[0]) + 1)

    def split(self, pp: int, at_first: int | None = None) -> Ints:
        """Layers of each virtual stage; the ends are short by as much, the last one by one more if one is."""
        layers = np.repeat(np.array(self.sizes), pp)
        ways = self.at_first
        first = min(max(self.short // 2, ways[0]), ways[-1]) if at_first is None else at_first
        layers[0] -= first
        layers[-1] -= self.short - first
        return layers


@cache
def level_chunks(layers: int, pp: int, vpp: int) -> LevelChunks | None:
    """How an interleaved pipeline holds the layers if all ranks keep step; None if they cannot.

    In the steady state every rank runs the same chunk, one after the other, so that a chunk that is longer on
    some ranks makes the others wait (of four ranks, 3 and 1 layers on two and 1 and 3 on the others take 19 %
    longer than 2 and 2 on all). A chunk therefore has the same layers everywhere, but for the embedding's and
    the head's stage, which make up for what is missing to that: any number fewer (94 layers on 4 x 8 stages:
    2, 3 x 30, 2; DeepSeek-V3's 61 on 16 x 2: 1, 2 x 30, 0 and the head), or none at all (Llama 3's 126 on
    16 x 8: nothing but the embedding, 126 x 1, nothing but the head).
    """
    held, smaller, larger, short = (int(size) for size in chunk_sizes(layers, pp, vpp))
    if vpp == 1 or not smaller or short > smaller + larger:
        return None
    more = held - smaller * vpp
    return LevelChunks((smaller,) * (vpp - more) + (smaller + 1,) * more, short)


def plain_layers(layers: int, pp: int, vpp: int = 1) -> Ints:
    """Layers of each virtual stage, as even as can be; the remainder goes to the middle stages.

    The first stage also holds the embedding and the last one the head, so they get the short end.
    Interleaved pipelines have level chunks where they can.
    """
    level, stages = level_chunks(layers, pp, vpp), pp * vpp
    if level is not None:
        return level.split(pp)
    base, extra = divmod(layers, stages)
    split = np.full(stages, base)
    first = (stages - extra) // 2
    split[first : first + extra] += 1
    return split


def kind_counts(architecture: Architecture, start: Ints, length: Ints) -> Ints:
    """Layers of each kind among `length` layers from `start` on: (..., kinds)."""
    pattern = np.array(architecture.pattern())
    prefix = np.stack(
        [np.concatenate([[0], np.cumsum(pattern == kind)]) for kind in architecture.kinds], axis=-1
    )
    return prefix[start + length] - prefix[start]


def stages_of_ranks(pp: int, vpp: int, placing: Placing = "loop") -> Ints:
    """Virtual stages of each rank, chunk by chunk: (chunks, pp).

    loop: i lies on rank i mod p. both: rank r holds r and p-1-r, one for each direction (DualPipe).
    v: rank r holds r and 2p-1-r (DualPipeV). Raises ValueError for sizes that a placing does not have.
    """
    if placing == "loop":
        return np.arange(pp * vpp).reshape(vpp, pp)
    rank = np.arange(pp)
    if placing == "both" and (vpp > 1 or pp % 2):
        raise ValueError(
            f"micro-batches enter at both ends of an even number of ranks, got pp {pp} and vpp {vpp}"
        )
    if placing == "v" and vpp != 2:
        raise ValueError(f"a V has two stages on each rank, got {vpp}")
    return np.stack([rank, (vpp if placing == "v" else 1) * pp - 1 - rank])


def flights_of_ranks(pp: int, vpp: int, num_microbatches: int, placing: Placing = "loop") -> Ints:
    """Micro-batches in flight on each rank's stages: (chunks, pp).

    DualPipe and DualPipeV keep S - s on stage s of S, as 1F1B does: p + 1 a rank, or 2p + 1 halves
    (DeepSeek-AI 2024, arXiv:2412.19437, Table 2). With DualPipe half of the micro-batches pass a stage on
    a rank.
    """
    if placing == "loop":
        return micro_batches_in_flight(pp, vpp, num_microbatches).T
    most = num_microbatches // 2 if placing == "both" else num_microbatches
    return np.minimum(most, pp * vpp - stages_of_ranks(pp, vpp, placing))


def stage_split(
    architecture: Architecture,
    pp: int,
    vpp: int,
    num_microbatches: int,
    layers: Sequence[int] | Ints,
    recomputed: Sequence[int] | Ints | None = None,
    placing: Placing = "loop",
) -> StageSplit:
    """The split of one run: `layers` and `recomputed` of each of pp*vpp virtual stages.

    `placing` says on which ranks they lie. The first `recomputed` layers of a virtual stage are the ones
    recomputed (Megatron's block method).
    """
    length = np.asarray(layers, dtype=np.int64)
    again = np.zeros_like(length) if recomputed is None else np.asarray(recomputed, dtype=np.int64)
    if length.shape != (pp * vpp,) or length.sum() != architecture.layers:
        raise ValueError(
            f"{architecture.name} has {architecture.layers} layers on {pp * vpp} virtual stages, "
            f"got {length.tolist()}"
        )
    start, stages = np.cumsum(length) - length, stages_of_ranks(pp, vpp, placing)
    held = kind_counts(architecture, start, length)[stages]
    redone = kind_counts(architecture, start, again)[stages]
    flying = flights_of_ranks(pp, vpp, num_microbatches, placing)
    kept = flying[..., None]
    return StageSplit(
        layers=held.sum(axis=0),
        recomputed=redone.sum(axis=0),
        in_flight=((held - redone) * kept).sum(axis=0),
        in_flight_recomputed=(redone * kept).sum(axis=0),
        first_in_flight=np.where(stages == 0, flying, 0).sum(axis=0),
        first=(stages == 0).sum(axis=0),
        last=(stages == pp * vpp - 1).sum(axis=0),
        total_layers=held.sum(axis=(0, 1)),
        total_recomputed=redone.sum(axis=(0, 1)),
    )


def split_of(run: Run, layers: Sequence[int], recomputed: Sequence[int] | None = None) -> StageSplit:
    """The same of a run, its stages where its schedule has them."""
    pp, vpp, num_microbatches = (int(column) for column in (run.pp, run.vpp, run.num_microbatches))
    placing = run.stack.pipeline.placing
    return stage_split(run.architecture, pp, vpp, num_microbatches, layers, recomputed, placing)
