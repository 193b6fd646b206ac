"""Forward and backward passes of a micro-batch through a stage."""

from __future__ import annotations

from costmodel.layer import LayerCost
from costmodel.stage import Array, StageRates, StageSplit, stage_time

EMBEDDING_FORWARD = 1 / 2
"""Of the embedding's time: it reads in one direction what it adds up in the other."""
HEAD_FORWARD = 1 / 3
"""Of the head's time: one of its three matrix products."""


def pass_seconds(cost: LayerCost, rates: StageRates, split: StageSplit) -> tuple[Array, Array]:
    """Forward and backward seconds of a micro-batch on each stage: (..., stages) each.

    A layer's forward pass takes what repeating it would; recompute belongs to the backward pass.
    """
    both = stage_time(rates, split)
    forward = (split.layers * cost.forward).sum(axis=-1)
    forward = forward + EMBEDDING_FORWARD * split.first * cost.first
    forward = forward + HEAD_FORWARD * split.last * cost.last
    return forward, both - forward
