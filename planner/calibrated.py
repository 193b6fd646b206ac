"""A cluster's calibration as problems and runs name it: a file of `planner calibrate`, or its content."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, ValidationInfo, WithJsonSchema

from hardware.accelerator import Accelerator
from hardware.calibration import calibrated_accelerator
from hardware.errors import HardwareFileError
from planner.errors import InvalidInput, Refused, shown
from planner.yaml_file import read_mapping

ACCEPTED = "a YAML file that `planner calibrate` wrote, or its content as a mapping"


def read_calibration(value: Any, folder: Path) -> dict[str, Any]:
    """The content of a calibration: a mapping, or the file of that name beside the file that names it.

    A name that is not there is looked for where the command runs, as -s on the command line means it.
    Raises Refused.
    """
    if isinstance(value, Mapping):
        return dict(value)
    if not isinstance(value, str) or not value.strip():
        raise Refused(f"found {shown(value)}", ACCEPTED)
    beside = folder / value
    try:
        return read_mapping(beside if beside.exists() else Path(value))
    except InvalidInput as error:
        raise Refused(str(error), ACCEPTED) from None


def with_calibration(gpu: Accelerator, content: Mapping[str, Any]) -> Accelerator:
    """The GPU as this cluster has it. Raises Refused."""
    try:
        return calibrated_accelerator(gpu, content, "calibration")
    except HardwareFileError as error:
        raise fault(error) from None


def fault(error: HardwareFileError) -> Refused:
    """The catalogue's first complaint, path apart from text."""
    path, _, text = error.problems[0].partition(": ")
    found, _, rest = text.partition("; ")
    hint, _, accepted = rest.rpartition("accepted: ")
    return Refused(
        found, accepted or "what the GPU files of the catalogue hold", hint.strip(), tuple(path.split("."))
    )


def _read(value: Any, info: ValidationInfo) -> dict[str, Any] | None:
    return None if value is None else read_calibration(value, (info.context or {}).get("folder", Path()))


CalibrationField = Annotated[
    dict[str, Any] | None,
    BeforeValidator(_read),
    WithJsonSchema({"type": ["string", "object"], "examples": ["my_cluster.yaml"]}),
]
