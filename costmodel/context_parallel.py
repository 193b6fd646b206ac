"""Context-parallel communication of a layer: keys and values travel a ring behind the attention."""

from __future__ import annotations

from costmodel.collectives import group_bandwidth
from costmodel.elementwise import memory_rate
from costmodel.passes import Passes
from costmodel.run import Column, Run


def ring_bytes(run: Run) -> Column:
    """Bytes a rank sends forward: (cp - 1) * 2*b*(S/cp)*(d_k + d_v)/tp; MLA sends expanded heads."""
    arch = run.architecture
    width = arch.q_width + arch.v_width if arch.mla else 2 * arch.kv_width
    return (run.cp - 1) * 2.0 * run.tokens * width / run.tp


def exposed_context_parallel(run: Run) -> Passes:
    """Exposed ring transfer, and merging the partial outputs of its cp - 1 steps.

    Backward moves keys, values and their gradients: twice the bytes.
    """
    stack, links = run.stack.context_parallel, run.stack.data_parallel
    rate = group_bandwidth(run, run.cp, run.tp, links.nvlink_efficiency, links.nic_efficiency)
    transfer = stack.exposed * ring_bytes(run) / rate
    elements = (run.cp - 1) * run.tokens * run.architecture.v_width / run.tp
    return Passes(transfer + stack.merge_bytes * elements / memory_rate(run), 2 * transfer)
