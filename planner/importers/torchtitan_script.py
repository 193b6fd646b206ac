"""Scripts that start torchtitan: the TOML or recipe they name, with the options of their command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import yaml

from planner.errors import InvalidInput
from planner.importers import torchtitan, torchtitan_recipe
from planner.importers.launch import Given, Launch
from planner.importers.shell_expand import unset_in
from planner.importers.started import Started, options_of

MODULES = ("torchtitan.train", "torchtitan/train.py")
FILES = ("job.config_file", "job.config-file")


def is_launch(words: Sequence[str]) -> bool:
    """`-m torchtitan.train`, or its file."""
    return any(word.endswith(MODULES) for word in words)


def launches(started: Started, given: Given) -> list[Launch]:
    """The runs it starts. Raises InvalidInput."""
    words = started.command.words
    place = next(i for i, word in enumerate(words) if word.endswith(MODULES))
    options, world = options_of(words[place + 1 :]), started.world(words[:place])
    known = given if given.world or world.gpus is None else replace(given, gpus=world.gpus)
    named = next((options[name] for name in FILES if name in options), None)
    if named is not None:
        found = torchtitan.read(started.beside(named, "TOML"), known, settings(options))
    elif "module" in options:
        path = started.beside(f"{options['module'].replace('.', '/')}.py", "recipe")
        found = torchtitan_recipe.read(path, known, options.get("config"))
    else:
        accepted = "--job.config_file X.toml (up to 0.2.2), or --module M --config F"
        raise InvalidInput(file=started.line, found="names no configuration", accepted=accepted)
    return [
        replace(each, id=started.id, written=each.written | {"id": started.id}, node_gpus=world.node_gpus)
        for each in found
    ]


def settings(options: dict[str, str]) -> list[tuple[str, str, Any]]:
    """`--training.seq_len 4096`: section, key, value. A name alone is true."""
    found: list[tuple[str, str, Any]] = []
    for name, text in options.items():
        section, dot, key = name.partition(".")
        if dot and "." not in key and not unset_in(text):
            found.append((section, key.replace("-", "_"), _value(text)))
    return found


def _value(text: str) -> Any:
    """As YAML reads it, else the text itself."""
    try:
        return yaml.safe_load(text) if text else True
    except yaml.YAMLError:
        return text
