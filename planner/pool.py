"""GPUs that can be had: which, how many, at what price."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    Field,
    PrivateAttr,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from costmodel.run import Fabric
from hardware.accelerator import Accelerator
from planner.calibrated import CalibrationField, with_calibration
from planner.errors import Refused
from planner.gpu import GpuField
from planner.quantities import Bandwidth, Count, Duration, Price, Range, Strict, counted_range

SAME = 0.01
"""Relative difference of two line rates that are the same one."""
NUMBER = {"type": "integer", "minimum": 1}
COUNTED = {
    "anyOf": [NUMBER, {"type": "object", "properties": {"min": NUMBER, "max": NUMBER}, "required": ["max"]}]
}
Counted = Annotated[Range[Count], BeforeValidator(counted_range), WithJsonSchema(COUNTED)]


class Pool(Strict):
    """GPUs of one type that can be had together."""

    gpu: GpuField
    """A name of the catalogue, `{based_on: NAME, ...facts that differ}`, or a path to a YAML file of both."""
    nodes: Counted | None = None
    """Nodes: a number means exactly that many, `{min, max}` a range. Either this or `gpus`."""
    gpus: Counted | None = None
    """GPUs, as `nodes`; plans use whole nodes."""
    price: Price = Field(default=None, validate_default=True)  # pyright: ignore[reportArgumentType]
    """USD/gpu-hour; the catalogue's typical reserved price unless given, which the report then says."""
    committed: Duration = 0.0
    """A window that is paid for whether it is used or not; a longer run pays for its whole length."""
    network: Bandwidth | None = None
    """Network bandwidth one way that each GPU can call its own; the usual node's unless given."""
    nvlink: Bandwidth | None = None
    """NVLink bandwidth one way of a GPU; the GPU's own unless given."""
    calibration: CalibrationField = None
    """What this cluster was measured to reach: a file of `planner calibrate`."""

    _accelerator: Accelerator = PrivateAttr()

    @field_validator("price", mode="before")
    @classmethod
    def _usual_price(cls, value: Any, info: ValidationInfo) -> Any:
        if value is None and "gpu" in info.data:
            return f"{info.data['gpu'].accelerator.prices.reserved.typical!r} USD/gpu-hour"
        return "1 USD/gpu-hour" if value is None else value

    @model_validator(mode="after")
    def _calibrated(self) -> Pool:
        usual, content = self.gpu.accelerator, self.calibration
        try:
            self._accelerator = usual if content is None else with_calibration(usual, content)
        except Refused as refused:
            raise refused.below("calibration") from None
        if self.nvlink is not None and "collectives" in ((content or {}).get("curves") or {}):
            found = "both nvlink and a calibration with measured collectives are given"
            raise Refused(found, "one of them: the calibration has measured NVLink", "", ("nvlink",))
        if self.network is not None and "network" in (content or {}):
            line_rate = Fabric.of(self._accelerator).nic
            if abs(self.network / line_rate - 1) > SAME:
                found = f"{self.network:.4g} B/s, but the calibration was made for {line_rate:.4g} B/s"
                hint = "`planner calibrate --network` says what the NICs carry"
                raise Refused(found, "the line rate of the calibration", hint, ("network",))
        return self

    @model_validator(mode="after")
    def _counted_once(self) -> Pool:
        if (self.nodes is None) == (self.gpus is None):
            found = (
                "neither nodes nor gpus is given" if self.nodes is None else "both nodes and gpus are given"
            )
            raise Refused(found, "nodes: {max: 128}, or gpus: {max: 1024}")
        if self.min_nodes > self.max_nodes:
            node, given = self.accelerator.gpus_per_node, self.gpus.max if self.gpus else 0
            raise Refused(
                f"{given} GPUs are not whole nodes of {node}", f"a multiple of {node}", "", ("gpus",)
            )
        return self

    @property
    def accelerator(self) -> Accelerator:
        """The GPU, as this cluster was measured where it was."""
        return self._accelerator

    @property
    def min_nodes(self) -> int:
        if self.nodes is not None:
            return self.nodes.min
        return -(-self.gpus.min // self.accelerator.gpus_per_node) if self.gpus else 1

    @property
    def max_nodes(self) -> int:
        if self.nodes is not None:
            return self.nodes.max
        return self.gpus.max // self.accelerator.gpus_per_node if self.gpus else 0

    @property
    def assumed_price(self) -> bool:
        """The price is the catalogue's, not the file's."""
        return "price" not in self.model_fields_set

    @property
    def fabric(self) -> Fabric:
        """The GPU's usual links, with what the pool says about them."""
        usual = Fabric.of(self.accelerator)
        return Fabric(
            usual.gpus_per_node,
            usual.domain,
            usual.nvlink if self.nvlink is None else self.nvlink,
            usual.nic if self.network is None else self.network,
        )
