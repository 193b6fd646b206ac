"""Slurm: a batch script around the launch files of another target."""

from __future__ import annotations

from collections.abc import Callable

from planner.export.job import Job
from planner.export.shell import comment, slug, summary

Exporter = Callable[[Job], dict[str, str]]

TEMPLATE = """#!/usr/bin/env bash
#SBATCH --job-name={name}
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={gpus}
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:USR1@300
{segment}{second}{head}

set -euo pipefail

PLAN_DIR="${{PLAN_DIR:-${{SLURM_SUBMIT_DIR:?run this with sbatch}}}}"
export MASTER_ADDR="$(scontrol show hostnames "${{SLURM_JOB_NODELIST}}" | head -n 1)"
export MASTER_PORT="${{MASTER_PORT:-$((20000 + SLURM_JOB_ID % 20000))}}"
export RDZV_ID="${{SLURM_JOB_ID}}-${{SLURM_RESTART_COUNT:-0}}"

# Five minutes before the time limit Slurm sends USR1 to this shell: the job goes back into the queue and
# resumes from its last checkpoint.
requeue() {{
    echo "time limit is near: requeueing ${{SLURM_JOB_ID}}"
    scontrol requeue "${{SLURM_JOB_ID}}"
}}
trap requeue USR1

srun {where} --ntasks-per-node=1 --kill-on-bad-exit=1 bash "${{PLAN_DIR}}/{launch}" "$@" &
wait $!
"""


SECOND = """##SBATCH --partition=...  # nodes with {first}
#SBATCH hetjob
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={gpus}
#SBATCH --exclusive
#SBATCH --mem=0
##SBATCH --partition=...  # nodes with {second}
"""
"""The second component of a heterogeneous job; a step over both numbers its tasks through, in this order."""
PLACES = "In the lines that start with ##, name the partition of each pool and take one # away."


def second_component(job: Job) -> str:
    """Nodes of the second pool of a plan on two; nothing for one pool."""
    if job.decisions.mixed is None:
        return ""
    first, second = job.decisions.parts
    return SECOND.format(first=first.gpu, second=second.gpu, nodes=second.nodes, gpus=job.gpus_per_node)


def slurm(job: Job, launcher: str, export: Exporter) -> dict[str, str]:
    """The launcher's files and `job.slurm`: one task a node, which starts a rank on each of its GPUs."""
    files = export(job)
    parts = job.decisions.parts
    own = parts[0].nodes if parts else job.decisions.nodes
    nodes_a_domain = job.fabric.domain // job.gpus_per_node
    whole = nodes_a_domain > 1 and own % nodes_a_domain == 0
    head = [
        *summary(job, f"Slurm 23.11 and later, around {launcher}"),
        "Submit it from its folder, with what your cluster asks for:",
        f"    sbatch {'' if parts else '--partition=... '}--account=... --time=... job.slurm",
        *([PLACES] if parts else []),
        f"The whole run takes {job.estimate.days:.1f} days; with a shorter limit the job requeues itself.",
    ]
    text = TEMPLATE.format(
        name=slug(job.name),
        nodes=own,
        where="--het-group=0,1" if parts else f"--nodes={own}",
        second=second_component(job),
        gpus=job.gpus_per_node,
        # NVLink domains of several nodes (NVL72): the topology plugin keeps them together.
        segment=f"#SBATCH --segment={nodes_a_domain}\n" if whole else "",
        head=comment(head),
        launch="launch.sh",
    )
    return files | {"job.slurm": text}
