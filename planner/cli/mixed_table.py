"""What each pool does in a plan on two, as a table."""

from __future__ import annotations

from rich.table import Table

from planner.english import counted
from planner.solution import Decisions, PoolPart


def pool_parts(decisions: Decisions) -> Table:
    """A line a pool: its GPUs, pipeline ranks, micro-batches, and memory against what is allowed."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("pool", overflow="fold")
    for heading in ("GPUs", "nodes", "ranks", "micro-batches", "GiB", "allowed"):
        table.add_column(heading, justify="right", overflow="fold")
    for part in decisions.parts:
        allowed = "" if part.memory_limit_gib is None else f"{part.memory_limit_gib:.1f}"
        ranks = f"{ranks_words(part)} of {decisions.pp}"
        batches = f"{part.num_microbatches} x {counted(part.dp, 'replica', '')}"
        memory = f"{part.memory_gib:.1f}"
        table.add_row(part.gpu, f"{part.num_gpus:,}", f"{part.nodes:,}", ranks, batches, memory, allowed)
    return table


def ranks_words(part: PoolPart) -> str:
    """Pipeline ranks, counted from 0 as launchers do: 0-11."""
    first, last = part.first_rank, part.last_rank
    return str(first) if first == last else f"{first}-{last}"
