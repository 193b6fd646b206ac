"""Accelerate: its YAML for FSDP2 (or plain data parallelism) and a Hugging Face model."""

from __future__ import annotations

from typing import Any

import yaml

from planner.export.huggingface import (
    NEEDED,
    TRAINER,
    WORDS,
    config_json,
    only_data_parallel,
    trainer_options,
    trains_whole_layers,
)
from planner.export.job import Job, shared_by_all
from planner.export.overlap import refuse_exposed_gradients, refuse_overlap
from planner.export.refusal import CannotExport
from planner.export.shell import HERE, Variable, array, comment, required, script, summary

TARGET = "accelerate"
VERSION = "Accelerate 1.15 (FSDP2)"
PARTIAL, WHOLE = 2, 3
SYNC_EACH_BATCH = '{"gradient_accumulation_kwargs": {"sync_each_batch": true}}'
WHY = "it shards over data-parallel ranks; pipeline and expert parallelism are not among its settings"


def accelerate(job: Job) -> dict[str, str]:
    """`accelerate.yaml`, the model's `config.json`, `launch.sh`. Raises `CannotExport`."""
    fits(job)
    text = comment(summary(job, VERSION)) + "\n" + yaml.safe_dump(config(job), sort_keys=False)
    return {
        "accelerate.yaml": text,
        "config.json": config_json(job, TARGET),
        "launch.sh": launch(job),
    }


def fits(job: Job) -> None:
    """Raises `CannotExport`."""
    d = job.decisions
    shared_by_all(job, TARGET)
    only_data_parallel(job, TARGET, WHY, ("pp", "ep", "etp"))
    if d.precision != "bf16":
        raise CannotExport(
            TARGET, "precision", d.precision, "FP8 there depends on a recipe the plan does not know"
        )
    if d.tp > 1 and d.sequence_parallel:
        raise CannotExport(
            TARGET, "sequence parallelism, tp =", d.tp, "its tensor parallelism replicates norms"
        )
    if d.zero == 0 and d.tp * d.cp > 1:
        raise CannotExport(
            TARGET, "ZeRO 0 with tp*cp =", d.tp * d.cp, "it replicates only in plain data parallelism"
        )
    if d.zero == 1 and d.num_microbatches > 1:
        raise CannotExport(TARGET, "ZeRO", 1, "FSDP2 shards gradients as well, which is ZeRO 2")
    refuse_overlap(job, TARGET, "tp_overlap")
    refuse_exposed_gradients(job, TARGET)


def config(job: Job) -> dict[str, Any]:
    """What `accelerate config` would write."""
    d = job.decisions
    head = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "FSDP" if d.zero else "MULTI_GPU",
        "mixed_precision": "bf16",
        "num_machines": d.nodes,
        "num_processes": d.num_gpus,
        "machine_rank": 0,
        "rdzv_backend": "c10d",
        "main_training_function": "main",
    }
    return head | (fsdp(job) if d.zero else {})


def fsdp(job: Job) -> dict[str, Any]:
    """FSDP2: weights are freed after the forward pass (ZeRO 3) or kept (ZeRO 2)."""
    d = job.decisions
    sizes = {"dp_replicate_size": 1, "dp_shard_size": d.dp, "tp_size": d.tp, "cp_size": d.cp}
    parallel: dict[str, Any] = {f"parallelism_config_{name}": size for name, size in sizes.items()}
    if d.cp > 1:
        parallel |= {
            "parallelism_config_cp_backend": "torch",
            "parallelism_config_cp_comm_strategy": "alltoall",
        }
    return {
        "fsdp_config": {
            "fsdp_version": 2,
            "fsdp_reshard_after_forward": d.zero == WHOLE,
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_state_dict_type": "SHARDED_STATE_DICT",
            "fsdp_activation_checkpointing": trains_whole_layers(job, TARGET),
            "fsdp_offload_params": False,
            "fsdp_cpu_ram_efficient_loading": False,
        },
        "parallelism_config": parallel,
    }


def launch(job: Job) -> str:
    """One `accelerate launch` a node, each with its rank."""
    d = job.decisions
    address = "${MASTER_ADDR:-localhost}" if d.nodes == 1 else "${MASTER_ADDR:?name of one node}"
    start = array(
        "LAUNCH_ARGS",
        [
            ("--config_file", Variable("${HERE}/accelerate.yaml")),
            ("--machine_rank", Variable("${NODE_RANK:-${SLURM_NODEID:-0}}")),
            ("--main_process_ip", Variable(address)),
            ("--main_process_port", Variable("${MASTER_PORT:-29500}")),
        ],
    )
    options = trainer_options(job)
    if d.zero >= PARTIAL:
        # Otherwise the Trainer would keep whole gradients until the last micro-batch.
        options.append(("--accelerator_config", SYNC_EACH_BATCH))
    if d.zero == 0 and trains_whole_layers(job, TARGET):
        options.append(("--gradient_checkpointing",))
    command = f'exec accelerate launch "${{LAUNCH_ARGS[@]}}" {TRAINER}'
    return script(
        summary(job, VERSION), required(NEEDED), HERE, start, array("RUN_ARGS", options), WORDS, command
    )
