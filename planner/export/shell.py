"""Launch scripts in Bash: a header, variables that must be set, arrays of arguments, one command."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from planner.cli.words import batch_words, decisions_line
from planner.export.carried import carried
from planner.export.job import Job
from planner.export.pools import node_order

HERE = 'HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"'
"""The folder of the script, where the files written beside it are."""


@dataclass(frozen=True, slots=True)
class Variable:
    """An argument that is expanded when the script runs, `"${NAME}"`; literal ones are plain text."""

    text: str

    def __str__(self) -> str:
        return f'"{self.text}"'


Argument = str | Variable


def quoted(argument: Argument) -> str:
    """As Bash reads it back."""
    return str(argument) if isinstance(argument, Variable) else shlex.quote(argument)


def array(name: str, arguments: Iterable[Sequence[Argument]]) -> str:
    """`NAME=( ... )`, an option with its values a line."""
    lines = [f"    {' '.join(map(quoted, group))}" for group in arguments]
    return "\n".join([f"{name}=(", *lines, ")"])


def comment(lines: Iterable[str]) -> str:
    """Lines behind `# `, empty ones without a trailing blank."""
    return "\n".join(f"# {line}".rstrip() for line in lines)


def required(variables: Mapping[str, str]) -> str:
    """Stops the script with a message unless each variable is set."""
    checks = [f': "${{{name}:?{meaning}}}"' for name, meaning in variables.items()]
    return "\n".join(["# Set these in the environment: the plan does not decide them.", *checks])


def torchrun(job: Job) -> str:
    """The arguments with which every node starts its ranks; MASTER_ADDR is any one of the nodes.

    On two GPU types it matters which node is which: each is told its number, and the first is the master.
    """
    if job.decisions.mixed is not None:
        return numbered_torchrun(job)
    address = "${MASTER_ADDR:-localhost}" if job.decisions.nodes == 1 else "${MASTER_ADDR:?name of one node}"
    return array(
        "TORCHRUN_ARGS",
        [
            ("--nnodes", str(job.decisions.nodes)),
            ("--nproc-per-node", str(job.gpus_per_node)),
            ("--rdzv-backend", "c10d"),
            ("--rdzv-endpoint", Variable(address + ":${MASTER_PORT:-29500}")),
            ("--rdzv-id", Variable("${RDZV_ID:-" + slug(job.name) + "}")),
        ],
    )


def numbered_torchrun(job: Job) -> str:
    """`torchrun` of nodes in a fixed order: NODE_RANK, or their place in a Slurm step."""
    place = f"place of this node, 0 to {job.decisions.nodes - 1}: {node_order(job)}"
    return array(
        "TORCHRUN_ARGS",
        [
            ("--nnodes", str(job.decisions.nodes)),
            ("--nproc-per-node", str(job.gpus_per_node)),
            ("--node-rank", Variable("${NODE_RANK:-${SLURM_PROCID:?" + place + "}}")),
            ("--master-addr", Variable("${MASTER_ADDR:?name of node 0}")),
            ("--master-port", Variable("${MASTER_PORT:-29500}")),
        ],
    )


def slug(name: str) -> str:
    """A name without anything a shell, a file system or Slurm could mind."""
    return "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in name) or "unnamed"


def script(head: Sequence[str], *parts: str) -> str:
    """A Bash script that stops at the first error."""
    return "\n\n".join(["#!/usr/bin/env bash\n" + comment(head), "set -euo pipefail", *parts]) + "\n"


def summary(job: Job, target: str) -> list[str]:
    """What a launch file says about itself: which plan, what is predicted, for which version."""
    d, e = job.decisions, job.estimate
    return [
        f"{job.name}: {job.architecture.name} on {d.machines} ({d.nodes} nodes of {job.gpus_per_node})",
        decisions_line(d),
        batch_words(d, job.seq_len),
        f"{job.steps} steps of {e.step_time_s:.3g} s, {e.days:.1f} days, predicted with the profile "
        f"{job.stack.name}",
        f"For {target}.",
        f"Written by {job.source}.",
        *([f"Node numbers matter: {node_order(job)}."] if d.mixed is not None else [carried(job)]),
    ]
