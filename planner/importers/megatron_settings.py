"""Precision, sharding, recompute, experts and overlap of a Megatron-LM command line."""

from __future__ import annotations

from typing import Any

from costmodel.stack import load_stack
from planner.importers.options import Options

BF16_GRADIENTS = "megatron-bridge"
"""The profile that was fitted on runs with BF16 main gradients."""
GRADIENT_FIELDS = ("memory.gradient_bytes", "data_parallel.gradient_bytes", "gemm.accumulate_bytes")
SHARDED_GRADIENTS = 2
SHARDING = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
FP8 = {"tensorwise": "fp8-cs", "delayed": "fp8", "blockwise": "fp8", "mxfp8": "mxfp8", "custom": "fp8"}
BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}


def zero_of(options: Options) -> int:
    """ZeRO stage of the distributed optimizer, Megatron-FSDP or PyTorch's FSDP2."""
    if options.has("use-torch-fsdp2"):
        return 3
    if options.has("use-megatron-fsdp"):
        return SHARDING.get(options.text("data-parallel-sharding-strategy", "optim_grads_params") or "", 3)
    return int(options.has("use-distributed-optimizer"))


def precision_of(options: Options) -> str:
    """The precision of matrix products in the names of run tables."""
    if options.has("fp4-format"):
        return "nvfp4"
    if options.has("fp8-format"):
        return FP8.get(options.text("fp8-recipe", "delayed") or "", "fp8")
    return "fp16" if options.has("fp16") else "bf16"


def flash_of(options: Options) -> bool:
    """Fused attention: the default of Transformer Engine, an option of the local implementation."""
    backend = options.text("attention-backend", "auto")
    if backend in ("unfused", "local"):
        return False
    return (
        options.text("transformer-impl") != "local"
        or options.has("use-flash-attn")
        or backend in ("flash", "fused")
    )


def graphs_of(options: Options) -> str:
    """What CUDA graphs cover."""
    implementation = options.text("cuda-graph-impl", "none")
    if options.has("enable-cuda-graph") or options.has("external-cuda-graph"):
        implementation = "local"
    if implementation == "none":
        return "none"
    modules = options.all("cuda-graph-modules") + options.all("cuda-graph-scope")
    if not modules or set(modules) & {"full", "full_iteration"} or implementation == "full_iteration":
        return "full"
    return "attention_router" if "attn" in modules else "router"


def recompute_of(options: Options, pp: int, warnings: list[str]) -> dict[str, Any]:
    """What is recomputed, as Megatron-LM takes contradicting options."""
    granularity = (
        "selective" if options.has("recompute-activations") else options.text("recompute-granularity")
    )
    if options.has("moe-layer-recompute") and granularity is None:
        return {"recompute": "selective", "recompute_detail": "modules: moe"}
    if granularity == "selective":
        modules = [each for text in options.all("recompute-modules") for each in text.split(",") if each]
        return {
            "recompute": "selective",
            "recompute_detail": f"modules: {', '.join(modules or ['core_attn'])}",
        }
    if granularity != "full":
        return {"recompute": "none"}
    count = options.whole("recompute-num-layers", 1) or 1
    if options.text("recompute-method") == "block":
        stage = "virtual stage" if pp > 1 else "stage"
        return {
            "recompute": "partial-full",
            "recompute_detail": f"block of {count} layers per virtual stage ({stage})",
        }
    if count > 1:
        warnings.append(
            f"recompute-num-layers: {count} layers keep one input between them; priced as one input a layer"
        )
    return {"recompute": "full"}


def expert_facts(options: Options, model: dict[str, Any] | None, tp: int) -> dict[str, Any]:
    """Expert parallelism, dispatch and routing."""
    if not model or not model.get("moe"):
        return {}
    dispatcher = options.text("moe-token-dispatcher-type", "allgather")
    if dispatcher == "flex" or options.has("moe-enable-deepep"):
        backend = options.text("moe-flex-dispatcher-backend", "deepep")
        dispatcher = "hybridep" if backend == "hybridep" else "deepep"
    routing = None
    if options.number("moe-expert-capacity-factor") is not None:
        routing = "capacity"
    elif options.has("moe-router-force-load-balancing"):
        routing = "balanced"
    elif options.all("moe-router-load-balancing-type") == ["none"] and not options.has(
        "moe-router-enable-expert-bias"
    ):
        routing = "natural"
    return {
        "ep": options.whole("expert-model-parallel-size", 1, "ep") or 1,
        "etp": options.whole("expert-tensor-parallel-size", key="etp") or tp,
        "dispatcher": "alltoall" if dispatcher == "allgather" else dispatcher,
        "ep_overlap": options.has("overlap-moe-expert-parallel-comm"),
        "permute_fusion": options.has("moe-permute-fusion"),
        "routing": routing,
    }


def overlap_of(options: Options, model: dict[str, Any] | None, zero: int, vpp: int) -> dict[str, Any]:
    """Overlap of tensor-, data- and pipeline-parallel traffic; Megatron-FSDP overlaps gradients in any case.

    Latent attention switches user buffers off, of whose linears they know none.
    """
    latent = bool(model and model.get("mla"))
    return {
        "tp_overlap": options.has("tp-comm-overlap") and not latent,
        "dp_overlap": options.has("overlap-grad-reduce") or zero >= SHARDED_GRADIENTS,
        "pp_overlap": not options.has("no-overlap-p2p-communication") if vpp > 1 else None,
    }


def settings_of(options: Options, written: dict[str, Any]) -> dict[str, Any]:
    """Fields of the software profile that the options change."""
    settings: dict[str, Any] = {}
    if options.has("grad-reduce-in-bf16") or options.text("main-grads-dtype") == "bf16":
        settings |= {path: field_of(BF16_GRADIENTS, path) for path in GRADIENT_FIELDS}
    if options.has("fp8-param-gather"):
        for path in ("memory.fp8_weight_bytes", "memory.fp8_weight_bytes_blackwell"):
            settings[path] = field_of(BF16_GRADIENTS, path)
    if written["zero_stage"] == 1 and written["dp_overlap"] and not options.has("overlap-param-gather"):
        settings["data_parallel.gather_window"] = 0.0
    if (options.number("hidden-dropout", 0.1) or 0) > 0:
        settings["memory.dropout"] = True
    if options.has("use-precision-aware-optimizer"):
        names = ("main-params-dtype", "exp-avg-dtype", "exp-avg-sq-dtype")
        settings["memory.optimizer_bytes"] = float(
            sum(BYTES[options.text(name, "fp32") or "fp32"] for name in names)
        )
    return settings


def field_of(profile: str, path: str) -> Any:
    """A number of a software profile."""
    part: Any = load_stack(profile)
    for name in path.split("."):
        part = getattr(part, name)
    return part
