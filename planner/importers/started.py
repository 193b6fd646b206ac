"""A training that a script starts: its command with what stands around it."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.errors import InvalidInput
from planner.importers.carried import carried
from planner.importers.launch import Given
from planner.importers.launcher import World, world_of
from planner.importers.shell import Command, Shell, shell_text
from planner.importers.shell_expand import unset_in


@dataclass(frozen=True, slots=True)
class Started:
    """A command of a script."""

    command: Command
    shell: Shell
    text: str
    """The whole script."""
    id: str
    file: str

    @property
    def line(self) -> str:
        """Where the command is."""
        return f"{self.file}:{self.command.line}"

    @property
    def folder(self) -> Path:
        """Where the script lies."""
        return Path(self.file).parent

    def world(self, launcher: Sequence[str]) -> World:
        """GPUs by the words before the training script, the commands around it, and Slurm's directives."""
        outer = [each.words for each in self.shell.commands if shell_text(each.words) is not None]
        return world_of(launcher, outer, self.text, self.command.values)

    def carried(self, given: Given, world: World, warnings: list[str]) -> dict[str, Any]:
        """What an exporter's comment says, but for what the launcher itself says."""
        facts = carried(self.text, given, warnings)
        return facts | ({"gpus_per_node": world.node_gpus} if facts and world.node_gpus else {})

    def beside(self, word: str, what: str) -> Path:
        """A file that a command names: as named, or where the script finds its own folder, beside it.

        Raises InvalidInput where it is not there.
        """
        *_, name = word.rsplit("/", 1)
        path = self.folder / (name if unset_in(word) else word)
        if unset_in(path.name) or not path.exists():
            found = f"{what} {path.name if not unset_in(path.name) else ''}".strip()
            raise InvalidInput(
                file=self.line, found=f"names the {found}, which is not there", accepted=str(path)
            )
        return path


def placed(words: Sequence[str], own: Container[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Words of the launcher, and those behind the training script or from the first of its own options on."""
    for place, word in enumerate(words):
        if word.endswith(".py"):
            return words[:place], words[place + 1 :]
    start = next((i for i, word in enumerate(words) if word.split("=")[0] in own), 0)
    return words[:start], words[start:]


def options_of(words: Sequence[str]) -> dict[str, str]:
    """`--name value`, `--name=value` and `--name` alone (an empty text)."""
    found: dict[str, str] = {}
    for place, word in enumerate(words):
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            following = words[place + 1] if place + 1 < len(words) else ""
            found[name] = value if equals else "" if following.startswith("--") else following
    return found
