"""A launch file as the facts of a run, with what it leaves open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from planner import overrides
from planner.complaints import first_fault
from planner.errors import InvalidInput, Refused, nearest
from planner.importers.findings import Finding
from planner.runs.accelerator import accelerator_of
from planner.runs.facts import RunFacts
from planner.runs.model import architecture_of

Framework = Literal["megatron", "deepspeed", "torchtitan", "other"]
NEEDED = {
    "gpu": "the GPU type: --gpu H100",
    "num_gpus": "the number of GPUs: --gpus 64, or --nodes 8",
    "model": "the model: --model CARD or --model config.json",
    "seq_len": "the sequence length: -s seq_len=4096",
    "global_batch": "the batch of a step, in sequences: -s global_batch=512",
}
"""What every run needs, and where it comes from when the file does not say it."""
MEASURED = "measured"
"""What was measured of a run, beside its keys."""
ANY_RUN = {"model": "any", "seq_len": 1, "global_batch": 1, "gpu": "any", "num_gpus": 1}
"""What a run cannot be without, for a key to be looked at by itself."""


@dataclass(frozen=True, slots=True)
class Given:
    """What the command line says beside the file."""

    gpu: str | None = None
    gpus: int | None = None
    nodes: int | None = None
    model: str | None = None
    """A model card, or a Hugging Face config.json."""
    settings: tuple[tuple[str, Any], ...] = ()
    """Keys of a run, by dotted path, that replace what the file says."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Variables that a script takes from its environment."""

    @property
    def world(self) -> int | None:
        """GPUs, if the command line says them: nodes count the GPUs that a node with this GPU usually has."""
        if self.gpus is not None or self.nodes is None or self.gpu is None:
            return self.gpus
        try:
            return self.nodes * accelerator_of(self.gpu, None).gpus_per_node
        except Refused:
            return None


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch."""

    id: str
    framework: Framework
    written: dict[str, Any]
    """Keys and values of a runs file."""
    warnings: tuple[str, ...] = ()
    """What was assumed."""
    findings: tuple[Finding, ...] = ()
    """What the file alone shows to be wrong."""
    open: Mapping[str, str] = field(default_factory=dict)
    """Keys whose value the file takes from elsewhere, and from where."""
    refused: str = ""
    """Why it cannot be estimated, where it cannot."""
    node_gpus: int | None = None
    """GPUs of a node that the file uses."""
    peaks: Mapping[str, str] = field(default_factory=dict)
    """Variables of the file that name a GPU's peak."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that change how memory is allocated."""
    derived_batch: bool = False
    """The batch follows from the number of GPUs."""

    def said(self, *findings: Finding, **written: Any) -> Launch:
        """The same with more findings and keys."""
        return replace(self, findings=(*self.findings, *findings), written=self.written | written)


def completed(launch: Launch, given: Given, file: str, folder: Path) -> Launch:
    """The launch with the command line's facts laid over the file's.

    Raises InvalidInput that names everything that is still missing.
    """
    written = dict(launch.written)
    if given.model is not None:
        written["model"] = model_of(given.model, folder, file)
    if given.gpu is not None:
        written["gpu"] = given.gpu
    warnings = list(launch.warnings) + _counted(written, launch, given)
    check_settings(given.settings)
    written = overrides.apply(written, given.settings)
    settled = {key for key, _ in given.settings} | {key for key in ("gpu", "model") if getattr(given, key)}
    settled |= {"num_gpus"} if given.gpus or given.nodes else set()
    unsettled = {key: why for key, why in launch.open.items() if not settled & {key, key.split(".")[0]}}
    if launch.derived_batch and written.get("global_batch") is None:
        warnings += _derived(written)
    missing = [f"{unsettled[key]} (-s {key}=...)" for key in unsettled if key not in NEEDED]
    for key, ask in NEEDED.items():
        if written.get(key) is None or key in unsettled:
            missing.append(f"{ask} ({unsettled[key]})" if key in unsettled else ask)
    if missing:
        raise InvalidInput(
            file=file, found=f"not said: {'; '.join(missing)}", accepted="these facts beside the file"
        )
    return replace(launch, written=written, warnings=tuple(warnings))


def check_settings(settings: tuple[tuple[str, Any], ...]) -> None:
    """Raises InvalidInput where a key is none of a run's, or its value none that it takes."""
    for key, value in settings:
        name = key.split(".")[0]
        if name not in RunFacts.model_fields and name != MEASURED:
            raise InvalidInput(
                file=f"-s {key}",
                found="is no key of a run",
                accepted="the keys of a runs file, or measured.NAME",
                suggestion=nearest(name, (*RunFacts.model_fields, MEASURED)),
            )
        if key == name != MEASURED:
            try:
                RunFacts.model_validate(ANY_RUN | {key: value})
            except ValidationError as error:
                wrong = first_fault(error)
                raise InvalidInput(
                    file=f"-s {key}", found=wrong.found, accepted=wrong.accepted, suggestion=wrong.hint
                ) from None


def _counted(written: dict[str, Any], launch: Launch, given: Given) -> list[str]:
    """Fills in the number of GPUs."""
    node = launch.node_gpus
    if given.nodes is not None and node is None and isinstance(written.get("gpu"), str):
        try:
            node = accelerator_of(written["gpu"], written.get("gpu_variant")).gpus_per_node
        except Refused:
            return []  # the run itself says what is wrong with the GPU's name
        written["num_gpus"] = given.nodes * node
        return [f"gpus_per_node: not given; {node}, as {written['gpu']} usually has"]
    if given.gpus is not None:
        written["num_gpus"] = given.gpus
    elif given.nodes is not None and node is not None:
        written["num_gpus"] = given.nodes * node
    if node is not None:
        written.setdefault("gpus_per_node", node)
    return []


def _derived(written: dict[str, Any]) -> list[str]:
    """Without a global batch Megatron-LM and DeepSpeed take one micro-batch (or accumulation) a replica."""
    ranks, micro, steps = written.get("num_gpus"), written.get("micro_batch"), written.pop("accumulation", 1)
    shard = 1
    for key in ("tp", "cp", "pp"):
        shard *= written.get(key) or 1
    if not ranks or not micro:
        return []
    written["global_batch"] = max(1, ranks // shard) * micro * steps
    return [f"global_batch: not given; {written['global_batch']} = micro_batch * accumulation * dp"]


def model_of(name: str, folder: Path, file: str) -> Any:
    """A card's name, or the shapes of a config.json, here or beside the file. Raises InvalidInput."""
    path = Path(name)
    if path.suffix != ".json" and not path.is_dir():
        return name
    try:
        found = architecture_of(str(path.absolute()) if path.exists() else name, folder)
    except Refused as refused:
        raise refused.of(file, f"--model {name}") from None
    return found.model_dump(exclude_none=True)
