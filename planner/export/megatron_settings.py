"""A plan in Megatron-LM's argument names: what `megatron` writes as flags and `bridge` as fields."""

from __future__ import annotations

from planner.export.job import Job
from planner.export.layout import full_recompute, pipeline_layout
from planner.export.megatron_model import Settings, experts, model_settings
from planner.export.megatron_overlap import SHARDED_GRADIENTS, overlap
from planner.export.pools import replicas_first
from planner.export.refusal import CannotExport
from planner.narrowing import NAMEABLE

SHARDING = {2: "optim_grads", 3: "optim_grads_params"}
BF16_BYTES = 2
FP8_BYTES = 1


def settings(job: Job, target: str) -> dict[str, Settings]:
    """All of them by group. Raises `CannotExport`."""
    groups = {
        "MODEL": model_settings(job, target),
        "MOE": experts(job, target),
        "PARALLEL": parallel(job),
        "BATCH": batch(job),
        "RECOMPUTE": recompute(job, target),
        "PRECISION": precision(job, target),
        "DATA_PARALLEL": data_parallel(job, target),
        "OVERLAP": overlap(job, target),
        "LOSS": {"cross_entropy_loss_fusion": True, "cross_entropy_fusion_impl": "te"},
    }
    return {name: group for name, group in groups.items() if group}


def parallel(job: Job) -> Settings:
    """Sizes and the split into stages; dp follows from the number of ranks."""
    d = job.decisions
    sizes: Settings = {
        "tensor_model_parallel_size": d.tp,
        "pipeline_model_parallel_size": d.pp,
        "context_parallel_size": d.cp,
    }
    if d.sequence_parallel:
        sizes["sequence_parallel"] = True
    if d.cp > 1:
        sizes["cp_comm_type"] = "p2p"
    if replicas_first(job):
        sizes["use_tp_pp_dp_mapping"] = True
    if d.pp > 1 and not job.even:
        sizes["pipeline_model_parallel_layout"] = pipeline_layout(job.layers, job.architecture.mtp_layers)
    elif d.vpp > 1:
        sizes["num_virtual_stages_per_pipeline_rank"] = d.vpp
    return sizes


def batch(job: Job) -> Settings:
    """Micro-batch, global batch, and the steps that the tokens are worth."""
    d = job.decisions
    return {
        "micro_batch_size": d.micro_batch,
        "global_batch_size": d.global_batch,
        "train_iters": job.steps,
    }


def recompute(job: Job, target: str) -> Settings:
    """Granularity, and then either modules or a method with a number of layers: never both."""
    d = job.decisions
    if d.recompute == "none":
        return {}
    if d.recompute == "full":
        method, number = full_recompute(job, target)
        return {
            "recompute_granularity": "full",
            "recompute_method": method,
            "recompute_num_layers": number,
        }
    unknown = [module for module in d.recompute_modules if module not in NAMEABLE]
    if unknown:
        raise CannotExport(target, "recompute of", ", ".join(unknown), f"it knows {', '.join(NAMEABLE)}")
    missing = {
        "mla_up_proj": ("latent attention", job.architecture.mla),
        "moe_act": ("experts", job.architecture.moe),
    }
    for module, (needed, there) in missing.items():
        if module in d.recompute_modules and there is None:
            raise CannotExport(target, "recompute of", module, f"the model has no {needed}")
    return {"recompute_granularity": "selective", "recompute_modules": list(d.recompute_modules)}


def precision(job: Job, target: str) -> Settings:
    """BF16, or FP8 matrix products with current scaling of whole tensors.

    Delayed scaling, Megatron's default, cannot recompute `layernorm` or `moe_act` (TransformerConfig).
    """
    kind = job.decisions.precision
    if kind not in ("bf16", "fp8"):
        raise CannotExport(target, "precision", kind, "it writes bf16 and fp8")
    if kind == "bf16":
        return {"bf16": True}
    fp8: Settings = {"bf16": True, "fp8_format": "hybrid", "fp8_recipe": "tensorwise"}
    if job.stack.data_parallel.low_precision_parameter_bytes == FP8_BYTES:
        if not job.decisions.zero:
            why = f"the profile {job.stack.name} keeps FP8 parameters, which need sharded states"
            raise CannotExport(target, "FP8 with ZeRO", job.decisions.zero, why)
        fp8["fp8_param_gather"] = True
    return fp8


def data_parallel(job: Job, target: str) -> Settings:
    """ZeRO 1 is the distributed optimizer, 2 and 3 are Megatron-FSDP; an instance in each node, or one.

    Raises `CannotExport`.
    """
    d, settings = job.decisions, Settings()
    if d.zero >= SHARDED_GRADIENTS and d.pp > 1:
        why = "Megatron-FSDP goes with tensor, context and expert parallelism"
        raise CannotExport(target, "a pipeline with ZeRO", d.zero, why)
    if d.zero:
        settings["use_distributed_optimizer"] = True
    if job.instances > 1:
        settings["num_distributed_optimizer_instances"] = job.instances
    if d.zero >= SHARDED_GRADIENTS:
        settings |= {
            "use_megatron_fsdp": True,
            "data_parallel_sharding_strategy": SHARDING[d.zero],
            "no_gradient_accumulation_fusion": True,
            "ckpt_format": "fsdp_dtensor",
        }
    if job.stack.memory.gradient_bytes == BF16_BYTES:
        settings["grad_reduce_in_bf16"] = True
    return settings
