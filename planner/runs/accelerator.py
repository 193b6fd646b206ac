"""Which GPU of the catalogue a run names."""

from __future__ import annotations

import re
from contextlib import suppress

from hardware.accelerator import Accelerator
from hardware.catalogue import UnknownAccelerator, load_accelerator
from planner.gpu import of_catalogue

SIZE = re.compile(r"(\d+)\s*GB\b(?!/s)", re.IGNORECASE)


def accelerator_of(gpu: str, variant: str | None) -> Accelerator:
    """The catalogue's GPU: the one whose memory size the variant names, if it has one."""
    if size := SIZE.search(variant or ""):
        with suppress(UnknownAccelerator):
            return load_accelerator(f"{gpu}-{size.group(1)}GB")
    return of_catalogue(gpu, "gpu")
