"""Applies a cluster's calibration: the one place where its factors meet the rates of a software profile."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import BaseModel

from costmodel.stack import Stack
from costmodel.stack_parts import ByGeneration
from hardware.accelerator import Accelerator, Calibration

HOST_SECONDS = (
    "gap",
    "layer",
    "attention",
    "ffn",
    "moe",
    "local_expert",
    "alltoall",
    "tp_collective",
    "wide_tp",
)
"""What of `Host` is time."""


def calibrated_stack(stack: Stack, gpu: Accelerator) -> Stack:
    """The profile with the rates that runs on this cluster reach; the profile itself without calibration.

    step multiplies the rates of all that a step does. Besides, compute multiplies those of GEMMs and
    attention; communication, and what was measured of each link for each kind of traffic, the shares of the
    links' speed that collectives and transfers reach.
    """
    found = gpu.calibration
    if found is None:
        return stack
    rate = found.step * found.compute
    return stack.model_copy(
        update={
            "gemm": _changed(stack.gemm, factor=_scaled(stack.gemm.factor, rate)),
            "attention": _changed(
                stack.attention,
                forward=_scaled(stack.attention.forward, rate),
                backward=_scaled(stack.attention.backward, rate),
            ),
            **_collectives(stack, found),
            **_rest(stack, found.step),
            "expert_parallel": _expert_parallel(stack, found),
        }
    )


def _collectives(stack: Stack, found: Calibration) -> dict[str, BaseModel]:
    """Tensor-parallel groups follow the measured curves inside a domain; the rest shares of line rates."""
    tensor, data, pipeline, shared = (
        stack.tensor_parallel,
        stack.data_parallel,
        stack.pipeline,
        found.step * found.communication,
    )
    return {
        "tensor_parallel": _changed(
            tensor,
            slowdown=tensor.slowdown / shared,
            nic_efficiency=tensor.nic_efficiency * found.network.ring,
        ),
        "data_parallel": _changed(
            data,
            nvlink_efficiency=data.nvlink_efficiency * shared * found.nvlink.ring,
            nic_efficiency=data.nic_efficiency * shared * found.network.ring,
        ),
        "pipeline": _changed(
            pipeline,
            nvlink_efficiency=pipeline.nvlink_efficiency * shared * found.nvlink.point_to_point,
            nic_efficiency=pipeline.nic_efficiency * shared * found.network.point_to_point,
        ),
    }


def _rest(stack: Stack, factor: float) -> dict[str, BaseModel]:
    """Memory-bound kernels, launches, the head's loss and the end of a step: their times over the factor."""
    host, head, optimizer = stack.host, stack.head, stack.optimizer
    return {
        "elementwise": _changed(stack.elementwise, factor=stack.elementwise.factor / factor),
        "host": _changed(host, **_over(host, HOST_SECONDS, factor)),
        "head": _changed(head, **_over(head, ("loss_bytes", "embedding_bytes"), factor)),
        "optimizer": _changed(
            optimizer, **_over(optimizer, ("sharded_bytes", "local_bytes", "step", "micro_batch"), factor)
        ),
    }


def _over(part: BaseModel, names: Iterable[str], factor: float) -> dict[str, float]:
    return {name: getattr(part, name) / factor for name in names}


def _expert_parallel(stack: Stack, found: Calibration) -> BaseModel:
    """Dispatch and combine; the cap on what a GPU sends across nodes moves with the network."""
    part = stack.expert_parallel
    near = found.step * found.communication * found.nvlink.all_to_all
    far = found.step * found.communication * found.network.all_to_all
    return _changed(
        part,
        alltoall_nvlink=part.alltoall_nvlink * near,
        deepep_nvlink=_scaled(part.deepep_nvlink, near),
        alltoall_nic=part.alltoall_nic * far,
        deepep_nic=part.deepep_nic * far,
        nic_cap=part.nic_cap * far,
    )


def _scaled(rates: ByGeneration, factor: float) -> ByGeneration:
    return ByGeneration(
        **{name: value * factor for name, value in rates.model_dump().items()},
    )


def _changed(part: BaseModel, **values: object) -> BaseModel:
    return part.model_copy(update=values)
