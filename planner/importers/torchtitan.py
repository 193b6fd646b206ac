"""torchtitan runs: TOML files (up to v0.2.2), and what they have in common with the recipes after it."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.errors import InvalidInput, nearest
from planner.importers.carried import carried
from planner.importers.configs import parsed_toml
from planner.importers.findings import Finding
from planner.importers.launch import Given, Launch
from planner.importers.launch import model_of as named_model
from planner.importers.torchtitan_model import facts, model_of
from planner.importers.torchtitan_sections import Sections
from planner.importers.torchtitan_split import SCHEDULES, schedule_of
from planner.yaml_file import read_text

ACCEPTED = "a torchtitan TOML with [model] name and flavor, [training] and [parallelism]"
LAYERS_OF_2 = "2"
"""Default of selective_ac_option: every second layer."""
SECTION = "parallelism"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a run is written."""

    id: str
    text: str
    registering: ast.Module | None = None
    """The Python module that registers sizes of one's own."""


def read(path: Path, given: Given, more: Sequence[tuple[str, str, Any]] = ()) -> list[Launch]:
    """The run of a TOML file, with (section, key, value) of a command line over it. Raises InvalidInput."""
    text = read_text(path, ACCEPTED)
    data = parsed_toml(path, text, ACCEPTED)
    written = {name: dict(section) for name, section in data.items() if isinstance(section, dict)}
    if "model" not in written or not {"training", SECTION} & set(written):
        raise InvalidInput(file=str(path), found="holds no torchtitan configuration", accepted=ACCEPTED)
    for section, key, value in more:
        written.setdefault(section, {})[key] = value
    sections = Sections(str(path), written)
    source = Source(path.stem, text, registering(sections, path.parent))
    return [launch_of(sections, source, given, unknown_keys(sections))]


def registering(sections: Sections, folder: Path) -> ast.Module | None:
    """The module of `experimental.custom_import`, if it lies beside the file and can be read."""
    name = str(sections.get("experimental", "custom_import", ""))
    path = folder / f"{name}.py"
    try:
        return ast.parse(path.read_text(encoding="utf-8")) if name.isidentifier() else None
    except (OSError, ValueError, SyntaxError, RecursionError):
        return None


def launch_of(sections: Sections, source: Source, given: Given, findings: Sequence[Finding] = ()) -> Launch:
    """The launch that sections mean. Raises InvalidInput."""
    warnings: list[str] = []
    model = chosen_model(sections, source, given)
    written: dict[str, Any] = {"id": source.id} | carried(source.text, given, warnings)
    written |= batch_of(sections, warnings) | {"model": model}
    sizes, found = parallel_of(sections, given)
    layout, more = schedule_of(sections, model, sections.pp)
    written |= sizes | layout | recompute_of(sections, warnings) | precision_of(sections)
    written["framework"] = framework_of(sections, warnings)
    return Launch(
        id=source.id,
        framework="torchtitan",
        written={key: value for key, value in written.items() if value is not None},
        warnings=tuple(warnings),
        findings=(*findings, *found, *more),
        refused=refusal(sections),
        derived_batch=True,
    )


def chosen_model(sections: Sections, source: Source, given: Given) -> Any:
    """The one of --model, or the flavor. Raises InvalidInput."""
    if given.model is not None:
        return named_model(given.model, Path(sections.file).parent, sections.file)
    name, flavor = (str(sections.get("model", key, "")) for key in ("name", "flavor"))
    return model_of(sections.file, name, flavor, source.registering)


def batch_of(sections: Sections, warnings: list[str]) -> dict[str, Any]:
    """Batch and length: a local batch is split into micro-batches only by a pipeline."""
    local = sections.whole("training", "local_batch_size") or sections.whole("training", "batch_size", 8)
    size = sections.whole(SECTION, "pipeline_parallel_microbatch_size", 1) or 1
    total = sections.get("training", "global_batch_size", -1)
    if sections.pp > 1:
        warnings.append(
            f"micro_batch: {size}, so a local batch of {local} is {(local or 1) // size} micro-batches"
        )
    written: dict[str, Any] = {
        "seq_len": sections.whole("training", "seq_len", 2048),
        "micro_batch": size if sections.pp > 1 else local,
        "global_batch": total if isinstance(total, int) and total > 0 else None,
    }
    if written["global_batch"] is None:
        written["accumulation"] = (local or 1) // size if sections.pp > 1 else 1
    return written


