"""Megatron-LM: a Bash script with its command line."""

from __future__ import annotations

from planner.export.job import Job
from planner.export.megatron_model import Value
from planner.export.megatron_settings import SHARDED_GRADIENTS, settings
from planner.export.shell import Argument, Variable, array, required, script, summary, torchrun
from planner.export.undecided import OPTIONS, ROTARY, UNDECIDED

VERSION = "Megatron-LM with Megatron-Core 0.20.0; every flag exists since 0.16"

NEEDED = {
    "MEGATRON_PATH": "a checkout of Megatron-LM",
    **UNDECIDED,
    "DATA_PATH": "prefix of the tokenised data, or weights and prefixes",
}
MANY_QUEUES = 32
"""For overlapped expert traffic (Megatron-LM's own warning in validate_args: 1 or 32)."""


def megatron(job: Job) -> dict[str, str]:
    """`launch.sh`. Raises `CannotExport`."""
    groups = settings(job, "megatron")
    arrays = [array(f"{name}_ARGS", map(flag, group, group.values())) for name, group in groups.items()]
    names = ["TORCHRUN", *groups, "RUN"]
    rotary = groups["MODEL"]["position_embedding_type"] == "rope"
    uses = [f'"${{{name}_ARGS[@]}}"' for name in names]
    command = [f"exec torchrun {uses[0]}", '"${MEGATRON_PATH}/pretrain_gpt.py"', *uses[1:], '"$@"']
    text = script(
        [*summary(job, VERSION), "Further flags may be given to this script: bash launch.sh --seed 1"],
        required(NEEDED | (ROTARY if rotary else {})),
        environment(job),
        torchrun(job),
        *arrays,
        run(rotary),
        " \\\n    ".join(command),
    )
    return {"launch.sh": text}


def flag(name: str, value: Value) -> list[Argument]:
    """`--kebab-case value`; a flag that is merely on has no value."""
    option = f"--{name.replace('_', '-')}"
    if value is True:
        return [option]
    return [option, *map(str, value)] if isinstance(value, list) else [option, str(value)]


def environment(job: Job) -> str:
    """Kernel launch queues: one keeps the order of tensor and context parallelism, overlap needs several."""
    d = job.decisions
    if d.zero >= SHARDED_GRADIENTS:
        return "unset CUDA_DEVICE_MAX_CONNECTIONS  # Megatron-FSDP overlaps on several queues"
    return f"export CUDA_DEVICE_MAX_CONNECTIONS={MANY_QUEUES if d.ep_overlap else 1}"


def run(rotary: bool) -> str:
    """What the user decides."""
    groups: list[tuple[Argument, ...]] = [
        ("--tokenizer-type", "HuggingFaceTokenizer"),
        ("--tokenizer-model", Variable("${TOKENIZER_MODEL}")),
        *OPTIONS,
    ]
    if rotary:
        groups.append(("--rotary-base", Variable("${ROTARY_BASE}")))
    # A blend is several words: weight, prefix, weight, prefix.
    text = array("RUN_ARGS", groups)
    return f'read -r -a DATA_ARGS <<< "${{DATA_PATH}}"\n{text[:-1]}    --data-path "${{DATA_ARGS[@]}}"\n)'
