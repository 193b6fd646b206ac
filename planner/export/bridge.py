"""Megatron-Bridge (NeMo): a recipe in Python and the script that starts it."""

from __future__ import annotations

import ast

from planner.export.job import Job
from planner.export.megatron import environment
from planner.export.megatron_model import Settings, Value
from planner.export.megatron_settings import settings
from planner.export.shell import HERE, required, script, summary, torchrun
from planner.export.undecided import ROTARY, UNDECIDED

VERSION = "Megatron-Bridge 0.6 (Megatron-Core 0.16 and later)"


IMPLIED = {
    "group_query_attention",
    "multi_latent_attention",
    "bf16",
    "fp8_format",
    "fp8_recipe",
    "fp8_param_gather",
    "grad_reduce_in_bf16",
}
"""Flags whose meaning is in another field, in the provider's class, or in the named precision."""
OVERLAPS = ("tp_comm_overlap", "overlap_grad_reduce", "overlap_param_gather")
EXPRESSIONS = {
    "swiglu": (("gated_linear_unit", "True"), ("activation_func", "F.silu")),
    "disable_bias_linear": (("add_bias_linear", "False"),),
    "untie_embeddings_and_output_weights": (("share_embeddings_and_output_weights", "False"),),
    "no_gradient_accumulation_fusion": (("gradient_accumulation_fusion", "False"),),
}
OVERLAP_EXPRESSIONS = {
    "no_overlap_p2p_communication": {"overlap_p2p_comm": "False", "batch_p2p_comm": "True"},
}
"""Flags that are other fields of `CommOverlapConfig`."""
RENAMED = {
    "num_experts": "num_moe_experts",
    "num_virtual_stages_per_pipeline_rank": "virtual_pipeline_model_parallel_size",
}
SECTIONS = {
    "micro_batch_size": "train",
    "global_batch_size": "train",
    "train_iters": "train",
    "use_distributed_optimizer": "ddp",
    "num_distributed_optimizer_instances": "ddp",
    "use_megatron_fsdp": "ddp",
    "data_parallel_sharding_strategy": "ddp",
    "overlap_grad_reduce": "comm_overlap",
    "overlap_param_gather": "comm_overlap",
    "ckpt_format": "checkpoint",
    "tp_comm_overlap": "comm_overlap",
    "overlap_moe_expert_parallel_comm": "comm_overlap",
}
"""Where a setting belongs; all others are the model's."""

PRECISIONS = {"bf16": "bf16_mixed", "fp8": "bf16_with_fp8_current_scaling_mixed"}


def bridge(job: Job) -> dict[str, str]:
    """`recipe.py` and `launch.sh`. Raises `CannotExport`."""
    rotary = job.architecture.learned_positions == 0
    launch = script(
        summary(job, VERSION),
        required(UNDECIDED | (ROTARY if rotary else {})),
        environment(job),
        HERE,
        torchrun(job),
        'exec torchrun "${TORCHRUN_ARGS[@]}" "${HERE}/recipe.py"',
    )
    return {"recipe.py": recipe(job, rotary), "launch.sh": launch}


def recipe(job: Job, rotary: bool) -> str:
    """A function that returns the run's `ConfigContainer`, and a main that trains it."""
    model, lines = fields(job)
    if rotary:
        model["rotary_base"] = 'float(os.environ["ROTARY_BASE"])'
    mla, moe = job.architecture.mla is not None, job.architecture.moe is not None
    if moe:
        model["transformer_layer_spec"] = "partial(get_gpt_decoder_block_spec, use_transformer_engine=True)"
    provider = "MLAModelProvider" if mla else "GPTModelProvider"
    arguments = "".join(f"        {name}={text},\n" for name, text in model.items())
    body = "".join(f"    {line}\n" for line in [*lines, *RUN])
    text = TEMPLATE.format(
        head='"""' + "\n".join(summary(job, VERSION)) + '\n"""',
        partial="from functools import partial\n" if moe else "",
        spec=SPEC if moe else "",
        module="mla_provider" if mla else "gpt_provider",
        provider=provider,
        arguments=arguments,
        body=body,
    )
    ast.parse(text)
    return text


