"""What of a plan torchtitan can do, and the numbers it is told."""

from __future__ import annotations

from typing import Any

from planner.export.job import Job
from planner.export.overlap import refuse_exposed_gradients, refuse_overlap
from planner.export.refusal import CannotExport
from planner.export.torchtitan_model import Flavor

TARGET = "torchtitan"
RING = {"llama3", "qwen3"}
"""Models that 0.2.2 runs with context parallelism; it cannot split the FlexAttention of DeepSeek's."""
SHARDED_GRADIENTS, WHOLE = 2, 3
"""ZeRO 3 frees weights after the forward pass."""
PER_OP = ("per_op",)
SCHEDULES = {False: "1F1B", True: "Interleaved1F1B"}
EAGER_LOSS = "torchtitan"
"""The profile of torchtitan of 2024, whose loss is not compiled; with all others it is."""


def fits(job: Job, flavor: Flavor) -> None:
    """Raises `CannotExport` for the first feature that one of the two releases has not."""
    d = job.decisions
    if d.precision != "bf16":
        raise CannotExport(TARGET, "precision", d.precision, "its float8 leaves experts and the head in BF16")
    if d.tp > 1 and not d.sequence_parallel:
        raise CannotExport(
            TARGET, "tensor parallelism without sequence parallelism, tp =", d.tp, "0.2.2 always has both"
        )
    if d.cp > 1 and flavor.module not in RING:
        raise CannotExport(TARGET, "cp =", d.cp, f"0.2.2 has no context parallelism for {flavor.module}")
    if d.cp * d.tp > 1 and job.seq_len % (d.tp * (2 * d.cp if d.cp > 1 else 1)):
        raise CannotExport(TARGET, "sequences of", job.seq_len, "tp*2*cp must divide them")
    _sharding(job)
    _experts(job)
    activation_checkpoint(job)
    refuse_overlap(job, TARGET, "pp_overlap", "ep_overlap")
    refuse_exposed_gradients(job, TARGET)


def _sharding(job: Job) -> None:
    """FSDP2 under a pipeline accumulates whole gradients and reduces them at the last micro-batch: ZeRO 1.

    Without one it reduces every micro-batch: ZeRO 2, or 3 if weights are freed after the forward pass.
    """
    d = job.decisions
    if d.zero == 0 and job.replicas > 1 and (d.tp * d.pp * d.cp > 1 or job.architecture.moe):
        raise CannotExport(
            TARGET,
            "ZeRO 0 with other parallelism, dp =",
            d.dp,
            "its replication (DDP) is for plain data parallelism",
        )
    if job.replicas == 1 and d.num_gpus > 1:
        raise CannotExport(
            TARGET, "dp*cp =", 1, "0.2.2 keeps FP32 weights where FSDP has nothing to shard over"
        )
    if d.zero == 1 and d.pp == 1:
        why = "without a pipeline it shards gradients as they are reduced, which is ZeRO 2"
        raise CannotExport(TARGET, "ZeRO", d.zero, why)
    if d.zero == SHARDED_GRADIENTS and d.pp > 1:
        why = "under a pipeline gradients are whole until the last micro-batch, which is ZeRO 1"
        raise CannotExport(TARGET, "a pipeline with ZeRO", d.zero, why)


def _experts(job: Job) -> None:
    """0.3.0 has no tensor parallelism inside experts; with ep = 1 0.2.2 splits them like everything else."""
    d = job.decisions
    if job.architecture.moe is None:
        return
    if d.etp > 1:
        raise CannotExport(TARGET, "etp =", d.etp, "0.3.0 keeps experts whole")
    if d.ep % d.tp:
        raise CannotExport(
            TARGET, "ep =", d.ep, f"it must be a multiple of tp = {d.tp}, whose ranks it takes"
        )


def activation_checkpoint(job: Job) -> dict[str, Any]:
    """none, full for every layer, or its own choice by operation. Raises `CannotExport`."""
    d = job.decisions
    if d.recompute == "none":
        return {"mode": "none"}
    if job.recomputes_all:
        return {"mode": "full"}
    if d.recompute == "full":
        again, layers = sum(job.recomputed), sum(job.layers)
        raise CannotExport(TARGET, "full recompute of", f"{again} of {layers} layers", "it is all or none")
    if d.recompute_modules != PER_OP:
        names = ", ".join(d.recompute_modules)
        raise CannotExport(TARGET, "recompute of", names, "it chooses operations, not modules")
    return {"mode": "selective", "selective_ac_option": "op"}


def training(job: Job) -> dict[str, Any]:
    """A pipeline takes all micro-batches of a step at once, else they are accumulated one by one."""
    d = job.decisions
    return {
        "local_batch_size": d.micro_batch * (d.num_microbatches if d.pp > 1 else 1),
        "global_batch_size": d.global_batch,
        "seq_len": job.seq_len,
        "steps": job.steps,
    }


def compiled(job: Job, *, old: bool) -> dict[str, Any]:
    """Block by block, as torchtitan's profiles were measured; 0.3.0 asks here for asynchronous TP.

    Asynchronous TP needs the model compiled, which it is: collectives are split and run beside GEMMs.
    """
    parts = ["model"] if job.stack.name == EAGER_LOSS else ["model", "loss"]
    options: dict[str, Any] = {"enable": True, "components": parts}
    return options if old else options | {"enable_async_tensor_parallel": job.decisions.tp_overlap}


def parallelism(job: Job, *, old: bool) -> dict[str, Any]:
    """Degrees, resharding and the split; `old` is 0.2.2, which also has experts' own tensor parallelism."""
    d = job.decisions
    replicated = d.zero == 0
    options: dict[str, Any] = {
        "data_parallel_replicate_degree": d.dp if replicated else job.instances,
        "data_parallel_shard_degree": 1 if replicated else d.dp // job.instances,
        "fsdp_reshard_after_forward": "always" if d.zero == WHOLE else "never",
        "tensor_parallel_degree": d.tp,
        "pipeline_parallel_degree": d.pp,
        "context_parallel_degree": d.cp,
        "expert_parallel_degree": d.ep,
    }
    if old:
        options["expert_tensor_parallel_degree"] = d.etp
        options["enable_async_tensor_parallel"] = d.tp_overlap
    else:
        options["enable_sequence_parallel"] = d.tp > 1
    if d.cp > 1:
        # 0.3.0 attends with FlexAttention, whose blocks only this balancer splits.
        options |= (
            {"context_parallel_rotate_method": "alltoall"}
            if old
            else {"context_parallel_load_balancer": "ptrr"}
        )
    if d.pp > 1:
        options |= {
            "pipeline_parallel_schedule": SCHEDULES[d.vpp > 1],
            "pipeline_parallel_microbatch_size": d.micro_batch,
            "module_fqns_per_model_part": modules(job.layers, "output" if old else "lm_head"),
        }
    return options


def modules(layers: list[int], head: str) -> list[list[str]]:
    """Names of the modules of each virtual stage."""
    parts: list[list[str]] = []
    start = 0
    for held in layers:
        parts.append([f"layers.{i}" for i in range(start, start + held)])
        start += held
    parts[0].insert(0, "tok_embeddings")
    parts[-1] += ["norm", head]
    return parts
