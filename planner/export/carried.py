"""Facts of a plan that no launcher is told, in a comment of its files: `planner estimate` reads them back."""

from __future__ import annotations

import json

from planner.export.job import Job

BITS, GIGA = 8, 1e9
MARK = "planner:"
"""What the line begins with, behind a comment's sign."""


def carried(job: Job) -> str:
    """`planner: {"gpu": "H800", ...}`: the GPU, its node and its network, in the keys of a runs file."""
    facts = {
        "gpu": job.decisions.gpu,
        "gpus_per_node": job.gpus_per_node,
        "interconnect": f"{job.fabric.nic * BITS / GIGA:.10g} Gb/s per GPU",
    }
    return f"{MARK} {json.dumps(facts)}"
