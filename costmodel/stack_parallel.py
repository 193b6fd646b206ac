"""The groups of numbers of a software profile about parallelism: collectives, transfers, schedule."""

from __future__ import annotations

from typing import Literal

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat

from costmodel.stack_parts import ByGeneration, Part

Deals = Literal["middle", "late", "parameters"]
"""Where layers that do not divide by stages go; see `Pipeline.deals`."""
Placing = Literal["loop", "both", "v"]
"""On which ranks virtual stages lie; see `Pipeline.placing`."""


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
    reduces_by_round: bool = False
    """ZeRO-2 with a pipeline: a chunk's gradients are reduced and sharded when the pipeline leaves it for the
    next chunk, after a round of pp micro-batches, and not after each of them."""
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
