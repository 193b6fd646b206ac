"""The network of a node as people write it down."""

from __future__ import annotations

import re

from costmodel.run import Fabric
from hardware.accelerator import Accelerator

BITS = 8
GIGA = 1e9
SPEED = r"(\d+(?:\.\d+)?)\s*G(?:b(?:it)?(?:/s|ps)?(?:/sec)?)?\b"
COUNTED = re.compile(rf"(\d+)\s*x\s*(?:[A-Za-z][\w-]*\s+)*\(?{SPEED}", re.IGNORECASE)
"""`8x400 Gbit/s`, `4x ConnectX-7 IB NDR 400Gb/s`, `4x100Gb RoCE`."""
PER_NODE = re.compile(rf"{SPEED}[^,;]*\bper\s+node|EFA\s+{SPEED}", re.IGNORECASE)
PER_GPU = re.compile(rf"{SPEED}[^,;]*\bper\s+GPU", re.IGNORECASE)
COMPUTE = re.compile(r"compute:\s*([^,;]+)", re.IGNORECASE)
BARE = re.compile(SPEED, re.IGNORECASE)
LOCAL = re.compile(r"single\s+node|^NVLink$", re.IGNORECASE)


def fabric_of(
    gpu: Accelerator, text: str | None, gpus_per_node: int | None, domain: int | None, num_gpus: int
) -> tuple[Fabric, list[str]]:
    """The links of a run, and what had to be assumed."""
    usual = Fabric.of(gpu)
    node = gpus_per_node or usual.gpus_per_node
    reach = domain or max(usual.domain if gpus_per_node is None else min(usual.domain, node), 1)
    if domain is None and usual.domain > usual.gpus_per_node:
        reach = usual.domain
    nic, warnings = nic_per_gpu(text, node, usual.nic, needed=num_gpus > reach)
    return Fabric(node, reach, usual.nvlink, nic), warnings


def nic_per_gpu(text: str | None, node: int, usual: float, *, needed: bool) -> tuple[float, list[str]]:
    """bytes/s of network that each GPU can call its own.

    NIC count times speed over the GPUs of a node; a node's or a GPU's total where that is given; one
    NIC of that speed a GPU, no more than usual, where only a speed is.
    """
    if text is None:
        told = (
            [f"interconnect: not given; the usual {usual * BITS / GIGA:.0f} Gbit/s a GPU"] if needed else []
        )
        return usual, told
    chosen = COMPUTE.search(text)
    part = chosen.group(1) if chosen else text
    if counted := COUNTED.findall(part):
        return max(int(count) * float(speed) for count, speed in counted) * GIGA / BITS / node, []
    if total := PER_NODE.search(part):
        return float(total.group(1) or total.group(2)) * GIGA / BITS / node, []
    if own := PER_GPU.search(part):
        return float(own.group(1)) * GIGA / BITS, []
    if LOCAL.search(part) or not needed:
        return usual, []
    if (bare := BARE.search(part)) and float(bare.group(1)) * GIGA / BITS <= usual:
        return float(bare.group(1)) * GIGA / BITS, [
            f"interconnect: {text!r} names no count; one NIC of {bare.group(1)} Gbit/s a GPU"
        ]
    return usual, [f"interconnect: {text!r} names no speed; the usual {usual * BITS / GIGA:.0f} Gbit/s a GPU"]
