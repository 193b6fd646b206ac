"""A GPU of the catalogue, or one with facts laid over it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, PrivateAttr, ValidationInfo, WithJsonSchema

from hardware.accelerator import Accelerator
from hardware.catalogue import accelerator_names, load_accelerator, overlay
from hardware.errors import HardwareFileError, UnknownAccelerator
from planner.calibrated import fault
from planner.errors import InvalidInput, Refused, shown
from planner.quantities import Strict
from planner.units import bandwidth, size
from planner.yaml_file import read_mapping


class Gpu(Strict):
    """A GPU of the catalogue, or one with facts laid over it."""

    written: str | dict[str, Any]
    """The name, or the mapping `{based_on: NAME, ...facts}`."""

    _accelerator: Accelerator = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        self._accelerator = _resolved(self.written)

    @property
    def accelerator(self) -> Accelerator:
        return self._accelerator


def _read_gpu(value: Any, info: ValidationInfo) -> Gpu:
    if isinstance(value, Gpu):
        return value
    known = ", ".join(accelerator_names())
    accepted = f"a GPU of the catalogue ({known}), a mapping with based_on, or a path to YAML"
    if isinstance(value, str) and value.endswith((".yaml", ".yml")):
        folder = (info.context or {}).get("folder", Path())
        try:
            value = read_mapping(folder / value)
        except InvalidInput as error:
            raise Refused(str(error), "a YAML file of GPU facts") from None
    if not isinstance(value, (str, Mapping)):
        raise Refused(f"found {shown(value)}", accepted)
    return Gpu(written=of_catalogue(value).name if isinstance(value, str) else dict(value))


def _resolved(written: str | dict[str, Any]) -> Accelerator:
    """The catalogue's GPU of that name, with the mapping's facts laid over it."""
    if isinstance(written, str):
        return of_catalogue(written)
    facts = {key: _si(value) for key, value in written.items()}
    base = facts.pop("based_on", None)
    if base is None:
        hint = "a GPU of its own goes into a YAML file like those of the catalogue, or overlays one of them"
        raise Refused(
            "missing",
            f"the GPU that the facts are laid over: {', '.join(accelerator_names())}",
            hint,
            ("based_on",),
        )
    if not isinstance(base, str):
        raise Refused(f"found {shown(base)}", "a name of the catalogue", where=("based_on",))
    try:
        return overlay(of_catalogue(base, "based_on"), facts)
    except HardwareFileError as error:
        raise fault(error) from None


def of_catalogue(name: str, *where: str) -> Accelerator:
    """The GPU of that name. Raises `Refused`, with the place of the name in what was read."""
    try:
        return load_accelerator(name)
    except UnknownAccelerator as error:
        raise Refused(
            f"found {shown(name)}, which is no GPU of the catalogue",
            ", ".join(accelerator_names()),
            error.hint,
            where,
        ) from None


def _si(value: Any) -> Any:
    """Sizes and bandwidths may be written with their unit (80 GB, 400 Gbit/s); the rest is kept."""
    if isinstance(value, Mapping):
        return {key: _si(each) for key, each in value.items()}
    if isinstance(value, str) and value[:1].isdigit():
        for read in (size, bandwidth):
            with suppress(Refused):
                return read(value)
    return value


GpuField = Annotated[
    Gpu,
    BeforeValidator(_read_gpu),
    PlainSerializer(lambda gpu: gpu.written),
    WithJsonSchema(
        {"type": ["string", "object"], "examples": ["H800", "H20", {"based_on": "H100", "name": "H100-PCIe"}]}
    ),
]
