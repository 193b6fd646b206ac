"""Pipelines that have no room for the layers, told before any of them is written down: one look at many."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.memory.overhead import fixed_bytes
from costmodel.memory.states import state_bytes
from costmodel.run import Run
from costmodel.stage import PerLayer
from planner.bound.fit import may_fit
from planner.bound.mix import layer_mix
from planner.keybook import KeyBook
from planner.search.open_variants import leanest
from planner.search.rows import memory_limit
from planner.space.columns import FULL, Groups, LayerKeys, families
from planner.space.layouts import Layouts, microbatch_range_filled
from planner.space.recompute import stage_recompute
from planner.space.runs import run_of_rows

Array = NDArray[Any]
WIDTH = 1.4
"""From the shortest to the longest of the pipelines that are looked at together."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Pipelines of neighbouring lengths."""

    shortest: int
    longest: int
    most: int
    """Replicas of any of their layouts."""
    least: int

    @classmethod
    def of(cls, pp: Array, layout: Layouts) -> Lengths:
        """Of more than one stage."""
        dp = layout.dp[np.isin(layout.pp, pp)]
        return cls(int(pp.min()), int(pp.max()), int(dp.max()), int(dp.min()))


def may_have_room(book: KeyBook, keys: Array, layout: Layouts, values: Array) -> Array:
    """(keys, values) bool, False only where no layout fits.

    `keys` share pool and ranks; `values` are (pp, zero, filled) of their pipelines. Of pipelines of many
    lengths the shortest has the smallest states, the longest the most ranks to hold the layers: first of all
    that have several stages, then of those of like length. Without ZeRO, states are larger than with it.
    """
    found = np.ones((len(keys), len(values)), dtype=bool)
    pp, zero, filled = values.T
    for fills in (0, 1):
        long = np.flatnonzero((pp > 1) & (filled == fills))
        if not len(long):
            continue
        most = int(zero[long].max())
        alive = np.flatnonzero(_may_fit(book, keys, [Lengths.of(pp[long], layout)], most, fills)[:, 0])
        block = (np.log(pp[long]) / np.log(WIDTH)).astype(np.int64)
        blocks, which = np.unique(block, return_inverse=True)
        lengths = [Lengths.of(pp[long[block == of]], layout) for of in blocks]
        fits = np.zeros((len(keys), len(lengths)), dtype=bool)
        fits[alive] = _may_fit(book, keys[alive], lengths, most, fills)
        found[:, long] = fits[:, which]
    return found


def _may_fit(book: KeyBook, keys: Array, lengths: list[Lengths], zero: int, filled: int) -> Array:
    """(keys, lengths) bound.may_fit of the shortest pipelines on the ranks of the longest."""
    instance, number = book.instance, len(lengths)
    key, ranks = np.repeat(keys, number), np.tile([of.longest for of in lengths], len(keys))
    groups, least = _roomiest(book, key, lengths, zero, filled)
    found = np.empty(len(key), dtype=bool)
    for pool, family, of in families(groups):
        of = of[np.argsort(ranks[of], kind="stable")]
        rows, longest = groups.take(of), ranks[of]
        bare, lean = leanest(book, rows, family)
        rates, variant = lean(book.least_rates(bare)), int(bare.variant[0])
        run = run_of_rows(instance, pool, variant, replace(rows, dp=least[of]), vpp=1)
        rates = replace(rates, fixed_bytes=fixed_bytes(run), states=least_states(rates.states, run))
        fewest, recomputes = longest if filled else rows.m_low, stage_recompute(family) != "none"
        found[of] = may_fit(
            rates, layer_mix(instance), rows.pp, fewest, memory_limit(instance, pool), recomputes, longest,
        )  # fmt: skip
    return found.reshape(len(keys), number)


def least_states(most: PerLayer, fewest: Run) -> PerLayer:
    """Bytes of states with most replicas, or with the fewest: some stacks keep less of a single one.

    With context parallelism its ranks share the states, so that it may need least of all.
    """
    if fewest.stack.memory.gradient_bytes_one_replica is None:
        return most
    few = state_bytes(fewest)
    return PerLayer(*(np.minimum(getattr(most, f.name), getattr(few, f.name)) for f in fields(PerLayer)))


def _roomiest(
    book: KeyBook, key: Array, lengths: list[Lengths], zero: int, filled: int
) -> tuple[Groups, Array]:
    """The shortest pipelines with the most replicas of any, and the fewest of any."""
    instance, of = book.instance, book.keys.take(key)
    pp, most, least = (
        np.tile([getattr(each, name) for each in lengths], len(key) // len(lengths))
        for name in ("shortest", "most", "least")
    )
    # As in `pipelines.roomiest`.
    dp = np.maximum(np.minimum(most, instance.max_batch // of.micro_batch), least)
    enough = -(-(of.ep * of.etp) // (of.tp * of.cp))
    dp = np.maximum(dp, enough)
    columns: dict[str, Array] = {f.name: getattr(of, f.name) for f in fields(LayerKeys)}
    one = np.ones_like(pp)
    columns |= {"key": key, "pp": pp, "zero": zero * one, "filled": filled * one, "pipeline": key, "dp": dp}
    groups = Groups(**columns, zero_scope=FULL * one, m_low=one, m_high=one)
    fewest = np.maximum(microbatch_range_filled(instance, groups, dp)[0], 1)
    groups = replace(groups, m_low=fewest, m_high=fewest)
    least = np.maximum(least, enough)
    return (groups if zero else replace(groups, dp=least)), least
