"""A cluster's own numbers from what its owner has: nccl-tests output, a GEMM table, measured steps."""

from __future__ import annotations

MOST_BYTES = 256 * 2**20
"""Logs of long runs are large; a file beyond this is something else."""