def parallel_of(sections: Sections, given: Given) -> tuple[dict[str, Any], list[Finding]]:
    """The mesh: dp_replicate * dp_shard * cp * tp * pp is the world, and experts lie inside it."""
    degrees = {"tp": "tensor", "cp": "context", "pp": "pipeline", "ep": "expert", "etp": "expert_tensor"}
    sizes = {
        name: sections.whole(SECTION, f"{degree}_parallel_degree", 1) or 1 for name, degree in degrees.items()
    }
    model = sizes["tp"] * sizes["cp"] * sizes["pp"]
    replicate = sections.whole(SECTION, "data_parallel_replicate_degree", 1) or 1
    shard = sections.whole(SECTION, "data_parallel_shard_degree", None, -1)
    shard = sections.whole(SECTION, "data_parallel_degree", -1, -1) if shard is None else shard
    world = replicate * shard * model if shard and shard > 0 else None
    findings = [mesh(world, given.world)] if world and given.world and world != given.world else []
    gpus = given.world or world
    if world is None and gpus:
        shard = max(1, gpus // replicate // model)
    written: dict[str, Any] = sizes | {"num_gpus": gpus, "zero_stage": zero_of(sections, shard, sizes["cp"])}
    if replicate > 1 and shard and shard > 0 and written["zero_stage"] != 0:
        written["fsdp_shard"] = shard * sizes["cp"]
    written["tp_overlap"] = bool(sections.get(SECTION, "enable_async_tensor_parallel", False))
    if sizes["tp"] > 1:
        written["sequence_parallel"] = bool(sections.get(SECTION, "enable_sequence_parallel", True))
    if sections.get(SECTION, "expert_parallel_comm_backend") == "deepep":
        written["dispatcher"] = "deepep"
    return written, findings


def zero_of(sections: Sections, shard: int | None, cp: int) -> int | None:
    """0 where nothing is sharded; 3, or where weights are kept after the forward pass 2.

    Under a pipeline FSDP reduces gradients only at the last micro-batch: kept weights are ZeRO 1 then.
    """
    if shard == 1 and cp == 1:
        return 0
    policy = sections.get(SECTION, "fsdp_reshard_after_forward", "default")
    if policy == "never":
        return 2 if sections.pp == 1 else 1
    return 3 if policy == "always" else None


def mesh(world: int, gpus: int) -> Finding:
    """A mesh that is not the world."""
    text = f"dp_replicate * dp_shard * cp * tp * pp = {world}, but {gpus} GPUs: torchtitan stops."
    return Finding(
        "world", "error", text, "data_parallel_shard_degree = -1 takes what is left.", {"world": world}
    )


def recompute_of(sections: Sections, warnings: list[str]) -> dict[str, Any]:
    """Activation checkpointing: per operator, every n-th layer, or whole layers."""
    mode = sections.get("activation_checkpoint", "mode", "selective")
    if mode in ("none", "full"):
        return {"recompute": mode}
    option = str(sections.get("activation_checkpoint", "selective_ac_option", LAYERS_OF_2))
    if "activation_checkpoint" not in sections.sections:
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


def precision_of(sections: Sections) -> dict[str, Any]:
    """BF16 unless a float8 or MX converter is named."""
    converters = " ".join(sections.words("model", "converters"))
    float8 = sections.table("quantize", "linear", "float8") | sections.table("float8")
    if "mx" in converters.split() or "quantize.linear.mx" in converters:
        return {"precision": "mxfp8"}
    if "float8" in converters or sections.get("float8", "enable_float8_linear", False):
        recipe = str(float8.get("recipe_name") or "tensorwise")
        gathered = bool(float8.get("enable_fsdp_float8_all_gather", False))
        return {
            "precision": f"fp8-{'rowwise' if 'rowwise' in recipe else 'tensorwise'}",
            "fp8_params": gathered,
        }
    return {"precision": "bf16"}


def framework_of(sections: Sections, warnings: list[str]) -> str:
    """The profile with a compiled loss, or that of 2024; neither knows runs without torch.compile."""
    if not (sections.get("compile", "enable", False) or sections.get("training", "compile", False)):
        warnings.append("compile: off; priced as compiled block by block, which an eager run is slower than")
        return "torchtitan"
    parts = sections.words("compile", "components", ("model", "loss"))
    return "torchtitan 2025" if "loss" in parts else "torchtitan"


def refusal(sections: Sections) -> str:
    """What is not modelled, by name."""
    schedule = str(sections.get(SECTION, "pipeline_parallel_schedule", "1F1B"))
    mode = sections.get("activation_checkpoint", "mode", "selective")
    reasons = {
        "training.enable_cpu_offload: states in host memory are not modelled": bool(
            sections.get("training", "enable_cpu_offload", False)
        ),
        f"parallelism.pipeline_parallel_schedule {schedule}: known are {', '.join(SCHEDULES)}; "
        "the others keep "
        "other numbers of micro-batches in flight, which is not modelled": sections.pp > 1
        and schedule.lower() not in map(str.lower, SCHEDULES),
        "parallelism.pipeline_parallel_schedule_csv: schedules of one's own are not modelled": bool(
            sections.get(SECTION, "pipeline_parallel_schedule_csv", "")
        ),
        f"activation_checkpoint.mode {mode}: known are none, selective, full": mode
        not in ("none", "selective", "full"),
    }
    return "; ".join(reason for reason, holds in reasons.items() if holds)


def unknown_keys(sections: Sections) -> list[Finding]:
    """Keys of [parallelism] that torchtitan does not have."""
    return [
        Finding(
            "unknown_option",
            "warning",
            f"torchtitan (v0.2.2) has no parallelism.{key} and stops at it.",
            nearest(key, facts()["parallelism"]),
        )
        for key in sections.sections.get(SECTION, {})
        if key not in facts()["parallelism"]
    ]
