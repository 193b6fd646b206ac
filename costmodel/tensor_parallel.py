"""Tensor-parallel communication of a layer that compute does not hide."""

from __future__ import annotations

from costmodel.architecture import Architecture, LayerKind
from costmodel.collectives import tensor_parallel_time
from costmodel.passes import Passes
from costmodel.run import Run
from costmodel.stack import Stack


def sharded_blocks(run: Run, kind: LayerKind) -> int:
    """Blocks of a layer that gather and scatter over tp: attention, and a dense or shared FFN.

    Routed experts take a rank's own tokens; their dispatcher moves them.
    """
    moe = run.architecture.moe
    return 1 if kind == "moe" and moe and not moe.shared_expert_ffn else 2


def overlap_covers(architecture: Architecture, stack: Stack) -> bool:
    """Whether what hides tensor-parallel collectives knows a model's linears.

    Megatron's user buffers are those of qkv, proj, fc1 and fc2: the first linear of latent attention switches
    them off, for the layers after it as well. Source: Megatron-Core 0.16, `extensions/transformer_engine.py`.
    """
    return architecture.mla is None or stack.family != "megatron"


def exposed_share(run: Run) -> float:
    """Share of the collectives' time that shows."""
    exposed = run.stack.tensor_parallel.exposed
    return exposed if overlap_covers(run.architecture, run.stack) else max(1.0, exposed)


def exposed_tensor_parallel(run: Run, kind: LayerKind) -> Passes:
    """Exposed seconds forward and backward.

    With sequence parallelism a block gathers its input and scatters its output (2*b*S/c*d bytes each)
    forward, the same backward, and gathers the input again for weight gradients; without it one
    all-reduce each way. Source: Korthikanti et al. 2022, section 4.2.
    """
    stack, blocks, share = run.stack.tensor_parallel, sharded_blocks(run, kind), exposed_share(run)
    size = 2.0 * run.tokens * run.architecture.hidden
    if not stack.sequence_parallel:
        reduce = blocks * share * tensor_parallel_time(run, "all_reduce", size)
        return Passes(reduce, reduce)
    gather = tensor_parallel_time(run, "all_gather", size)
    both = blocks * share * (gather + tensor_parallel_time(run, "reduce_scatter", size))
    return Passes(both, both + blocks * stack.regather_exposed * gather)


def collectives_per_layer(run: Run, kind: LayerKind) -> int:
    """Collective launches of a layer, forward and backward."""
    each_way = 2 if run.stack.tensor_parallel.sequence_parallel else 1
    return 2 * each_way * sharded_blocks(run, kind)
