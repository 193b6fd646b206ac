"""torchtitan TOML files (up to v0.2.2) as runs."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from planner.errors import InvalidInput, nearest, shown
from planner.export.layout import pipeline_layout
from planner.importers.configs import read_toml
from planner.importers.findings import Finding
from planner.importers.launch import Given, Launch
from planner.runs.model import architecture_of

FACTS = Path(__file__).parent / "torchtitan.yaml"
ACCEPTED = "a torchtitan TOML with [model] name and flavor, [training] and [parallelism]"
LAYERS_OF_2 = "2"
"""Default of selective_ac_option: every second layer."""
SCHEDULES: dict[str, tuple[str, int]] = {
    "1F1B": ("1f1b", 1),
    "Interleaved1F1B": ("interleaved", 2),
    "InterleavedZeroBubble": ("zb-1p", 2),
    "ZBVZeroBubble": ("zb-v", 2),
}
"""Schedule and virtual stages a rank (torchtitan's default for looped schedules)."""


@cache
def facts() -> dict[str, Any]:
    """`torchtitan.yaml`."""
    return yaml.safe_load(FACTS.read_text(encoding="utf-8"))


def flavors() -> dict[str, dict[str, Any]]:
    """Cards or shapes by model and flavor."""
    return facts()["models"]


def read(path: Path, given: Given) -> list[Launch]:
    """The run of a TOML file. Raises InvalidInput."""
    data = read_toml(path, ACCEPTED)
    sections = {name: section for name, section in data.items() if isinstance(section, dict)}
    if "model" not in sections or not {"training", "parallelism"} & set(sections):
        raise InvalidInput(file=str(path), found="holds no torchtitan configuration", accepted=ACCEPTED)
    toml = Toml(str(path), sections)
    warnings: list[str] = []
    written = {"id": path.stem, "num_gpus": given.world} | batch_of(toml, warnings)
    written["model"] = given.model or toml.model()
    sizes, findings = parallel_of(toml, given, warnings)
    written |= sizes | recompute_of(toml, warnings) | precision_of(toml)
    written["framework"] = "torchtitan 2025" if compiled(toml) else "torchtitan"
    refused = refusal(toml)
    return [
        Launch(
            id=path.stem,
            framework="torchtitan",
            written={key: value for key, value in written.items() if value is not None},
            warnings=tuple(warnings),
            findings=tuple(findings + unknown_keys(toml)),
            refused=refused,
            derived_batch=True,
        )
    ]


class Toml:
    """Sections of the file, read with their types checked."""

    def __init__(self, file: str, sections: dict[str, dict[str, Any]]) -> None:
        self.file, self.sections = file, sections

    def get(self, section: str, key: str, default: Any = None) -> Any:
        """A value, or the default."""
        return self.sections.get(section, {}).get(key, default)

    def whole(self, section: str, key: str, default: int | None = None, least: int = 1) -> int | None:
        """A whole number. Raises InvalidInput."""
        value = self.get(section, key, default)
        if value is None or value == default:
            return value
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            accepted = f"a whole number, {least} or more"
            raise InvalidInput(
                file=self.file, path=f"{section}.{key}", found=f"found {shown(value)}", accepted=accepted
            )
        return value

    def model(self) -> Any:
        """A card's name or shapes. Raises InvalidInput."""
        name, flavor = str(self.get("model", "name", "")), str(self.get("model", "flavor", ""))
        known = flavors().get(name)
        found = known.get(flavor) if known else None
        if found is None:
            choices = [f"{each} {size}" for each, sizes in flavors().items() for size in sizes]
            raise InvalidInput(
                file=self.file,
                path="model",
                found=f"found {name!r} of flavor {flavor!r}",
                accepted=f"{', '.join(choices)}, or --model CARD",
                suggestion=nearest(f"{name} {flavor}", choices),
            )
        return found


def batch_of(toml: Toml, warnings: list[str]) -> dict[str, Any]:
    """Batch and length: a local batch is split into micro-batches only by a pipeline."""
    local = toml.whole("training", "local_batch_size") or toml.whole("training", "batch_size", 8)
    pp = toml.whole("parallelism", "pipeline_parallel_degree", 1) or 1
    size = toml.whole("parallelism", "pipeline_parallel_microbatch_size", 1) or 1
    total = toml.get("training", "global_batch_size", -1)
    if pp > 1:
        warnings.append(
            f"micro_batch: {size}, so a local batch of {local} is {(local or 1) // size} micro-batches"
        )
    written: dict[str, Any] = {
        "seq_len": toml.whole("training", "seq_len", 2048),
        "micro_batch": size if pp > 1 else local,
        "global_batch": total if isinstance(total, int) and total > 0 else None,
    }
    if written["global_batch"] is None:
        written["accumulation"] = (local or 1) // size if pp > 1 else 1
    return written


def parallel_of(toml: Toml, given: Given, warnings: list[str]) -> tuple[dict[str, Any], list[Finding]]:
    """The mesh: dp_replicate * dp_shard * cp * tp * pp is the world, and experts lie inside it."""
    section = "parallelism"
    sizes = {
        "tp": toml.whole(section, "tensor_parallel_degree", 1),
        "cp": toml.whole(section, "context_parallel_degree", 1),
        "pp": toml.whole(section, "pipeline_parallel_degree", 1),
        "ep": toml.whole(section, "expert_parallel_degree", 1),
        "etp": toml.whole(section, "expert_tensor_parallel_degree", 1),
    }
    replicate = toml.whole(section, "data_parallel_replicate_degree", 1) or 1
    shard = toml.whole(section, "data_parallel_shard_degree", None, -1)
    shard = toml.whole(section, "data_parallel_degree", -1, -1) if shard is None else shard
    written: dict[str, Any] = dict(sizes)
    findings: list[Finding] = []
    if shard and shard > 0 and given.world:
        world = replicate * shard * (sizes["tp"] or 1) * (sizes["cp"] or 1) * (sizes["pp"] or 1)
        if world != given.world:
            findings.append(mesh(world, given.world))
    if shard == 1 and replicate >= 1 and sizes["cp"] == 1:
        written["zero_stage"] = 0
    elif toml.get(section, "fsdp_reshard_after_forward") == "never":
        written["zero_stage"] = 2
    if replicate > 1 and shard and shard > 0:
        written["fsdp_shard"] = shard * (sizes["cp"] or 1)
    elif replicate > 1 and given.world:
        written["fsdp_shard"] = given.world // replicate // (sizes["tp"] or 1) // (sizes["pp"] or 1)
    written["tp_overlap"] = bool(toml.get(section, "enable_async_tensor_parallel", False))
    if toml.get(section, "expert_parallel_comm_backend") == "deepep":
        written["dispatcher"] = "deepep"
    return written | schedule_of(toml, sizes["pp"] or 1, warnings), findings


def mesh(world: int, gpus: int) -> Finding:
    """A mesh that is not the world."""
    text = f"dp_replicate * dp_shard * cp * tp * pp = {world}, but {gpus} GPUs: torchtitan stops."
    return Finding(
        "world", "error", text, "data_parallel_shard_degree = -1 takes what is left.", {"world": world}
    )


def schedule_of(toml: Toml, pp: int, warnings: list[str]) -> dict[str, Any]:
    """Schedule and virtual stages."""
    if pp == 1:
        return {"vpp": 1}
    name = str(toml.get("parallelism", "pipeline_parallel_schedule", "1F1B"))
    known = {each.lower(): each for each in SCHEDULES}
    schedule, vpp = SCHEDULES.get(known.get(name.lower(), ""), ("1f1b", 1))
    parts = toml.get("parallelism", "module_fqns_per_model_part")
    if (
        isinstance(parts, list)
        and parts
        and len(parts) % pp == 0
        and all(isinstance(part, list) for part in parts)
    ):
        split = [sum(str(module).startswith("layers.") for module in part) for part in parts]
        return {"schedule": schedule, "vpp": len(parts) // pp, "pp_layout": pipeline_layout(split, 0)}
    if each := toml.whole("parallelism", "pipeline_parallel_layers_per_stage"):
        warnings.append(
            f"pipeline_parallel_layers_per_stage: {each}; the rest is laid out as evenly as can be"
        )
        vpp = virtual_stages(toml, each, pp, vpp)
    return {"schedule": schedule, "vpp": vpp}


def virtual_stages(toml: Toml, each: int, pp: int, usual: int) -> int:
    """ceil((layers + what the ends hold less) / layers a stage) / pp; the usual number for unknown models."""
    try:
        layers = architecture_of(toml.model()).layers
    except InvalidInput:
        return usual
    ends = ("pipeline_parallel_first_stage_less_layers", "pipeline_parallel_last_stage_less_layers")
    less = sum(toml.whole("parallelism", end, 1, 0) or 0 for end in ends)
    return max(1, -(-(layers + less) // each) // pp)


def recompute_of(toml: Toml, warnings: list[str]) -> dict[str, Any]:
    """Activation checkpointing: per operator, every n-th layer, or whole layers."""
    mode = toml.get("activation_checkpoint", "mode", "selective")
    if mode in ("none", "full"):
        return {"recompute": mode}
    option = str(toml.get("activation_checkpoint", "selective_ac_option", LAYERS_OF_2))
    if "activation_checkpoint" not in toml.sections:
        warnings.append(
            "activation_checkpoint: not given; selective, every second layer, as torchtitan has it"
        )
    if option == "op":
        return {"recompute": "selective", "recompute_detail": "per-op"}
    if option == "1":
        return {"recompute": "full"}
    if option != LAYERS_OF_2:
        warnings.append(f"selective_ac_option: every {option}-th layer is priced as every other layer")
    return {"recompute": "selective", "recompute_detail": "every other layer"}


def precision_of(toml: Toml) -> dict[str, Any]:
    """BF16 unless a float8 or MX converter is named."""
    converters = " ".join(map(str, toml.get("model", "converters", [])))
    quantize = toml.sections.get("quantize", {}).get("linear", {})
    float8 = quantize.get("float8", {}) | toml.sections.get("float8", {})
    if "mx" in converters.split() or "quantize.linear.mx" in converters:
        return {"precision": "mxfp8"}
    if "float8" in converters or toml.get("float8", "enable_float8_linear", False):
        recipe = float8.get("recipe_name") or "tensorwise"
        gathered = bool(float8.get("enable_fsdp_float8_all_gather", False))
        return {
            "precision": f"fp8-{'rowwise' if 'rowwise' in recipe else 'tensorwise'}",
            "fp8_params": gathered,
        }
    return {"precision": "bf16"}


def compiled(toml: Toml) -> bool:
    """The loss is compiled too."""
    return bool(toml.get("compile", "enable", False) or toml.get("training", "compile", False))


def refusal(toml: Toml) -> str:
    """What is not modelled, by name."""
    schedule = str(toml.get("parallelism", "pipeline_parallel_schedule", "1F1B"))
    pp = toml.whole("parallelism", "pipeline_parallel_degree", 1) or 1
    mode = toml.get("activation_checkpoint", "mode", "selective")
    reasons = {
        "training.enable_cpu_offload: states in host memory are not modelled": bool(
            toml.get("training", "enable_cpu_offload", False)
        ),
        f"parallelism.pipeline_parallel_schedule {schedule}: known are {', '.join(SCHEDULES)}; "
        "the others keep "
        "other numbers of micro-batches in flight, which is not modelled": pp > 1
        and schedule.lower() not in map(str.lower, SCHEDULES),
        "parallelism.pipeline_parallel_schedule_csv: schedules of one's own are not modelled": bool(
            toml.get("parallelism", "pipeline_parallel_schedule_csv", "")
        ),
        f"activation_checkpoint.mode {mode}: known are none, selective, full": mode
        not in ("none", "selective", "full"),
    }
    return "; ".join(reason for reason, holds in reasons.items() if holds)


def unknown_keys(toml: Toml) -> list[Finding]:
    """Keys of [parallelism] that torchtitan does not have."""
    return [
        Finding(
            "unknown_option",
            "warning",
            f"torchtitan (v0.2.2) has no parallelism.{key} and stops at it.",
            nearest(key, facts()["parallelism"]),
        )
        for key in toml.sections.get("parallelism", {})
        if key not in facts()["parallelism"]
    ]
