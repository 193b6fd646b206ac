"""How many GPUs a launch command uses: torchrun, srun, mpirun, deepspeed, and Slurm's directives."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from planner.importers.options import outside
from planner.importers.shell_expand import Value, unset_in

DIRECTIVE = re.compile(r"^#SBATCH\s+(--?[\w-]+)(?:[=\s]\s*(\S+))?", re.MULTILINE)
PER_NODE = (
    "nproc-per-node",
    "nproc_per_node",
    "gpus-per-node",
    "num_gpus",
    "ntasks-per-node",
    "gres",
    "npernode",
)
NODES = ("nnodes", "num_nodes", "nodes", "N")
TASKS = ("ntasks", "n", "np")
GRES = re.compile(r"(?:gpu(?::[A-Za-z][\w-]*)?:)?(\d+)")
ONE_NODE = ("torchrun", "torch.distributed.run", "torch.distributed.launch", "deepspeed")


@dataclass(frozen=True, slots=True)
class World:
    """GPUs of a launch."""

    node_gpus: int | None
    nodes: int | None
    gpus: int | None
    open: str = ""
    """What is taken from outside the script."""
    assumed: str = ""


def directives(script: str) -> dict[str, str]:
    """`#SBATCH --nodes=4` and its like."""
    return {match.group(1).lstrip("-"): match.group(2) or "" for match in DIRECTIVE.finditer(script)}


def world_of(
    launcher: Sequence[str], outer: Sequence[Sequence[str]], script: str, values: Mapping[str, Value]
) -> World:
    """GPUs of the words before the training script, of the commands around it, and of the directives."""
    options: dict[str, str] = directives(script)
    for words in (*outer, launcher):
        options |= launcher_options(words)
    per_node, open_node = _size(options, PER_NODE)
    nodes, open_nodes = _size(options, NODES)
    tasks, _ = _size(options, TASKS)
    waiting = open_nodes or open_node
    name = " ".join(launcher)
    if nodes is None and not open_nodes and per_node and any(each in name for each in ONE_NODE):
        return World(per_node, 1, per_node, waiting, "nodes: not given; 1, as the launcher has it")
    if nodes is not None and per_node is not None:
        return World(per_node, nodes, nodes * per_node, "")
    if tasks is not None:
        return World(per_node, nodes, tasks, "")
    return _from_variables(values, per_node, nodes, waiting)


def _from_variables(
    values: Mapping[str, Value], per_node: int | None, nodes: int | None, waiting: str
) -> World:
    """A script without a launcher that sets WORLD_SIZE, as `--fake-process-group` needs."""
    size = values.get("WORLD_SIZE")
    if isinstance(size, str) and size.isdecimal():
        return World(per_node, nodes, int(size), "")
    return World(per_node, nodes, None, waiting)


def launcher_options(words: Sequence[str]) -> dict[str, str]:
    """`--name value`, `--name=value`, `-N4` and `-N 4` of a launcher."""
    found: dict[str, str] = {}
    for place, word in enumerate(words):
        if match := re.fullmatch(r"(-[Nn]p?|--?[\w-]+)(?:=(.*)|(?<=-[Nn])(\d+))?", word, re.DOTALL):
            name, value = match.group(1).lstrip("-"), match.group(2) or match.group(3)
            following = words[place + 1] if place + 1 < len(words) else ""
            found[name] = value if value is not None else following
    return found


def _size(options: Mapping[str, str], names: Sequence[str]) -> tuple[int | None, str]:
    """The first of these options that holds a number, or the variable that one waits for."""
    waiting = ""
    for name in names:
        value = options.get(name)
        if value is None:
            continue
        if unset := unset_in(value):
            waiting = waiting or outside(name, unset[0])
        elif (match := GRES.fullmatch(value)) and int(match.group(1)) > 0:
            return int(match.group(1)), ""
    return None, waiting
