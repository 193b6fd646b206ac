"""Which GPU of the catalogue a run names."""

from __future__ import annotations

import re
from contextlib import suppress

from hardware.accelerator import Accelerator
from hardware.catalogue import UnknownAccelerator, accelerator_names, load_accelerator
from planner.errors import Refused, shown

SIZE = re.compile(r"(\d+)\s*GB\b(?!/s)", re.IGNORECASE)


def accelerator_of(gpu: str, variant: str | None) -> Accelerator:
    """The catalogue's GPU: the one whose memory size the variant names, if it has one."""
    if size := SIZE.search(variant or ""):
        with suppress(UnknownAccelerator):
            return load_accelerator(f"{gpu}-{size.group(1)}GB")
    try:
        return load_accelerator(gpu)
    except UnknownAccelerator as error:
        hint = f"did you mean {' or '.join(map(repr, error.likely))}?" if error.likely else ""
        raise Refused(
            f"found {shown(gpu)}, which is no GPU of the catalogue",
            ", ".join(accelerator_names()),
            hint,
            ("gpu",),
        ) from None
