"""What a software stack keeps in GPU memory: the numbers in which frameworks differ."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, NonNegativeFloat, PositiveFloat, PositiveInt

Figure = Literal["allocated", "reserved", "device"]
"""Bytes in tensors, of the caching allocator, or in use on the GPU."""


class MemoryProfile(BaseModel):
    """Bytes that a framework keeps a parameter, an activation element and a GPU.

    The `memory` section of a file under `costmodel/stacks/`, with the sources of its numbers. Sequence
    parallelism and the attention kernel are the stack's, because its time depends on them as well.
    Switches that default to off or zero are the habits of older or eager stacks.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    # states, bytes per local parameter
    weight_bytes: PositiveFloat
    """Weights of a 16-bit run; embedding and LM head in every precision."""
    fp8_weight_bytes: PositiveFloat
    """Weights of layers in an FP8 or FP4 run: 2 + 2 where a 16-bit copy stays beside the quantised
    one and its transpose, 2 where parameters are FP8 themselves."""
    fp8_weight_bytes_blackwell: PositiveFloat | None = None
    """The same on Blackwell, where no transpose is kept (1 with FP8 parameters)."""
    gradient_bytes: PositiveFloat
    """4 where gradients accumulate in FP32."""
    gradient_bytes_fp16: PositiveFloat | None = None
    """FP16 runs, where they differ."""
    gradient_bytes_one_replica: PositiveFloat | None = None
    """Runs with one data-parallel rank, where they differ."""
    optimizer_bytes: PositiveFloat
    """FP32 master weight and two moments: 12."""
    partition_gradient_bytes: NonNegativeFloat = 0.0
    """Gradient copy of the rank's own optimizer partition (DeepSpeed: 4)."""
    vocab_multiple: PositiveInt
    """The vocabulary is padded to a multiple of this times tp."""

    # activations, bytes per element kept for the backward pass
    norm_output_bytes: NonNegativeFloat
    """Output of a norm, which is a GEMM input: 2; an eager RMSNorm keeps FP32 copies beside it (8)."""
    fp8_input_bytes: PositiveFloat
    """GEMM inputs in an FP8 or FP4 run: 1, or 2 where they are quantised again in the backward pass."""
    gathered_inputs: bool = False
    """GEMM inputs are kept after their all-gather over sequence-parallel ranks."""
    score_bytes: NonNegativeFloat = 5.0
    """Kept for each score where attention is not fused: softmax 2, dropout output 2, mask 1."""
    score_transient_bytes: NonNegativeFloat = 8.0
    """Transient for each score in the backward pass where attention is not fused."""
    dropout: bool = False
    residuals_rebuilt: bool = False
    """Recompute of `layernorm` rebuilds the norms' inputs as well."""
    norm_inputs: bool = True
    """Norms in front of GEMMs keep their inputs. If not, their backward pass works from their outputs, which
    the GEMM keeps in any case (NVIDIA Apex, `memory_efficient` of its fused norms); recompute of `layernorm`
    needs the inputs all the same."""
    unfused_glu: bool = False
    """The gate activation's output is kept beside the product."""
    extra_bytes_sharded: NonNegativeFloat = 0.0
    """Bytes a hidden element that measurements show and no tensor explains, split over tp."""
    extra_bytes_tp: NonNegativeFloat = 0.0
    """The same, not split, and only where tp > 1."""
    moe_copies: PositiveFloat
    """Copies of the permuted tokens that the experts keep."""
    expert_imbalance: PositiveFloat
    """Tokens of the fullest expert-parallel rank over the mean, averaged over the layers that it keeps
    at once: nearer to 1 than the imbalance of any one layer."""
    checkpoint_sharded: bool = True
    """Checkpointed layer inputs are split over sequence-parallel ranks."""
    stage_output_kept: bool = False
    """A pipeline stage keeps its output for each micro-batch in flight."""

    # transients
    logit_bytes: PositiveFloat
    """Per logit of the rank at the peak: logits, their FP32 form and gradient, as far as not fused."""
    logit_bytes_tp: PositiveFloat | None = None
    """The same where tp > 1, if it differs (loss-parallel cross-entropy)."""
    dummy_wgrad_bytes: NonNegativeFloat = 0.0
    """Weight-gradient placeholder a parameter, one for each weight shape (Transformer Engine: 2)."""
    context_gather_bytes: NonNegativeFloat = 0.0
    """Per key element of the whole sequence while a layer attends, where context parallelism gathers keys
    and values of all its ranks instead of passing them round."""
    gathered_layers: NonNegativeFloat
    """Layers gathered at once under ZeRO-3: the current one and those prefetched."""
    gather_bytes: PositiveFloat
    """Per gathered parameter."""
    fp8_gather_bytes: PositiveFloat | None = None
    """The same in an FP8 or FP4 run, if it differs."""
    pipeline_gathered_bytes: NonNegativeFloat = 0.0
    """Per parameter of a stage that stays gathered between micro-batches (ZeRO-3 with pp > 1)."""

    # overhead
    figure: Figure = "allocated"
    """How peaks of this software are usually told; see `figures.yaml`."""
    fragmentation: NonNegativeFloat
    """Share of allocated bytes that the caching allocator cannot hand out."""
    fixed_bytes: NonNegativeFloat
    """CUDA context, cuBLAS workspaces, library buffers."""
    group_bytes: NonNegativeFloat
    """NCCL buffers of one communicator."""
    capacity_share: PositiveFloat
    """Share of the driver's capacity that a plan may be predicted to use."""


def is_low_precision(precision: str) -> bool:
    """Whether GEMMs run in FP8 or FP4 (`fp8`, `fp8-cs`, `mxfp8`, `nvfp4`, ...)."""
    return "fp8" in precision or "fp4" in precision
