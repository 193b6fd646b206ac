"""The recipe of torchtitan 0.3.0: a Python function that returns the run's configuration."""

from __future__ import annotations

from typing import Any

from planner.export.job import Job
from planner.export.torchtitan_fit import activation_checkpoint, compiled, parallelism, training
from planner.export.torchtitan_model import Flavor, flavor_lines

POLICIES = {"none": "None", "full": "FullAC.Config()", "selective": "SelectiveAC.Config()"}
"""Activation checkpointing by the mode's name; 0.3.0's selective is by operation."""

SIZES = """from torchtitan.models.common import ComplexRoPE, Embedding, Linear, RMSNorm
from torchtitan.models.llama3.model import Llama3Model
"""

TEMPLATE = '''"""{head}
"""

import os

from torchtitan.components.checkpoint import CheckpointManager
from torchtitan.components.loss import CrossEntropyLoss
from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw
from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC
from torchtitan.hf_datasets.text_datasets import HuggingFaceTextDataLoader
from torchtitan.models import {module}
{imports}from torchtitan.models.common.config_utils import decoder_vocab_size
from torchtitan.trainer import Trainer
{sizes}

def plan() -> Trainer.Config:
    """The plan as a run of torchtitan."""
    model_spec = {module}.model_registry("{flavor}")
    return Trainer.Config(
        loss=CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(model_spec)),
        model_spec=model_spec,
        training=TrainingConfig(
{training}        ),
        parallelism=ParallelismConfig(
{parallelism}        ),
        activation_checkpoint={policy},
        compile=CompileConfig(
{compiled}        ),
        # What the plan does not decide.
        hf_assets_path=os.environ["HF_ASSETS_PATH"],
        dataloader=HuggingFaceTextDataLoader.Config(dataset=os.environ["DATASET"]),
        optimizer=default_adamw(lr=float(os.environ["LR"])),
        lr_scheduler=LRSchedulersContainer.Config(warmup_steps=int(os.environ["LR_WARMUP_STEPS"])),
        checkpoint=CheckpointManager.Config(interval=int(os.environ["CHECKPOINT_INTERVAL"])),
    )
'''


def recipe(job: Job, flavor: Flavor, head: list[str]) -> str:
    """`recipe.py`."""
    # Graphs cannot capture pipelines or dispatch, and their memory is not in the estimate.
    options = training(job) | {"disable_cuda_graphs": True}
    return TEMPLATE.format(
        head="\n".join(head),
        module=flavor.module,
        flavor=flavor.flavor,
        imports=SIZES if flavor.custom else "",
        sizes=flavor_lines(job) if flavor.custom else "",
        training=arguments(options),
        parallelism=arguments(parallelism(job, old=False)),
        compiled=arguments(compiled(job, old=False)),
        policy=POLICIES[activation_checkpoint(job)["mode"]],
    )


def arguments(options: dict[str, Any]) -> str:
    """Keyword arguments, a line each; a list has a line an entry."""
    lines: list[str] = []
    for name, value in options.items():
        if isinstance(value, list):
            lines += [f"{name}=[", *(f"    {each!r}," for each in value), "],"]
        else:
            lines.append(f"{name}={value!r},")
    return "".join(f"            {line}\n" for line in lines)
