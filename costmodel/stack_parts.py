"""The groups of numbers of a software profile (see `stack.py`), those of parallelism apart."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, NonNegativeFloat, PositiveFloat, PositiveInt

Graphs = Literal["none", "router", "attention_router", "full"]
"""What CUDA graphs cover: nothing, the router and preprocessing, attention as well, a full iteration."""


class Part(BaseModel):
    """Frozen, and closed: an unknown key in a profile is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ByGeneration(Part):
    """A factor by GPU generation, because kernels age differently on each."""

    ampere: PositiveFloat = 1.0
    ada: PositiveFloat = 1.0
    hopper: PositiveFloat = 1.0
    blackwell: PositiveFloat = 1.0
    other: PositiveFloat = 1.0

    def of(self, generation: str) -> float:
        return float(getattr(self, generation))


class Gemm(Part):
    """Matrix multiplications."""

    factor: ByGeneration = ByGeneration()
    """Rate over the rate that the GPU sustains with today's Megatron-Core."""
    grouped: PositiveFloat
    """Rate of grouped expert GEMMs over dense ones of the same tiles."""
    tile_penalty_floor: NonNegativeFloat
    """Least exponent by which tiles smaller than 256x128 lose efficiency, whatever the curve says."""
    recipes: dict[str, PositiveFloat]
    """Precision recipes that are not BF16 or FP16: their rate over `Sustained.fp8_speedup`
    (`nvfp4_speedup` for nvfp4) times the BF16 rate."""
    low_precision_k0: NonNegativeFloat
    """Elements of K added to each FP8 or FP4 GEMM (scaling, prologue)."""
    accumulate_bytes: NonNegativeFloat
    """HBM bytes for each local parameter and micro-batch: adding to main gradients."""
    expert_accumulate_bytes: NonNegativeFloat | None = None
    """The same for routed experts, where their accumulation is not fused with the GEMM."""
    misaligned: PositiveFloat = 1.0
    """Time of unfused attention's batched GEMMs when head_dim is no multiple of 8, over aligned."""


class Attention(Part):
    """The attention core."""

    kernel: Literal["flash", "unfused"]
    forward: ByGeneration = ByGeneration()
    """Flash: forward rate over what the GPU sustains with today's kernels."""
    backward: ByGeneration = ByGeneration()
    small_head: PositiveFloat = 1.0
    """Flash: further factor on the rate when the head-64 curve is used."""
    context_parallel: PositiveFloat = 1.0
    """Time with cp > 1 over a balanced causal split (no balancing: near 1.8)."""
    softmax_forward: NonNegativeFloat = 9.0
    """Unfused: bytes a score, softmax and dropout, forward."""
    softmax_backward: NonNegativeFloat = 11.0
    softmax_factor: NonNegativeFloat = 1.0
    """Unfused: measured over counted softmax bytes."""


class Elementwise(Part):
    """Memory-bound kernels: bytes over HBM at the GPU's sustained share."""

    factor: PositiveFloat
    """Bytes moved over the bytes of well-fused kernels below (poor fusion: 2 to 3)."""
    norm_forward: NonNegativeFloat
    """Bytes a token and hidden element for both norms, residual adds and dropout of a layer, forward."""
    norm_backward: NonNegativeFloat
    rope_forward: NonNegativeFloat
    """Bytes a token and element of queries, keys and values."""
    rope_backward: NonNegativeFloat
    gated_forward: NonNegativeFloat
    """Bytes a token and FFN element: activation and product of a gated MLP."""
    gated_backward: NonNegativeFloat
    plain_forward: NonNegativeFloat
    plain_backward: NonNegativeFloat
    quantise: NonNegativeFloat
    """FP8 and FP4: bytes for each element of GEMM inputs and of output gradients."""
    router: NonNegativeFloat
    """Bytes a token and expert for logits, softmax and top-k, each way."""
    permute_passes: NonNegativeFloat
    """Passes over the routed tokens (2 bytes an element) for permute and unpermute, each way."""
    unfused_permute_passes: NonNegativeFloat
    """The same where permutation is not fused (Megatron-Core up to 0.14, or switched off)."""
    permute_alltoall: NonNegativeFloat
    """Further passes with the all-to-all dispatcher: sorting chunks by expert."""
    biased_expert_passes: NonNegativeFloat
    """Passes over routed tokens x expert width (2 bytes), a third of them forward, for experts with
    biases and a clamped GLU (gpt-oss)."""
    moe_factor: PositiveFloat
    """Further multiplier on activation bytes of routed experts."""


