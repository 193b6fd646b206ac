"""Tensor-parallel communication of a layer that compute does not hide."""

from __future__ import annotations

from costmodel.architecture import LayerKind
from costmodel.collectives import tensor_parallel_time
from costmodel.passes import Passes
from costmodel.run import Run


def sharded_blocks(run: Run, kind: LayerKind) -> int:
    """Blocks of a layer that gather and scatter over tp: attention, and a dense or shared FFN.

    Routed experts take a rank's own tokens; their dispatcher moves them.
    """
    moe = run.architecture.moe
    return 1 if kind == "moe" and moe and not moe.shared_expert_ffn else 2


def exposed_tensor_parallel(run: Run, kind: LayerKind) -> Passes:
    """Exposed seconds forward and backward.

    With sequence parallelism a block gathers its input and scatters its output (2*b*S/c*d bytes each)
    forward, the same backward, and gathers the input again for weight gradients; without it one
    all-reduce each way. Source: Korthikanti et al. 2022, section 4.2.
    """
    stack, blocks = run.stack.tensor_parallel, sharded_blocks(run, kind)
    size = 2.0 * run.tokens * run.architecture.hidden
    if not stack.sequence_parallel:
        reduce = blocks * stack.exposed * tensor_parallel_time(run, "all_reduce", size)
        return Passes(reduce, reduce)
    gather = tensor_parallel_time(run, "all_gather", size)
    both = blocks * stack.exposed * (gather + tensor_parallel_time(run, "reduce_scatter", size))
    return Passes(both, both + blocks * stack.regather_exposed * gather)


def collectives_per_layer(run: Run, kind: LayerKind) -> int:
    """Collective launches of a layer, forward and backward."""
    each_way = 2 if run.stack.tensor_parallel.sequence_parallel else 1
    return 2 * each_way * sharded_blocks(run, kind)
