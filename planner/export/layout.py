"""Where layers lie and which are recomputed, in Megatron's words."""

from __future__ import annotations

from itertools import groupby

from planner.export.job import Job
from planner.export.refusal import CannotExport

SPELLED_OUT = 2
"""Up to so many layers `tt` is shorter than `t*2`."""


def pipeline_layout(layers: list[int], mtp: int) -> str:
    """Virtual stages as `--pipeline-model-parallel-layout`: `Et*3|(tt|)*29m|L`.

    E embedding, t a layer, m a multi-token-prediction module, L loss; `|` ends a stage, `x*n` repeats a
    letter and `(...)*n` a group. Stage i lies on rank i mod pp, as virtual stage i div pp. Source:
    Megatron-Core 0.13 and later, PipelineParallelLayerLayout.parse_str_to_list.
    """
    stages = ["t" * n if n <= SPELLED_OUT else f"t*{n}" for n in layers]
    stages[0] = "E" + stages[0]
    stages[-1] += "m" * mtp + "L"
    runs = [(stage, len(list(same))) for stage, same in groupby(stages[:-1])]
    return "".join(f"({stage}|)*{n}" if n > 1 else f"{stage}|" for stage, n in runs) + stages[-1]


def full_recompute(job: Job, target: str) -> tuple[str, int]:
    """Method and number of layers of `--recompute-granularity full`. Raises `CannotExport`.

    uniform 1: every layer on its own. block n: the first n layers of each virtual stage, or all of a
    stage that has fewer; one number for all of them.
    """
    if job.recomputes_all:
        return "uniform", 1
    most = max(job.recomputed)
    if all(again == min(most, held) for again, held in zip(job.recomputed, job.layers, strict=True)):
        return "block", most
    by_stage = ", ".join(map(str, job.recomputed))
    why = (
        "--recompute-num-layers is one number for every virtual stage; solve with "
        "`-s search.per_stage_recompute=false` for a plan that it can say"
    )
    raise CannotExport(target, "full recompute of so many layers by virtual stage:", by_stage, why)