class Host(Part):
    """The CPU that launches kernels. A layer takes (gpu^p + host^p)^(1/p)."""

    gap: NonNegativeFloat
    """Seconds the GPU idles between two kernels."""
    kernels_attention: NonNegativeFloat
    """Kernels forward; twice as many backward."""
    kernels_ffn: NonNegativeFloat
    kernels_moe: NonNegativeFloat
    layer: NonNegativeFloat = 0.0
    """Seconds more a layer and micro-batch that nothing hides (blocking calls of old stacks)."""
    offload: NonNegativeFloat = 0.0
    """Relative slow-down of a layer's kernels when all its activations are copied to the host and back."""
    graphs: Graphs = "none"
    gap_with_graphs: dict[Graphs, NonNegativeFloat]
    """Share of the gaps that is left under each scope of CUDA graphs."""
    attention: NonNegativeFloat
    """CPU seconds a layer and micro-batch, forward and backward, eager BF16 on x86."""
    ffn: NonNegativeFloat
    moe: NonNegativeFloat
    local_expert: NonNegativeFloat
    """CPU seconds for each expert on the rank."""
    alltoall: NonNegativeFloat
    """CPU seconds more with the all-to-all dispatcher."""
    tp_collective: NonNegativeFloat = 0.0
    """CPU seconds for each tensor-parallel collective."""
    wide_tp: NonNegativeFloat = 0.0
    """CPU seconds more for each layer's forward when tp >= 8."""
    latent_attention: PositiveFloat
    """Factor on `attention` with MLA."""
    low_precision: PositiveFloat
    """Factor with FP8 or FP4 (quantisers, scales)."""
    expert_overlap: PositiveFloat
    """Factor when the expert all-to-all overlaps with compute."""
    dropped_tokens: PositiveFloat
    """Factor with capacity-padded experts: fixed shapes, no counts read back."""
    full_recompute: PositiveFloat
    """Factor on a fully recomputed layer."""
    router_graph: NonNegativeFloat
    """Share of `moe` left when graphs cover the router."""
    attention_graph: NonNegativeFloat
    """Share of `attention` left when graphs cover attention."""
    p_norm: PositiveFloat


class Head(Part):
    """Embedding, LM head and loss; the head's GEMM stays BF16 in every recipe."""

    loss_bytes: NonNegativeFloat
    """Bytes a logit for cross entropy, forward and backward."""
    embedding_bytes: NonNegativeFloat
    """Bytes a token and hidden element, forward and backward."""


class Optimizer(Part):
    """The end of a step."""

    sharded_bytes: NonNegativeFloat
    """HBM bytes a step for each parameter whose optimizer state is on the rank."""
    local_bytes: NonNegativeFloat
    """HBM bytes a step for each local parameter: zeroing, norm, copy."""
    step: NonNegativeFloat
    """Seconds a step, whatever the model."""
    micro_batch: NonNegativeFloat = 0.0
    """Seconds a micro-batch: data loader, Python loop."""


class Recompute(Part):
    """What recomputation repeats."""

    stops_early: bool
    """The recomputed forward ends before the last linear, whose output backward does not need."""
    per_op_share: NonNegativeFloat = 0.35
    """Share of a layer's forward that per-operator selective checkpointing (torchtitan) repeats."""
    norm_share: NonNegativeFloat
    """Share of `Elementwise.norm_forward` that is the norms themselves (the rest is residual adds)."""
    fused_norms: bool = False
    """Norms are fused into the linears behind them (`costmodel.norms`)."""


class Scale(Part):
    """Stragglers and jitter."""

    per_doubling: NonNegativeFloat
    """Relative slow-down for each doubling of GPUs beyond `from_gpus`."""
    from_gpus: PositiveInt
