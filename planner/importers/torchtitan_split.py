"""How torchtitan deals layers out to stages, and where it stops."""

from __future__ import annotations

from typing import Any

from planner.errors import InvalidInput
from planner.export.layout import pipeline_layout
from planner.importers.findings import Finding
from planner.importers.torchtitan_sections import Sections
from planner.runs.model import architecture_of

SCHEDULES: dict[str, tuple[str, int]] = {
    "1F1B": ("1f1b", 1),
    "Interleaved1F1B": ("interleaved", 2),
    "InterleavedZeroBubble": ("zb-1p", 2),
    "ZBVZeroBubble": ("zb-v", 2),
}
"""Schedule and virtual stages a rank (torchtitan's default for looped schedules)."""
SECTION = "parallelism"
ENDS = ("pipeline_parallel_first_stage_less_layers", "pipeline_parallel_last_stage_less_layers")


def schedule_of(sections: Sections, model: Any, pp: int) -> tuple[dict[str, Any], list[Finding]]:
    """Schedule, virtual stages and layers of each. Raises InvalidInput."""
    if pp == 1:
        return {"vpp": 1}, []
    name = str(sections.get(SECTION, "pipeline_parallel_schedule", "1F1B"))
    known = {each.lower(): each for each in SCHEDULES}
    schedule, vpp = SCHEDULES.get(known.get(name.lower(), ""), ("1f1b", 1))
    if parts := named_parts(sections):
        if len(parts) % pp:
            return {"schedule": schedule, "vpp": 1}, [stages_not_whole(len(parts), pp)]
        split = [sum(str(module).startswith("layers.") for module in part) for part in parts]
        return {
            "schedule": schedule,
            "vpp": len(parts) // pp,
            "pp_layout": pipeline_layout(split, 0),
        }, []
    return dealt(sections, architecture_of(model).layers, pp, schedule, vpp)


def named_parts(sections: Sections) -> list[list[Any]]:
    """Modules of each virtual stage where the file names them. Raises InvalidInput."""
    parts = sections.get(SECTION, "module_fqns_per_model_part") or []
    if not isinstance(parts, list) or not all(isinstance(part, list) for part in parts):
        raise InvalidInput(
            file=sections.file,
            path=f"{SECTION}.module_fqns_per_model_part",
            found=f"found {parts!r}"[:80],
            accepted="a list of lists of module names",
        )
    return parts


def dealt(
    sections: Sections, layers: int, pp: int, schedule: str, vpp: int
) -> tuple[dict[str, Any], list[Finding]]:
    """Evenly, with embedding and head in the place of some layers, the rest on the first stages.

    Source: torchtitan 0.2.2, `generate_llm_fqn_per_model_part` and its caller.
    """
    before, behind = (sections.whole(SECTION, end, 1, 0) or 0 for end in ENDS)
    total = layers + before + behind
    if each := sections.whole(SECTION, "pipeline_parallel_layers_per_stage"):
        stages = -(-total // each)
        if stages % pp:
            return {"schedule": schedule, "vpp": 1}, [stages_not_whole(stages, pp)]
        vpp = stages // pp
    stages = pp * vpp
    if total // stages < max(before, behind, 1):
        return {"schedule": schedule, "vpp": vpp}, [too_many_stages(layers, stages)]
    split = [total // stages + (stage < total % stages) for stage in range(stages)]
    split[0] -= before
    split[-1] -= behind
    return {"schedule": schedule, "vpp": vpp, "pp_layout": pipeline_layout(split, 0)}, []


def stages_not_whole(stages: int, pp: int) -> Finding:
    """Virtual stages that the ranks do not divide."""
    text = f"{stages} virtual stages on pipeline_parallel_degree {pp}: torchtitan stops."
    fix = "A number of parts, or of layers a stage, that gives a multiple of the ranks."
    return Finding("virtual_stages", "error", text, fix, {"stages": stages, "pp": pp})


def too_many_stages(layers: int, stages: int) -> Finding:
    """Stages without a layer."""
    text = f"{layers} layers on {stages} virtual stages leave stages without a layer: torchtitan stops."
    return Finding("virtual_stages", "error", text, "Fewer stages.", {"stages": stages, "layers": layers})
