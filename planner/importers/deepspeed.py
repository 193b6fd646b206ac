"""DeepSpeed JSON files, with the model beside them, as runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from planner.errors import InvalidInput, nearest, shown
from planner.importers.configs import read_json
from planner.importers.findings import Finding
from planner.importers.launch import Given, Launch, model_of

ACCEPTED = "a DeepSpeed JSON with zero_optimization or a train_batch_size"
SIGNS = frozenset(
    {"zero_optimization", "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"}
)
UNMODELLED = {
    "zero_hpz_partition_size": "a second copy of the weights in each node (hpZ)",
    "zero_quantized_weights": "quantised weight gathers",
    "zero_quantized_gradients": "quantised gradient reduction",
}
WHOLE = 3
"""The ZeRO stage that gathers weights when they are needed."""
AUTO = "auto"
KEYS = Path(__file__).parent / "deepspeed_keys.yaml"
BESIDE = "config.json"
"""Where a Hugging Face model's shapes lie, if they are beside the DeepSpeed file."""


def read(path: Path, given: Given) -> list[Launch]:
    """The run of a DeepSpeed JSON; what it leaves open, from the script beside it that names it.

    Raises InvalidInput.
    """
    json = opened(path)
    if (started := script_beside(path)) is not None:
        return [
            replace(each, id=path.stem, written=each.written | {"id": path.stem}) for each in started(given)
        ]
    warnings: list[str] = ["recompute: a DeepSpeed JSON does not say whether layers are recomputed; none"]
    written: dict[str, Any] = {"id": path.stem, "recompute": "none"}
    if given.model is None and (path.parent / BESIDE).is_file():
        written["model"] = model_of(str(path.parent / BESIDE), path.parent, str(path))
        warnings.append(f"model: not given; {BESIDE} beside the file")
    return [launch_of(json, given, written, warnings)]


def opened(path: Path) -> Json:
    """The JSON, which has to hold a DeepSpeed configuration. Raises InvalidInput."""
    data = read_json(path, ACCEPTED)
    if not SIGNS & set(data):
        hint = "that is a model's config: give it with --model" if "hidden_size" in data else ""
        raise InvalidInput(
            file=str(path), found="holds no DeepSpeed configuration", accepted=ACCEPTED, suggestion=hint
        )
    return Json(str(path), data)


def script_beside(path: Path) -> Callable[[Given], list[Launch]] | None:
    """Reads the first script of the folder that starts DeepSpeed with this very file."""
    from planner.importers import script

    for each in sorted(path.parent.glob("*.sh")):
        with suppress(OSError, UnicodeDecodeError):
            text = each.read_text(encoding="utf-8")
            if re.search(rf"--deepspeed(_config|-config)?[= ]\S*{re.escape(path.name)}\b", text):
                return lambda given, text=text, each=each: script.read(text, str(each), given)
    return None


def launch_of(json: Json, given: Given, written: dict[str, Any], warnings: list[str]) -> Launch:
    """The launch of a JSON, with what is known beside it: keys of a run and `accumulation`."""
    own = batch_of(json) | sizes_of(json) | precision_of(json)
    own["dp_overlap"] = overlap_of(json, own)
    written = {key: value for key, value in own.items() if value is not None} | written
    waiting = {
        key: f"{name} is auto"
        for key, name in json.auto.items()
        if key in ("micro_batch", "accumulation") and key not in written
    }
    if written.get("global_batch"):
        waiting.pop("accumulation", None)
        written.pop("accumulation", None)
    return Launch(
        id=written["id"],
        framework="deepspeed",
        written={"framework": "DeepSpeed"} | written,
        warnings=tuple(warnings),
        findings=(
            *unknown_keys(json.data),
            *batch_product(json, given.world or written.get("num_gpus")),
            *two_precisions(json),
        ),
        open=waiting,
        refused=refusal(json),
        derived_batch=True,
    )


@cache
def known_keys() -> frozenset[str]:
    """Keys that DeepSpeed has at the top of its configuration."""
    return SIGNS | frozenset(yaml.safe_load(KEYS.read_text(encoding="utf-8")))


class Json:
    """The file's values with their types checked; `auto` is remembered as open."""

    def __init__(self, file: str, data: dict[str, Any]) -> None:
        self.file, self.data, self.auto = file, data, {}

    def section(self, name: str) -> dict[str, Any]:
        """A nested object; nothing where there is none. Raises InvalidInput where it is another thing."""
        value = self.data.get(name, {})
        if not isinstance(value, dict):
            raise InvalidInput(file=self.file, path=name, found=f"found {shown(value)}", accepted="an object")
        return value

    def whole(self, where: dict[str, Any], name: str, key: str = "", least: int = 1) -> int | None:
        """A whole number; none where it is missing or auto. Raises InvalidInput."""
        value = where.get(name)
        if value == AUTO:
            self.auto[key or name] = name
            return None
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            accepted = f"a whole number, {least} or more"
            raise InvalidInput(file=self.file, path=name, found=f"found {shown(value)}", accepted=accepted)
        return value


