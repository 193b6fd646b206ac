"""Scripts that train a Hugging Face model with DeepSpeed: the JSON with the Trainer's arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from planner.errors import InvalidInput
from planner.importers import deepspeed
from planner.importers.launch import Given, Launch, model_of
from planner.importers.shell_expand import unset_in
from planner.importers.started import Started, options_of, placed

NAMES = ("deepspeed", "deepspeed_config", "deepspeed-config")
LENGTHS = ("block_size", "max_seq_length", "max_seq_len", "model_max_length", "max_length", "cutoff_len")
"""How training scripts call the length of a sequence."""
MODELS = ("config_name", "model_name_or_path", "model_name", "model")
ON = ("", "true", "True", "1")


def is_launch(words: Sequence[str]) -> bool:
    """Names a JSON for DeepSpeed."""
    return bool(json_of(words))


def json_of(words: Sequence[str]) -> str:
    """The JSON's name among the words, or nothing."""
    options = options_of(words)
    return next((options[name] for name in NAMES if options.get(name, "").endswith(".json")), "")


def launches(started: Started, given: Given) -> list[Launch]:
    """The run of a command. Raises InvalidInput."""
    launcher, words = placed(started.command.words, [f"--{name}" for name in NAMES])
    options, warnings = options_of(words), list[str]()
    json = deepspeed.opened(started.beside(json_of(words), "DeepSpeed JSON"))
    world = started.world(launcher)
    written: dict[str, Any] = {"id": started.id} | started.carried(given, world, warnings)
    written |= {"num_gpus": world.gpus, "seq_len": whole(started, options, LENGTHS)}
    written |= batch_of(started, options, json) | recompute_of(options)
    if given.model is None:
        written["model"] = model(started, options)
    known = {key: value for key, value in written.items() if value is not None}
    return [deepspeed.launch_of(json, given, known, warnings)]


def batch_of(started: Started, options: dict[str, str], json: deepspeed.Json) -> dict[str, Any]:
    """What the JSON leaves to the Trainer (`auto`)."""
    own = deepspeed.batch_of(json)
    micro = own["micro_batch"] or whole(started, options, ("per_device_train_batch_size",))
    if own["global_batch"]:
        return {"micro_batch": micro}
    steps = own["accumulation"] or whole(started, options, ("gradient_accumulation_steps",)) or 1
    return {"micro_batch": micro, "accumulation": steps}


def recompute_of(options: dict[str, str]) -> dict[str, str]:
    """Every layer, or none."""
    return {"recompute": "full" if options.get("gradient_checkpointing") in ON else "none"}


def model(started: Started, options: dict[str, str]) -> Any:
    """A config.json that the options name, or the one beside the script; nothing for a name of the hub."""
    for name in MODELS:
        word = options.get(name, "")
        if not word:
            continue
        folder = started.folder / "" if unset_in(word) else started.folder / word
        if (folder / deepspeed.BESIDE).is_file():
            return model_of(str(folder / deepspeed.BESIDE), started.folder, started.line)
    if (started.folder / deepspeed.BESIDE).is_file():
        return model_of(str(started.folder / deepspeed.BESIDE), started.folder, started.line)
    return None


def whole(started: Started, options: dict[str, str], names: Sequence[str]) -> int | None:
    """The first of these options that is a whole number. Raises InvalidInput where it is another thing."""
    for name in names:
        text = options.get(name)
        if text is None or unset_in(text):
            continue
        if not text.isdecimal() or int(text) < 1:
            accepted = "a whole number above 0"
            raise InvalidInput(file=started.line, found=f"--{name} {text!r}", accepted=accepted)
        return int(text)
    return None
