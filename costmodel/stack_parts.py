"""The groups of numbers a software profile is made of (see `stack.py`)."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

Deals = Literal["middle", "late", "parameters"]
"""Where layers that do not divide by stages go; see `Pipeline.deals`."""
Placing = Literal["loop", "both", "v"]
"""On which ranks virtual stages lie; see `Pipeline.placing`."""
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


class TensorParallel(Part):
    """Collectives of the tensor-parallel group."""

    sequence_parallel: bool
    """Norms and residuals sharded; all-gather and reduce-scatter instead of all-reduce."""
    exposed: NonNegativeFloat
    """Share of the collectives' time that shows (user buffers hide the rest)."""
    regather_exposed: NonNegativeFloat
    """Share that shows of the two all-gathers that rebuild inputs for weight gradients."""
    slowdown: PositiveFloat = 1.0
    """Collective time over the nccl-tests curve."""
    nic_efficiency: PositiveFloat
    """Across domains: share of the NIC's line rate."""
    latency: NonNegativeFloat
    """Across domains: seconds for each doubling of nodes."""


class ContextParallel(Part):
    """Keys and values on the context-parallel ring."""

    exposed: NonNegativeFloat
    """Share of the ring's K/V transfer that shows."""
    merge_bytes: NonNegativeFloat
    """Bytes a token and query element for each ring step: merging partial outputs."""


class ExpertParallel(Part):
    """Dispatch of tokens to experts and back."""

    dispatcher: Literal["alltoall", "deepep"]
    """deepep: DeepEP or HybridEP, one copy of a token to each rank that needs it."""
    alltoall_nvlink: PositiveFloat
    """Share of one-way NVLink reached."""
    alltoall_nic: PositiveFloat
    """Share of a GPU's NIC reached across nodes, at most `nic_cap`."""
    deepep_nvlink: ByGeneration
    deepep_nic: PositiveFloat
    nic_cap: PositiveFloat
    """bytes/s a GPU sends across nodes at best, whatever its NIC (seen with 800G NICs)."""
    latency: NonNegativeFloat
    """Seconds an all-to-all."""
    overlap: bool
    """Hide dispatch and combine behind the compute of another micro-batch."""
    overlap_exposed: ByGeneration
    """With overlap: share of the hidden all-to-all that still shows (SMs it takes)."""
    imbalance: PositiveFloat
    """Tokens of the fullest expert rank over the mean (1: forced balance or capacity)."""
    routing: Literal["balanced", "natural"] = "balanced"
    """What its runs do unless they say so."""
    capacity_experts: NonNegativeInt = 0
    """Models with at most so many experts drop tokens at a capacity unless a run says otherwise."""
    natural_imbalance: PositiveFloat
    """The same in runs that say that tokens choose their experts freely."""
    dropped_tokens: bool = False
    """Experts padded to a capacity, the rest dropped."""


class Pipeline(Part):
    """The schedule, and transfers between pipeline stages."""

    bubble: NonNegativeFloat = 1.0
    """Share of the fill and drain bubble that the schedule leaves: 1 for 1F1B (1/v of it with v
    virtual stages), 1/3 for ZB-1p, 0 for ZB-2p (`costmodel.schedules`)."""
    placing: Placing = "loop"
    """Where virtual stage i of p ranks lies: on rank i mod p (`loop`); on ranks i and p-1-i, where
    micro-batches enter at both ends (`both`, DualPipe); on rank i and then 2p-1-i (`v`, DualPipeV)."""
    deals: Deals = "middle"
    """How layers are dealt out to stages where a run does not say: evenly, with the remainder on the
    middle or on the last stages, or so that parameters (LM head included) are even."""
    scattered: bool = False
    """Without sequence parallelism: a transfer is split over the tp ranks and gathered on arrival."""
    exposed: NonNegativeFloat
    """Share of steady-state transfers that shows with one virtual stage."""
    exposed_interleaved: NonNegativeFloat
    latency: NonNegativeFloat
    nic_efficiency: PositiveFloat
    nvlink_efficiency: PositiveFloat


class DataParallel(Part):
    """Gradient reduction and weight gathers."""

    gradient_bytes: PositiveFloat
    """Bytes a parameter on the wire when gradients are reduced."""
    parameter_bytes: PositiveFloat
    """Bytes a parameter when weights are gathered."""
    low_precision_parameter_bytes: PositiveFloat
    """The same with FP8 or FP4 training."""
    all_reduce: bool = False
    """Gradients are all-reduced although the optimizer is sharded (twice the bytes)."""
    reduce_window: NonNegativeFloat
    """Share of one micro-batch behind which the reduction can hide."""
    gather_window: NonNegativeFloat
    exposed_floor: NonNegativeFloat
    """Share of the traffic that shows however long the micro-batch."""
    sharded_floor: NonNegativeFloat
    """ZeRO-3 (FSDP): share of each micro-batch's gathers and reductions that always shows."""
    sharded_window: NonNegativeFloat
    """ZeRO-3: share of a layer's compute behind which its traffic can hide."""
    zero2_reduces: NonNegativeFloat = 1.0
    """ZeRO-2: gradient reductions a micro-batch."""
    replicas_each_micro_batch: bool = False
    """Hybrid sharding under ZeRO-2 and 3: replicas of a shard all-reduce its gradients in every micro-batch,
    not once a step."""
    nvlink_efficiency: PositiveFloat
    nic_efficiency: PositiveFloat
    shared_nics: PositiveFloat = 1.0
    """Share of the NICs' rate that is left to groups with several members in a node beside other groups
    (1 < tp < GPUs of a node): each communicator picks its NICs alone, so several pick the same."""
    latency: NonNegativeFloat
    """Seconds a collective, once a step, for each doubling of the group."""
    broadcast: NonNegativeFloat = 0.0
    """Seconds a step for each rank that shares states, where ranks send their weights out one by one."""


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