def batch_of(json: Json) -> dict[str, Any]:
    """train_batch_size = micro-batch * accumulation * data-parallel ranks."""
    micro = json.whole(json.data, "train_micro_batch_size_per_gpu", "micro_batch")
    steps = json.whole(json.data, "gradient_accumulation_steps", "accumulation")
    total = json.whole(json.data, "train_batch_size", "global_batch")
    return {"micro_batch": micro, "global_batch": total, "accumulation": None if total else steps}


def batch_product(json: Json, world: int | None) -> list[Finding]:
    """The three batch sizes have to agree with the ranks."""
    micro = json.whole(json.data, "train_micro_batch_size_per_gpu")
    steps = json.whole(json.data, "gradient_accumulation_steps")
    total = json.whole(json.data, "train_batch_size")
    if not (micro and steps and total and world):
        return []
    sizes = sizes_of(json)
    ranks = world // ((sizes["tp"] or 1) * (sizes["cp"] or 1) * (sizes["pp"] or 1))
    if micro * steps * ranks == total:
        return []
    text = (
        f"train_batch_size {total} is not micro-batch {micro} * accumulation {steps} * {ranks} data-parallel "
        f"ranks = {micro * steps * ranks}: DeepSpeed stops."
    )
    numbers = {"train_batch_size": total, "product": micro * steps * ranks}
    return [Finding("batch_product", "error", text, f"train_batch_size {micro * steps * ranks}.", numbers)]


def sizes_of(json: Json) -> dict[str, Any]:
    """ZeRO stage, and the sizes that a JSON can hold."""
    zero, tensor = json.section("zero_optimization"), json.section("tensor_parallel")
    pipeline = json.section("pipeline")
    return {
        "zero_stage": json.whole(zero, "stage", least=0) or 0,
        "fsdp_shard": json.whole(zero, "mics_shard_size", least=-1)
        if (zero.get("mics_shard_size") or 0) != -1
        else None,
        "tp": json.whole(tensor, "autotp_size", least=0) or 1,
        "pp": json.whole(pipeline, "stages") or 1,
        "cp": json.whole(json.data, "sequence_parallel_size") or 1,
    }


def overlap_of(json: Json, sizes: dict[str, Any]) -> bool | None:
    """Whether reductions of ZeRO's optimizers overlap; unless given, from stage 3 on.

    None where there are no such, or a pipeline, whose engine switches it off.
    """
    stage, value = sizes["zero_stage"], json.section("zero_optimization").get("overlap_comm")
    if stage == 0 or (sizes["pp"] or 1) > 1:
        return None
    return value if isinstance(value, bool) else stage >= WHOLE


def precision_of(json: Json) -> dict[str, Any]:
    """bf16 or fp16, whichever is enabled, or may be by what the trainer is told."""
    either = enabled(json, (True,)) or enabled(json, (AUTO,))
    return {"precision": either[0] if either else None}


def enabled(json: Json, values: tuple[Any, ...]) -> list[str]:
    """Half precisions whose switch has one of these values."""
    named = (("bf16", "bf16"), ("bfloat16", "bf16"), ("fp16", "fp16"))
    return [precision for name, precision in named if json.section(name).get("enabled") in values]


def two_precisions(json: Json) -> list[Finding]:
    """BF16 and FP16 exclude each other."""
    if len(set(enabled(json, (True,)))) < 2:
        return []
    text = "bf16 and fp16 are both enabled: DeepSpeed stops."
    return [Finding("precision_twice", "error", text, "Keep bf16.")]


def refusal(json: Json) -> str:
    """What is not modelled, by name."""
    zero = json.section("zero_optimization")
    reasons = [
        f"zero_optimization.{name}: states in {part['device']} memory are not modelled"
        for name in ("offload_optimizer", "offload_param")
        if isinstance(part := zero.get(name), dict) and part.get("device", "none") != "none"
    ]
    if zero.get("cpu_offload"):
        reasons.append("zero_optimization.cpu_offload: states in host memory are not modelled")
    for name, what in UNMODELLED.items():
        if zero.get(name) not in (None, False, 1):
            reasons.append(f"zero_optimization.{name}: {what}: not modelled")
    named = str(json.section("optimizer").get("type", "Adam"))
    if "adam" not in named.lower():
        reasons.append(f"optimizer.type {named}: only Adam is modelled, with 8 bytes of moments a parameter")
    if precision_of(json)["precision"] is None:
        reasons.append(
            "neither bf16 nor fp16 is enabled: DeepSpeed trains in FP32 then, which is not modelled"
        )
    return "; ".join(reasons)


def unknown_keys(data: dict[str, Any]) -> list[Finding]:
    """Keys at the top that DeepSpeed does not have; it passes over them."""
    return [
        Finding("unknown_option", "warning", f"DeepSpeed (0.19) has no {key} and passes over it.", hint)
        for key in data
        if key not in known_keys() and (hint := nearest(key, known_keys()))
    ]
