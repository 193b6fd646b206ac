"""Idle time of a pipeline with equal stages.

Symbols: p pipeline stages, v virtual stages a rank, m micro-batches. Narayanan et al.
(arXiv:2104.04473), section 2.2. Unequal stages are priced in `costmodel.step`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from costmodel.run import Column


def bubble_overhead(pp: Column, num_microbatches: Column, vpp: Column = 1) -> Column:
    """Idle over busy time of 1F1B, GPipe or (v > 1) interleaved 1F1B: (p-1)/(v*m)."""
    return (pp - 1) / (vpp * num_microbatches)


def bubble_share(pp: Column, num_microbatches: Column, vpp: Column = 1) -> Column:
    """Idle share of the step: (p-1)/(v*m + p-1)."""
    return (pp - 1) / (vpp * num_microbatches + pp - 1)
