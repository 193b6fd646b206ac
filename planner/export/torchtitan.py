"""torchtitan: a TOML file for 0.2.2, the last release that reads one, and a Python recipe for 0.3.0."""

from __future__ import annotations

import json
from typing import Any

from planner.export.job import Job
from planner.export.shell import HERE, Variable, array, comment, required, script, summary, torchrun
from planner.export.torchtitan_fit import activation_checkpoint, compiled, fits, parallelism, training
from planner.export.torchtitan_model import flavor_file, flavor_of
from planner.export.torchtitan_recipe import recipe
from planner.export.undecided import ROTARY

OLD = "torchtitan 0.2.2"
NEW = "torchtitan 0.3.0"
NEEDED = {
    "HF_ASSETS_PATH": "a folder with the tokenizer",
    "DATASET": "a data set by the name torchtitan has for it",
    "LR": "peak learning rate",
    "LR_WARMUP_STEPS": "steps of warm-up",
    "CHECKPOINT_INTERVAL": "steps between checkpoints",
}


def torchtitan(job: Job) -> dict[str, str]:
    """TOML and recipe, a launch script each, and the model's sizes if none is registered with them."""
    flavor = flavor_of(job)
    fits(job, flavor)
    files = {
        "torchtitan_0.2.toml": toml(job),
        "launch_0.2.sh": launch_toml(job),
        "recipe.py": recipe(job, flavor, summary(job, NEW)),
        "launch.sh": launch_recipe(job),
    }
    if flavor.custom:
        files["planner_flavor.py"] = flavor_file(job, "\n".join(summary(job, OLD)))
    return files


def toml(job: Job) -> str:
    """The sections that the plan decides."""
    flavor = flavor_of(job)
    sections: dict[str, dict[str, Any]] = {
        "model": {"name": flavor.module, "flavor": flavor.flavor},
        "training": training(job),
        "parallelism": parallelism(job, old=True),
        "activation_checkpoint": activation_checkpoint(job),
        "compile": compiled(job, old=True),
        "checkpoint": {"enable": True},
    }
    if flavor.custom:
        sections["experimental"] = {"custom_import": "planner_flavor"}
    text = [comment(summary(job, OLD))]
    for name, values in sections.items():
        text.append("\n".join([f"[{name}]", *(f"{key} = {toml_value(v)}" for key, v in values.items())]))
    return "\n\n".join(text) + "\n"


def toml_value(value: Any) -> str:
    """Booleans, whole numbers, strings and lists are spelled as in JSON; a list of lists has a line each."""
    if isinstance(value, list):
        return "[\n" + "".join(f"    {json.dumps(each)},\n" for each in value) + "]"
    return json.dumps(value)


def needed(job: Job) -> str:
    """Variables that must be set."""
    return required(NEEDED | (ROTARY if flavor_of(job).custom else {}))


def launch_toml(job: Job) -> str:
    """Options on the command line go before those of the file."""
    run = array(
        "RUN_ARGS",
        [
            ("--job.config_file", Variable("${HERE}/torchtitan_0.2.toml")),
            ("--model.hf_assets_path", Variable("${HF_ASSETS_PATH}")),
            ("--training.dataset", Variable("${DATASET}")),
            ("--optimizer.lr", Variable("${LR}")),
            ("--lr_scheduler.warmup_steps", Variable("${LR_WARMUP_STEPS}")),
            ("--checkpoint.interval", Variable("${CHECKPOINT_INTERVAL}")),
        ],
    )
    path = 'export PYTHONPATH="${HERE}${PYTHONPATH:+:${PYTHONPATH}}"'
    command = 'exec torchrun "${TORCHRUN_ARGS[@]}" -m torchtitan.train "${RUN_ARGS[@]}" "$@"'
    return script(summary(job, OLD), needed(job), HERE, path, torchrun(job), run, command)


def launch_recipe(job: Job) -> str:
    """The recipe is a module of its own, found beside the script."""
    path = 'export PYTHONPATH="${HERE}${PYTHONPATH:+:${PYTHONPATH}}"'
    command = 'exec torchrun "${TORCHRUN_ARGS[@]}" -m torchtitan.train --module recipe --config plan "$@"'
    return script(summary(job, NEW), needed(job), HERE, path, torchrun(job), command)
