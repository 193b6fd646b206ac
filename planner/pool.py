"""GPUs that can be had: which, how many, at what price."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationInfo, WithJsonSchema, field_validator, model_validator

from costmodel.run import Fabric
from hardware.accelerator import Accelerator
from planner.errors import Refused
from planner.gpu import GpuField
from planner.quantities import Bandwidth, Count, Duration, Price, Range, Strict, counted_range

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

    @field_validator("price", mode="before")
    @classmethod
    def _usual_price(cls, value: Any, info: ValidationInfo) -> Any:
        if value is None and "gpu" in info.data:
            return f"{info.data['gpu'].accelerator.prices.reserved.typical!r} USD/gpu-hour"
        return "1 USD/gpu-hour" if value is None else value

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
        return self.gpu.accelerator

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
