"""Lay a cluster's calibration over a GPU of the catalogue.

A calibration file is an overlay with the keys of `Accelerator` that measurements can say something about:

    gpu: H800                        # whose facts it is laid over; another GPU is refused
    curves: {gemm: ..., collectives: ...}
    link: {bandwidth_scale: 1.0}     # the curves are the cluster's own, not to be scaled
    network: {nic: 50.0e+9}          # the line rate that the factors of the network are relative to
    sustained: {fp8_speedup: 1.9}
    calibration: {step: 0.98, compute: 0.97, communication: 1.02, nvlink: ..., network: ..., source: ...}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from hardware.accelerator import Accelerator
from hardware.catalogue import load_accelerator, overlay
from hardware.errors import HardwareFileError, UnknownAccelerator

MEASURED: Mapping[str, tuple[str, ...]] = {
    "curves": ("gemm", "collectives"),
    "link": ("bandwidth_scale",),
    "network": ("nic",),
    "sustained": ("fp8_speedup",),
}
"""What a calibration may change besides adding its factors."""
KEYS = ("gpu", *MEASURED, "calibration")


def calibrated_accelerator(base: Accelerator, content: Mapping[str, Any], where: str) -> Accelerator:
    """`base` with a calibration file's content over it; `where` names the file in errors.

    Raises HardwareFileError: a key that no calibration has, another GPU, values that cannot be.
    """
    _check_keys(content, where)
    _check_gpu(base, content["gpu"], where)
    changes = {key: _numbered(value) for key, value in content.items() if key != "gpu"}
    return overlay(base, changes, where)


def _check_keys(content: Mapping[str, Any], where: str) -> None:
    for key in KEYS:
        if key in ("gpu", "calibration") and key not in content:
            raise HardwareFileError(where, (f"{key}: missing; is this a file of `planner calibrate`?",))
    for key, value in content.items():
        if key not in KEYS:
            raise HardwareFileError(where, (f"{key}: unknown key; accepted: {', '.join(KEYS)}",))
        if key != "gpu" and not isinstance(value, Mapping):
            raise HardwareFileError(where, (f"{key}: found {value!r}; accepted: a mapping",))
        for inner in cast("Mapping[str, Any]", value) if key in MEASURED else ():
            if inner not in MEASURED[key]:
                accepted = ", ".join(MEASURED[key])
                raise HardwareFileError(where, (f"{key}.{inner}: unknown key; accepted: {accepted}",))


def _check_gpu(base: Accelerator, named: Any, where: str) -> None:
    try:
        measured = load_accelerator(str(named)).name
    except UnknownAccelerator as error:
        raise HardwareFileError(where, (f"gpu: {error}",)) from error
    if base.name != measured:
        problem = f"gpu: found {measured!r}; accepted: {base.name}, the GPU it is laid over"
        raise HardwareFileError(where, (problem,))


def _numbered(value: Any) -> Any:
    """Group sizes as numbers, also where a JSON file has made text of them."""
    if not isinstance(value, Mapping):
        return value
    inner = cast("Mapping[Any, Any]", value)
    return {
        int(key) if isinstance(key, str) and key.isdecimal() else key: _numbered(each)
        for key, each in inner.items()
    }