def fields(job: Job) -> tuple[dict[str, str], list[str]]:
    """The model's arguments, and the assignments to other sections."""
    groups = settings(job, "bridge")
    model: dict[str, str] = {}
    other: dict[str, dict[str, str]] = {}
    for name, value in (item for group in groups.values() for item in group.items()):
        if name in EXPRESSIONS:
            model |= dict(EXPRESSIONS[name])
        elif name in OVERLAP_EXPRESSIONS:
            other.setdefault("comm_overlap", {}).update(OVERLAP_EXPRESSIONS[name])
        elif name not in IMPLIED:
            section = SECTIONS.get(name)
            target = model if section is None else other.setdefault(section, {})
            target[RENAMED.get(name, name)] = literal(name, value)
    if job.decisions.pp > 1:
        model["pipeline_dtype"] = "torch.bfloat16"
    if job.decisions.vpp > 1:
        model["virtual_pipeline_model_parallel_size"] = str(job.decisions.vpp)
    return model, [*assignments(job, other), *mixed_precision(job, groups)]


def assignments(job: Job, other: dict[str, dict[str, str]]) -> list[str]:
    """Every value the base recipe might have set otherwise is set, also where it is off."""
    ddp = {"use_distributed_optimizer": "False"} | other.pop("ddp", {})
    overlap = dict.fromkeys(OVERLAPS, "False") | other.pop("comm_overlap", {})
    other["ddp"] = ddp | {name: overlap[name] for name in OVERLAPS if name != "tp_comm_overlap"}
    other["optimizer"] = {"use_distributed_optimizer": ddp["use_distributed_optimizer"]}
    inside = ", ".join(f"{name}={text}" for name, text in overlap.items())
    return [
        f"cfg.dataset.seq_length = {job.seq_len}",
        *(f"cfg.{part}.{name} = {text}" for part, named in other.items() for name, text in named.items()),
        f"cfg.comm_overlap = CommOverlapConfig({inside})",
    ]


def mixed_precision(job: Job, groups: dict[str, Settings]) -> list[str]:
    """The named precision, which also says in what gradients are reduced and weights gathered."""
    lines = [
        f"precision = get_mixed_precision_config({PRECISIONS[job.decisions.precision]!r})",
        f"precision.grad_reduce_in_fp32 = {'grad_reduce_in_bf16' not in groups.get('DATA_PARALLEL', {})}",
    ]
    if job.decisions.precision == "fp8":
        gathered = "fp8_param_gather" in groups["PRECISION"]
        lines += [
            f"precision.fp8_param = precision.fp8_param_gather = {gathered}",
            "precision.first_last_layers_bf16 = False  # the plan was priced with all layers in FP8",
        ]
    return [*lines, "cfg.mixed_precision = precision"]


def literal(name: str, value: Value) -> str:
    """A Python literal; what Megatron-LM's flags spell as text is a list or a tuple here."""
    if name == "moe_layer_freq":
        return str(value).strip("()") if value != "1" else "1"
    if name == "window_size":
        return f"({value})"
    return repr(value)


SPEC = "from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec\n"

RUN = (
    'cfg.dataset.blend = [[os.environ["DATA_PATH"]], None]',
    'cfg.tokenizer.tokenizer_model = os.environ["TOKENIZER_MODEL"]',
    "cfg.tokenizer.use_tokenizer_vocab_size = False  # the vocabulary is the plan's",
    'cfg.checkpoint.save = cfg.checkpoint.load = os.environ["CHECKPOINT_DIR"]',
    'cfg.checkpoint.save_interval = int(os.environ["SAVE_INTERVAL"])',
    'cfg.optimizer.lr = float(os.environ["LR"])',
    'cfg.optimizer.min_lr = float(os.environ["MIN_LR"])',
    'cfg.scheduler.lr_warmup_iters = int(os.environ["LR_WARMUP_ITERS"])',
)
"""What the plan does not decide."""

TEMPLATE = '''{head}

import os
{partial}
import torch
import torch.nn.functional as F
{spec}from megatron.bridge.models.{module} import {provider}
from megatron.bridge.recipes.common import _pretrain_common
from megatron.bridge.training.comm_overlap import CommOverlapConfig
from megatron.bridge.training.config import ConfigContainer
from megatron.bridge.training.gpt_step import forward_step
from megatron.bridge.training.mixed_precision import get_mixed_precision_config
from megatron.bridge.training.pretrain import pretrain


def config() -> ConfigContainer:
    """The plan as a run of Megatron-Bridge."""
    cfg = _pretrain_common()
    cfg.model = {provider}(
{arguments}    )
{body}    return cfg


if __name__ == "__main__":
    pretrain(config=config(), forward_step_func=forward_step)
'''
