"""Shell scripts and command lines: every training that they start, read by what starts it."""

from __future__ import annotations

from pathlib import Path

from planner.errors import InvalidInput, Refused
from planner.importers import deepspeed_trainer, megatron, megatron_deepspeed, torchtitan_script
from planner.importers.launch import Given, Launch
from planner.importers.shell import Shell
from planner.importers.shell_expand import unset_in
from planner.importers.started import Started
from planner.yaml_file import read_text

READERS = (megatron_deepspeed, megatron, deepspeed_trainer, torchtitan_script)
"""Each knows its own launches; the first that does reads them."""
ACCEPTED = (
    "a shell script or command line that starts Megatron-LM (torchrun ... pretrain_gpt.py --num-layers ...), "
    "DeepSpeed (... --deepspeed ds_config.json) or torchtitan (-m torchtitan.train ...)"
)


def read(text: str, file: str, given: Given, around: str = "") -> list[Launch]:
    """Every launch of a script, or of the scripts beside it that it starts. Raises InvalidInput without one.

    `around` is the script that starts this one: its Slurm directives count.
    """
    shell = Shell()
    try:
        shell.script(text, given.variables)
    except Refused as refused:
        raise InvalidInput(file=file, found=refused.found, accepted=ACCEPTED) from None
    chosen = [
        (command, next(reader for reader in READERS if reader.is_launch(command.words)))
        for command in shell.commands
        if any(reader.is_launch(command.words) for reader in READERS)
    ]
    if not chosen and not around and (inner := started_scripts(shell, Path(file))):
        return [
            launch for each in inner for launch in read(read_text(each, ACCEPTED), str(each), given, text)
        ]
    if not chosen:
        raise InvalidInput(file=file, found="starts no training that is known", accepted=ACCEPTED)
    stem = Path(file).stem
    found: list[Launch] = []
    for number, (command, reader) in enumerate(chosen, 1):
        name = stem if len(chosen) == 1 else f"{stem}-{number}"
        found += reader.launches(Started(command, shell, around + text, name, file), given)
    return found


def started_scripts(shell: Shell, file: Path) -> list[Path]:
    """Scripts among the words of the commands that lie where they are named, or beside this one."""
    words = [word for command in shell.commands for word in command.words if word.endswith(".sh")]
    named = [file.parent / (word.rsplit("/", 1)[-1] if unset_in(word) else word) for word in words]
    return [path for path in dict.fromkeys(named) if path.is_file() and path != file]
