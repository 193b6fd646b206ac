"""DeepSpeed: its JSON, with a Hugging Face model, or Megatron-DeepSpeed where the plan splits the model."""

from __future__ import annotations

import json
from typing import Any

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
from planner.export.megatron_deepspeed import megatron_deepspeed
from planner.export.overlap import refuse_overlap
from planner.export.refusal import CannotExport
from planner.export.shell import HERE, Variable, array, required, script, summary, torchrun
from planner.switches import TRAFFIC

VERSION = "DeepSpeed 0.19 with a script on the Hugging Face Trainer"
DTYPES = {4: "fp32", 2: "bf16"}


def deepspeed(job: Job) -> dict[str, str]:
    """`ds_config.json`, the model's `config.json`, `launch.sh`. Raises `CannotExport`."""
    d = job.decisions
    if d.precision != "bf16":
        raise CannotExport("deepspeed", "precision", d.precision, "its JSON has bf16 and fp16")
    shared_by_all(job, "deepspeed")
    rest = megatron_deepspeed(job) if d.tp > 1 or d.pp > 1 else hugging_face(job)
    refuse_overlap(job, "deepspeed", "tp_overlap", "pp_overlap", "ep_overlap")
    if d.dp_overlap and (d.zero == 0 or d.pp > 1):
        # PipelineModule switches it off, and it is the optimizers of ZeRO that have it.
        why = "gradients overlap with ZeRO 1 to 3, and not under a pipeline"
        raise CannotExport("deepspeed", "overlap of", TRAFFIC["dp_overlap"], why)
    return {"ds_config.json": json.dumps(ds_config(job), indent=2) + "\n"} | rest


def hugging_face(job: Job) -> dict[str, str]:
    """`config.json` and `launch.sh` of plans that leave the model whole. Raises `CannotExport`."""
    why = "Ulysses and expert parallelism of DeepSpeed are calls in the training code, not keys"
    only_data_parallel(job, "deepspeed", why, ("cp", "ep", "etp"))
    return {"config.json": config_json(job, "deepspeed"), "launch.sh": launch(job)}


def ds_config(job: Job) -> dict[str, Any]:
    """Batch sizes, precision and ZeRO; gradients in the bytes the plan was priced with."""
    d = job.decisions
    dtype = DTYPES[round(job.stack.memory.gradient_bytes)]
    zero: dict[str, Any] = {"stage": d.zero}
    if d.zero:
        zero |= {"overlap_comm": d.dp_overlap, "contiguous_gradients": True}
    return {
        "train_batch_size": d.global_batch,
        "train_micro_batch_size_per_gpu": d.micro_batch,
        "gradient_accumulation_steps": d.num_microbatches,
        "bf16": {"enabled": True},
        "data_types": {"grad_accum_dtype": dtype},
        "communication_data_type": dtype,
        "zero_optimization": zero,
    }


def launch(job: Job) -> str:
    """Ranks are started by torchrun, so that no host file or SSH is needed."""
    options = [("--deepspeed", Variable("${HERE}/ds_config.json")), *trainer_options(job)]
    if trains_whole_layers(job, "deepspeed"):
        options.append(("--gradient_checkpointing",))
    command = f'exec torchrun "${{TORCHRUN_ARGS[@]}}" {TRAINER}'
    return script(
        summary(job, VERSION),
        required(NEEDED),
        HERE,
        torchrun(job),
        array("RUN_ARGS", options),
        WORDS,
        command,
    )
