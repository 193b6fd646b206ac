"""nanotron: its YAML, with what the plan does not decide marked for the user."""

from __future__ import annotations

from typing import Any

import yaml

from planner.export.huggingface import common
from planner.export.job import Job, shared_by_all
from planner.export.megatron_deepspeed import PLAIN
from planner.export.overlap import refuse_exposed_gradients, refuse_overlap
from planner.export.refusal import CannotExport
from planner.export.shell import HERE, comment, required, script, summary, torchrun
from planner.switches import TRAFFIC

TARGET = "nanotron"
VERSION = "nanotron 0.4 (its LlamaForTraining; needs numpy<2)"
NEEDED = {"NANOTRON_PATH": "a checkout of nanotron"}
MARK = "SET_ME"
"""A value that nanotron's reader refuses until the user replaces it."""
FP32_BYTES = 4


def nanotron(job: Job) -> dict[str, str]:
    """`nanotron.yaml` and `launch.sh`. Raises `CannotExport`."""
    fits(job)
    head = [*summary(job, VERSION), f"Replace every {MARK}: the plan does not decide these."]
    text = comment(head) + "\n" + yaml.safe_dump(config(job), sort_keys=False)
    command = (
        'exec torchrun "${TORCHRUN_ARGS[@]}" "${NANOTRON_PATH}/run_train.py" '
        '--config-file "${HERE}/nanotron.yaml" "$@"'
    )
    launch = script(
        summary(job, VERSION),
        required(NEEDED),
        "export CUDA_DEVICE_MAX_CONNECTIONS=1",
        HERE,
        torchrun(job),
        command,
    )
    return {"nanotron.yaml": text, "launch.sh": launch}


def fits(job: Job) -> None:
    """Raises `CannotExport`."""
    a, d = job.architecture, job.decisions
    different = [
        name
        for name, usual in (PLAIN | {"norm": "rms", "gated_mlp": True}).items()
        if getattr(a, name) != usual
    ]
    if different or a.heads * a.head_dim != a.hidden:
        why = f"its Llama has no {', '.join(different) or 'head_dim: heads are hidden/heads wide'}"
        raise CannotExport(TARGET, "the model", a.name, why)
    if d.precision != "bf16":
        raise CannotExport(TARGET, "precision", d.precision, "it trains in bf16")
    shared_by_all(job, TARGET)
    if d.zero > 1:
        raise CannotExport(TARGET, "ZeRO", d.zero, "it has stages 0 and 1")
    if d.vpp > 1:
        raise CannotExport(TARGET, "vpp =", d.vpp, "its 1F1B has no virtual stages")
    if d.cp > 1:
        raise CannotExport(TARGET, "cp =", d.cp, "its Llama does not split sequences over ranks")
    if not job.even:
        layers = ", ".join(map(str, job.layers))
        raise CannotExport(TARGET, "stages of", f"{layers} layers", "it balances them itself")
    if d.recompute != "none" and not job.recomputes_all:
        what = ", ".join(d.recompute_modules) or f"{sum(job.recomputed)} of {sum(job.layers)} layers"
        raise CannotExport(TARGET, "recompute of", what, "recompute_layer is all layers or none")
    refuse_overlap(job, TARGET, "pp_overlap", "ep_overlap")
    refuse_exposed_gradients(job, TARGET)
    if d.tp_overlap and not d.sequence_parallel:
        raise CannotExport(TARGET, "overlap of", TRAFFIC["tp_overlap"], "it needs tp_mode REDUCE_SCATTER")


def config(job: Job) -> dict[str, Any]:
    """All sections that nanotron requires."""
    d = job.decisions
    return {
        "general": {"project": job.name, "run": "%date_%jobid", "seed": MARK},
        "checkpoints": {
            "checkpoints_path": MARK,
            "resume_checkpoint_path": None,
            "checkpoint_interval": MARK,
        },
        "parallelism": {
            "dp": d.dp,
            "tp": d.tp,
            "pp": d.pp,
            "pp_engine": "1f1b",
            "tp_mode": "REDUCE_SCATTER" if d.sequence_parallel else "ALL_REDUCE",
            "tp_linear_async_communication": d.tp_overlap,
            "recompute_layer": job.recomputes_all,
            "expert_parallel_size": 1,
            "context_parallel_size": 1,
        },
        "model": {
            "dtype": "bfloat16",
            "make_vocab_size_divisible_by": job.stack.memory.vocab_multiple,
            "init_method": {"std": MARK},
            "model_config": llama(job),
        },
        "tokenizer": {"tokenizer_name_or_path": MARK},
        "tokens": {
            "sequence_length": job.seq_len,
            "micro_batch_size": d.micro_batch,
            "batch_accumulation_per_replica": d.num_microbatches,
            "train_steps": job.steps,
            "val_check_interval": -1,
        },
        "optimizer": optimizer(job),
        "data_stages": [
            {
                "name": "pretraining",
                "start_training_step": 1,
                "data": {"dataset": {"dataset_folder": MARK}, "seed": MARK, "num_loading_workers": 1},
            }
        ],
    }


def llama(job: Job) -> dict[str, Any]:
    """Shapes in Hugging Face's names."""
    shared = common(job)
    for unknown in ("head_dim", "torch_dtype"):
        del shared[unknown]
    return {"is_llama_config": True} | shared | {"rope_theta": MARK}


def optimizer(job: Job) -> dict[str, Any]:
    """AdamW; sharded over replicas with ZeRO 1."""
    return {
        "zero_stage": job.decisions.zero,
        "accumulate_grad_in_fp32": job.stack.memory.gradient_bytes == FP32_BYTES,
        "clip_grad": MARK,
        "weight_decay": MARK,
        "optimizer_factory": {
            "name": "adamW",
            "adam_beta1": MARK,
            "adam_beta2": MARK,
            "adam_eps": MARK,
            "torch_adam_is_fused": True,
        },
        "learning_rate_scheduler": {
            "learning_rate": MARK,
            "min_decay_lr": MARK,
            "lr_warmup_steps": MARK,
            "lr_warmup_style": MARK,
            "lr_decay_style": MARK,
        },
    }
