"""What kept tensors are counted in: tokens of a rank, bytes of an element."""

from __future__ import annotations

from costmodel.memory.profile import is_low_precision
from costmodel.run import Column, Run

BF16 = 2
FP32 = 4


def split_tokens(run: Run) -> Column:
    """Tokens of tensors that sequence parallelism splits."""
    return run.tokens / run.tp if run.stack.tensor_parallel.sequence_parallel else run.tokens


def gemm_input(run: Run) -> float:
    """Bytes per element of a kept GEMM input."""
    return run.stack.memory.fp8_input_bytes if is_low_precision(run.precision) else BF16
