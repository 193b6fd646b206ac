"""Which norms of a layer stand alone: what recompute of `layernorm` can repeat."""

from __future__ import annotations

from costmodel.architecture import LayerKind
from costmodel.run import Run

NORMS = 2
"""Norms before attention and FFN, whose outputs are GEMM inputs."""


def norms_before(run: Run) -> int:
    """Norms of a layer whose outputs are kept as GEMM inputs."""
    return min(run.architecture.norms_per_layer, NORMS)


def separate_norms(run: Run, kind: LayerKind) -> int:
    """Norms whose outputs can be dropped and computed again.

    All of them; where norms are fused into the linear behind them (Transformer Engine's LayerNormLinear) only
    those before latent attention and before a router, which have none. Source: Megatron-Core 0.16,
    `gpt_layer_specs.py` and `transformer_layer.py`; a published pair of 70B runs with and without `layernorm`
    has the same peak (NVIDIA Megatron-Bridge, activation recompute: 54.8 and 55.5 GiB).
    """
    if not run.stack.recompute.fused_norms:
        return norms_before(run)
    return min(int(run.architecture.mla is not None) + int(kind == "moe"), norms_before(run))


def fused_into_ffn(run: Run, kind: LayerKind) -> bool:
    """Whether the norm before a dense FFN is part of its first linear, which recompute of `mlp` covers."""
    return run.stack.recompute.fused_norms and kind == "dense" and norms_before(run) == NORMS
