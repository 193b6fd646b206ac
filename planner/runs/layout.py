"""How layers are dealt out to virtual pipeline stages."""

from __future__ import annotations

import re

from costmodel.architecture import Architecture
from costmodel.pipeline import plain_layers
from planner.errors import Refused

ENDS = 2
"""Embedding and loss, where each takes the place of a layer."""
GROUP = re.compile(r"\(([^()]*)\)\*(\d+)")
REPEAT = re.compile(r"([A-Za-z])\*(\d+)")
LONGEST = 100_000


def layers_of_stages(
    architecture: Architecture, stages: int, layout: str | None, embedding_slots: bool | None
) -> list[int]:
    """Layers of each of `stages` virtual stages.

    A written layout decides. Else: equal where they divide; one fewer on the first and the last stage
    where layers + 2 divide (or when the run says that the ends take a slot); DeepSeek-V3's rule,
    ceil(L/stages) on each stage and the rest on the last, for models with MTP modules or leading dense
    layers; else as even as can be, the remainder in the middle.
    """
    layers = architecture.layers
    if stages > layers:
        raise Refused(f"{stages} virtual stages for {layers} layers", "at most one stage a layer", where=("pp",))
    if layout is not None:
        return written_layout(layout, layers, stages)
    slots = (layers + ENDS) % stages == 0 and (layers + ENDS) // stages > 1
    if slots and (layers % stages or embedding_slots):
        each = (layers + ENDS) // stages
        split = [each] * stages
        split[0] -= 1
        split[-1] -= 1
        return split
    if layers % stages == 0:
        return [layers // stages] * stages
    if _heavy_end(architecture):
        return front_loaded(layers, stages)
    return plain_layers(layers, stages).tolist()


def _heavy_end(architecture: Architecture) -> bool:
    moe = architecture.moe
    return bool(moe and (architecture.mtp_layers or moe.first_dense_layers))


def front_loaded(layers: int, stages: int) -> list[int]:
    """ceil(L/stages) layers on each stage until they run out."""
    each, left = -(-layers // stages), layers
    split: list[int] = []
    for _ in range(stages):
        split.append(min(each, left))
        left -= split[-1]
    return split


def written_layout(text: str, layers: int, stages: int) -> list[int]:
    """Layers of each stage of a Megatron-Core layout: `|` ends a stage, `t` is a layer, `x*n` repeats."""
    expanded = text.strip().rstrip(";")
    while match := GROUP.search(expanded):
        expanded = expanded[: match.start()] + match.group(1) * int(match.group(2)) + expanded[match.end() :]
        if len(expanded) > LONGEST:
            break
    expanded = REPEAT.sub(lambda match: match.group(1) * min(int(match.group(2)), LONGEST), expanded)
    split = [stage.count("t") for stage in expanded.split("|")]
    if len(split) != stages or sum(split) != layers:
        raise Refused(
            f"{text!r} lays {sum(split)} layers on {len(split)} virtual stages",
            f"a layout of {layers} layers on {stages} virtual stages (pp*vpp), like Et*4|(t*4|)*14tmL",
            where=("pp_layout",),
        )
    return split
