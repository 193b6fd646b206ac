"""The model as a Hugging Face `config.json`, for targets that train `transformers` models."""

from __future__ import annotations

import json
from typing import Any

from costmodel.architecture import Architecture
from planner.export.job import Job
from planner.export.refusal import CannotExport
from planner.export.shell import Argument, Variable

NEEDED = {
    "TRAIN_SCRIPT": "a script with the TrainingArguments of transformers, such as its run_clm.py",
    "TRAIN_ARGS": "its other arguments: data, tokenizer, output folder",
    "LR": "peak learning rate",
}
WORDS = 'read -r -a TRAIN_WORDS <<< "${TRAIN_ARGS}"'
TRAINER = '"${TRAIN_SCRIPT}" "${RUN_ARGS[@]}" "${TRAIN_WORDS[@]}" "$@"'
"""The script with the plan's arguments, then the user's."""

PLAIN = {
    "gated_mlp": True,
    "norm": "rms",
    "norms_per_layer": 2,
    "output_bias": False,
    "mlp_bias": False,
    "attention_sinks": False,
    "learned_positions": 0,
    "mla": None,
    "mtp_layers": 0,
}
"""What Llama, Mistral's and Qwen's blocks have in common."""


def config_json(job: Job, target: str) -> str:
    """`config.json`, from which `AutoModelForCausalLM.from_config` builds the model with random weights."""
    return json.dumps(config(job, target), indent=2) + "\n"


def config(job: Job, target: str) -> dict[str, Any]:
    """Keys of transformers' Llama, Mistral, Qwen2, Qwen3, Mixtral and Qwen3-MoE. Raises `CannotExport`."""
    a = job.architecture
    different = [name for name, usual in PLAIN.items() if getattr(a, name) != usual]
    windowed = a.sliding_layers > 0 and a.sliding_window is not None
    if windowed and (a.sliding_layers < a.layers or a.chunked_window or a.moe or a.qk_norm or a.qkv_bias):
        different.append("sliding_layers")
    if a.qkv_bias and (a.qk_norm or a.moe or a.heads * a.head_dim != a.hidden):
        different.append("qkv_bias")
    if different:
        raise CannotExport(
            target, "the model", a.name, f"no config.json is written for {', '.join(different)}"
        )
    if a.moe is not None:
        return common(job) | experts(a, target)
    kind = "qwen3" if a.qk_norm else "qwen2" if a.qkv_bias else "mistral" if windowed else "llama"
    window = {"sliding_window": a.sliding_window} if windowed else {}
    return {"model_type": kind, "architectures": [f"{kind.capitalize()}ForCausalLM"]} | common(job) | window


def common(job: Job) -> dict[str, Any]:
    """Shapes that all of them spell alike. The rotary base is the user's (`rope_theta`)."""
    a = job.architecture
    return {
        "vocab_size": a.vocab,
        "hidden_size": a.hidden,
        "intermediate_size": a.ffn,
        "num_hidden_layers": a.layers,
        "num_attention_heads": a.heads,
        "num_key_value_heads": a.kv_heads,
        "head_dim": a.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": max(a.max_seq_len or 0, job.seq_len),
        "tie_word_embeddings": a.tied_embeddings,
        "torch_dtype": "bfloat16",
        "use_cache": False,
    }


def experts(a: Architecture, target: str) -> dict[str, Any]:
    """Mixtral where every layer is MoE, Qwen3-MoE where queries and keys are normalised."""
    moe = a.moe
    assert moe is not None
    if moe.shared_expert_ffn:
        raise CannotExport(target, "the model", a.name, "neither Mixtral nor Qwen3-MoE has shared experts")
    if not a.qk_norm:
        if a.kinds != ("moe",):
            raise CannotExport(target, "the model", a.name, "Mixtral has experts in every layer")
        return {
            "model_type": "mixtral",
            "architectures": ["MixtralForCausalLM"],
            "intermediate_size": moe.moe_ffn,
            "num_local_experts": moe.experts,
            "num_experts_per_tok": moe.top_k,
        }
    return {
        "model_type": "qwen3_moe",
        "architectures": ["Qwen3MoeForCausalLM"],
        "moe_intermediate_size": moe.moe_ffn,
        "num_experts": moe.experts,
        "num_experts_per_tok": moe.top_k,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [i for i, kind in enumerate(a.pattern()) if kind == "dense"],
        "norm_topk_prob": True,
    }


def trains_whole_layers(job: Job, target: str) -> bool:
    """Whether all layers are checkpointed, the one thing a `gradient_checkpointing` switch can say."""
    d = job.decisions
    if d.recompute == "none":
        return False
    if not job.recomputes_all:
        what = ", ".join(d.recompute_modules) or f"{sum(job.recomputed)} of {sum(job.layers)} layers"
        raise CannotExport(target, "recompute of", what, "gradient checkpointing is all layers or none")
    return True


def only_data_parallel(job: Job, target: str, why: str, sizes: tuple[str, ...]) -> None:
    """Raises `CannotExport` for the first of the named sizes that is above 1."""
    for name in sizes:
        if getattr(job.decisions, name) > 1:
            raise CannotExport(target, f"{name} =", getattr(job.decisions, name), why)


def trainer_options(job: Job) -> list[tuple[Argument, ...]]:
    """Arguments of transformers' Trainer that the plan decides."""
    d = job.decisions
    return [
        ("--config_name", Variable("${HERE}")),
        ("--do_train",),
        ("--bf16",),
        ("--block_size", str(job.seq_len)),
        ("--per_device_train_batch_size", str(d.micro_batch)),
        ("--gradient_accumulation_steps", str(d.num_microbatches)),
        ("--max_steps", str(job.steps)),
        ("--learning_rate", Variable("${LR}")),
    ]
