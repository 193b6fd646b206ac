"""Megatron-DeepSpeed: the command line for plans that split the model over GPUs."""

from __future__ import annotations

from planner.export.huggingface import only_data_parallel
from planner.export.job import Job
from planner.export.refusal import CannotExport
from planner.export.shell import HERE, Argument, Variable, array, required, script, summary, torchrun
from planner.export.undecided import OPTIONS, ROTARY, UNDECIDED

TARGET = "deepspeed"
VERSION = "Megatron-DeepSpeed (github.com/deepspeedai/Megatron-DeepSpeed, main of 2025) with DeepSpeed 0.19"
NEEDED = {"MEGATRON_DEEPSPEED_PATH": "a checkout of Megatron-DeepSpeed"} | UNDECIDED | ROTARY
PLAIN = {
    "moe": None,
    "mla": None,
    "qk_norm": False,
    "attention_sinks": False,
    "sliding_layers": 0,
    "learned_positions": 0,
    "norms_per_layer": 2,
    "mtp_layers": 0,
    "qkv_bias": False,
    "output_bias": False,
    "mlp_bias": False,
}
CORE_ATTENTION = ("core_attn",)


def megatron_deepspeed(job: Job) -> dict[str, str]:
    """`launch.sh`, which reads `ds_config.json` beside it. Raises `CannotExport`."""
    fits(job)
    command = [
        'exec torchrun "${TORCHRUN_ARGS[@]}" "${MEGATRON_DEEPSPEED_PATH}/pretrain_gpt.py"',
        '"${MODEL_ARGS[@]}" "${PARALLEL_ARGS[@]}" "${RUN_ARGS[@]}" "$@"',
    ]
    parts = [array("MODEL_ARGS", model(job)), array("PARALLEL_ARGS", parallel(job)), array("RUN_ARGS", RUN)]
    text = script(
        summary(job, VERSION),
        required(NEEDED),
        "export CUDA_DEVICE_MAX_CONNECTIONS=1",
        HERE,
        torchrun(job),
        *parts,
        " \\\n    ".join(command),
    )
    return {"launch.sh": text}


def fits(job: Job) -> None:
    """Raises `CannotExport` for what its code or its pipeline engine has not."""
    a = job.architecture
    different = [name for name, usual in PLAIN.items() if getattr(a, name) != usual]
    if different:
        why = f"its GPT has no {', '.join(different)}"
        raise CannotExport(TARGET, "the model", a.name, why)
    only_data_parallel(job, TARGET, "its sequence parallelism (Ulysses) is another algorithm", ("cp",))
    only_data_parallel(job, TARGET, "its pipeline engine has no virtual stages", ("vpp",))
    if job.decisions.pp > 1 and job.decisions.zero > 1:
        why = "its pipeline engine stops with gradients sharded over replicas"
        raise CannotExport(TARGET, "a pipeline with ZeRO", job.decisions.zero, why)
    if not job.even:
        layers = ", ".join(map(str, job.layers))
        raise CannotExport(
            TARGET, "stages of", f"{layers} layers", "it balances layers itself, so they must be even"
        )


def model(job: Job) -> list[tuple[Argument, ...]]:
    """Shapes."""
    a = job.architecture
    options: list[tuple[Argument, ...]] = [
        ("--num-layers", str(a.layers)),
        ("--hidden-size", str(a.hidden)),
        ("--ffn-hidden-size", str(a.ffn)),
        ("--num-attention-heads", str(a.heads)),
        ("--num-key-value-heads", str(a.kv_heads)),
        ("--kv-channels", str(a.head_dim)),
        ("--seq-length", str(job.seq_len)),
        ("--max-position-embeddings", str(job.seq_len)),
        ("--vocab-size", str(a.vocab)),
        ("--make-vocab-size-divisible-by", str(job.stack.memory.vocab_multiple)),
        ("--use-rotary-position-embeddings",),
        ("--disable-bias-linear",),
        ("--normalization", "rmsnorm" if a.norm == "rms" else "layernorm"),
        ("--attention-dropout", "0"),
        ("--hidden-dropout", "0"),
        ("--no-query-key-layer-scaling",),
        ("--use-flash-attn-v2",),
    ]
    if a.gated_mlp:
        options.append(("--swiglu",))
    if not a.tied_embeddings:
        options.append(("--untie-embeddings-and-output-weights",))
    return options


def parallel(job: Job) -> list[tuple[Argument, ...]]:
    """Sizes, batch, ZeRO and recompute. Without stages the pipeline engine is switched off."""
    d = job.decisions
    options: list[tuple[Argument, ...]] = [
        ("--tensor-model-parallel-size", str(d.tp)),
        ("--pipeline-model-parallel-size", str(d.pp)),
        ("--micro-batch-size", str(d.micro_batch)),
        ("--global-batch-size", str(d.global_batch)),
        ("--train-iters", str(job.steps)),
        ("--bf16",),
        ("--deepspeed",),
        ("--deepspeed_config", Variable("${HERE}/ds_config.json")),
        ("--zero-stage", str(d.zero)),
    ]
    if d.sequence_parallel:
        options.append(("--sequence-parallel",))
    if d.pp == 1:
        options.append(("--no-pipeline-parallel",))
    return options + recompute(job)


def recompute(job: Job) -> list[tuple[Argument, ...]]:
    """Every layer, the attention core, or nothing."""
    d = job.decisions
    if d.recompute == "none":
        return []
    if job.recomputes_all:
        return [
            ("--recompute-granularity", "full"),
            ("--recompute-method", "uniform"),
            ("--recompute-num-layers", "1"),
            ("--deepspeed-activation-checkpointing",),
        ]
    if d.recompute_modules == CORE_ATTENTION:
        return [("--recompute-granularity", "selective")]
    what = ", ".join(d.recompute_modules) or f"{sum(job.recomputed)} of {sum(job.layers)} layers"
    raise CannotExport(TARGET, "recompute of", what, "it knows every layer, and the attention core")


RUN: list[tuple[Argument, ...]] = [
    ("--tokenizer-type", "HFTokenizer"),
    ("--tokenizer-model", Variable("${TOKENIZER_MODEL}")),
    ("--data-path", Variable("${DATA_PATH}")),
    *OPTIONS,
    ("--rotary-position-embeddings-theta", Variable("${ROTARY_BASE}")),
]
"""What the plan does not decide."""
