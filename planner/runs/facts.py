"""The keys of a run in a runs file. Unknown keys are ignored: such files carry provenance as well."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt

from costmodel.memory.profile import Figure

Dispatcher = Literal["alltoall", "deepep", "hybridep"]
Graphs = Literal["none", "router", "attention_router", "full"]
Routing = Literal["balanced", "natural", "capacity"]
Schedule = Literal["1f1b", "interleaved", "zb-1p", "zb-2p", "zb-v", "dualpipe", "dualpipev"]
Task = Literal["pretrain", "sft", "lora"]
Zero = Literal[0, 1, 2, 3]


class RunFacts(BaseModel):
    """One run as it is written. What is missing or null gets a default that the estimate warns about."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    id: str | None = None
    task: Task = "pretrain"
    model: str | dict[str, Any]
    """A model card's name, a path to a config.json beside the runs file, or the shapes with a `name`."""
    seq_len: PositiveInt
    global_batch: PositiveInt
    """Sequences a step."""
    micro_batch: PositiveInt | None = None
    precision: str = "bf16"

    gpu: str
    gpu_variant: str | None = None
    """Memory size or form where the GPU's name has several: H100 96GB, A100-SXM4-40GB."""
    num_gpus: PositiveInt
    gpus_per_node: PositiveInt | None = None
    calibration: str | dict[str, Any] | None = None
    """What the cluster was measured to reach: a file of `planner calibrate`, beside the runs file."""
    nvlink_domain: PositiveInt | None = None
    interconnect: str | None = None
    """NICs of a node: `8x400 Gbit/s`, `3200 Gb/s per node`, `400 Gb/s per GPU`."""

    tp: PositiveInt = 1
    cp: PositiveInt = 1
    pp: PositiveInt = 1
    vpp: PositiveInt | None = None
    dp: PositiveInt | None = None
    ep: PositiveInt | None = None
    etp: PositiveInt | None = None
    zero_stage: Zero | None = None
    fsdp_shard: PositiveInt | None = None
    """Ranks over which ZeRO shards, where that is fewer than all data-parallel ones."""
    sequence_parallel: bool | None = None

    recompute: Literal["none", "selective", "full", "partial-full"] | None = None
    recompute_detail: str | None = None
    """`modules: core_attn, mlp` or `block of 5 layers per virtual stage`."""
    flash_attention: bool | None = None
    offload: str | None = None

    framework: str | None = None
    """Who trains: Megatron-Bridge, NeMo, Megatron-LM 0.14, torchtitan, llm-foundry, InternEvo, ..."""
    software: str | None = None
    """Version or date of the framework, when `framework` does not hold it: `NeMo 24.07`."""

    dispatcher: Dispatcher | None = None
    """How MoE tokens travel."""
    cuda_graphs: Graphs | None = None
    """What CUDA graphs cover."""
    ep_overlap: bool | None = None
    """Dispatch and combine run behind the compute of another micro-batch."""
    tp_overlap: bool | None = None
    """Tensor-parallel collectives run behind GEMMs (user buffers, async TP)."""
    dp_overlap: bool | None = None
    """Gradients are reduced and weights gathered behind compute."""
    pp_overlap: bool | None = None
    """Transfers between interleaved stages run behind compute."""
    permute_fusion: bool | None = None
    pp_layout: str | None = None
    """Megatron-Core's layout: `Et*4|(t*4|)*14tmL`."""
    embedding_slots: bool | None = None
    """Embedding and loss take the place of one layer each when layers are dealt out to stages."""
    routing: Routing | None = None
    """MoE tokens by expert: forced or learnt balance, natural, or capacity with dropped tokens."""
    fp8_params: bool | None = None
    """Weights are gathered in FP8."""
    offload_fraction: float | None = Field(default=None, ge=0, le=1)
    """Share of activations that is offloaded to the host."""
    schedule: Schedule | None = None
    profile_settings: dict[str, bool | float | str] | None = None
    """Fields of the software profile that this run has otherwise: `{data_parallel.gradient_bytes: 2}`."""
    memory_figure: Figure | None = None
    """How the run's peak memory is told: bytes allocated, reserved by the allocator, or in use on the device
    (nvidia-smi). Else as its software usually does."""
    peak_memory_note: str | None = None
    """How a measured peak was read: free text that may name the figure."""

    notes: str | None = None
    """Free text; what it says about the keys above is read where they are not given."""
    inferred: tuple[str, ...] | None = None
    assume_mfu: PositiveFloat | None = Field(default=None, le=1)
    """Take this MFU instead of predicting the step time; memory stays predicted."""
    nominal_parameters: PositiveFloat | None = None
