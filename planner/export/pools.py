"""Plans on two pools: which node holds which ranks, and which targets can say that.

Nodes are numbered so that those of the first pool come first. Megatron's rank order puts a pipeline stage
on consecutive ranks (`tp-cp-ep-dp-pp`), so the first nodes hold the first stages. With
`--use-tp-pp-dp-mapping` (`tp-cp-ep-pp-dp`) a replica lies on consecutive ranks instead, so the first nodes
hold the first pool's replicas. Source: Megatron-Core 0.20, parallel_state.RankGenerator.
"""

from __future__ import annotations

from planner.export.job import Job
from planner.export.refusal import CannotExport

ABLE = ("megatron",)
"""Targets that take nodes of two GPU types."""


def refuse_pools(job: Job, target: str) -> None:
    """Raises `CannotExport` where a target cannot launch a plan on two pools as it is."""
    d = job.decisions
    if d.mixed is None:
        return
    if target not in ABLE:
        why = "it starts every node alike"
        raise CannotExport(target, f"{d.mixed} on two GPU types,", d.machines, why)
    nodes = {part.num_gpus // part.nodes for part in d.parts}
    if len(nodes) > 1:
        raise CannotExport(target, "nodes of", " and ".join(f"{n} GPUs" for n in sorted(nodes)))
    counts = sorted({part.num_microbatches for part in d.parts})
    if len(counts) > 1:
        why = "it has one number for all replicas; solve with `-s search.framework=megatron`"
        found = " and ".join(map(str, counts))
        raise CannotExport(target, "different numbers of micro-batches by replica:", found, why)
    if replicas_first(job) and d.tp * d.cp != d.ep * d.etp and job.architecture.moe is not None:
        why = "experts need all stages on consecutive ranks unless they have as many replicas as the rest"
        raise CannotExport(target, "replicas on two GPU types with ep*etp", d.ep * d.etp, why)


def replicas_first(job: Job) -> bool:
    """Whether a replica has to lie on consecutive ranks, all of its stages together."""
    return job.decisions.mixed == "replicas" and job.decisions.pp > 1


def node_ranges(job: Job) -> list[tuple[str, int, int]]:
    """GPU, first and last node of each pool; nothing for plans on one pool."""
    ranges, first = [], 0
    for part in job.decisions.parts:
        ranges.append((part.gpu, first, first + part.nodes - 1))
        first += part.nodes
    return ranges


def node_order(job: Job) -> str:
    """In words: nodes 0 to 7 have H800, nodes 8 to 15 H20."""
    return ", ".join(f"nodes {first} to {last} have {gpu}" for gpu, first, last in node_ranges(job))
