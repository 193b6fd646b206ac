"""How layers are dealt out to virtual pipeline stages."""

from __future__ import annotations

import re

from costmodel.architecture import Architecture
from costmodel.parameters import layer_parameters
from costmodel.pipeline import plain_layers
from costmodel.stack_parallel import Deals
from planner.errors import Refused

ENDS = 2
"""Embedding and loss, where each takes the place of a layer."""
GROUP = re.compile(r"\(([^()]*)\)\*(\d+)")
REPEAT = re.compile(r"([A-Za-z])\*(\d+)")
LONGEST = 10_000
"""Characters that no written layout of a real model needs."""


def layers_of_stages(
    architecture: Architecture,
    stages: int,
    layout: str | None,
    embedding_slots: bool | None,
    deals: Deals = "middle",
) -> list[int]:
    """Layers of each of `stages` virtual stages.

    A written layout decides. Else: equal where they divide; one fewer on the first and the last stage
    where layers + 2 divide (or when the run says that the ends take a slot); DeepSeek-V3's rule,
    ceil(L/stages) on each stage and the rest on the last, for models with MTP modules or leading dense
    layers; else as even as can be, the remainder in the middle or, where the framework deals so, last.
    nanotron evens out parameters instead.
    """
    layers = architecture.layers
    if stages > layers + ENDS:
        raise Refused(
            f"{stages} virtual stages for {layers} layers",
            "a layer a stage, embedding and loss included",
            where=("pp",),
        )
    if layout is not None:
        return written_layout(layout, layers, stages)
    if deals == "parameters":
        return even_parameters(architecture, stages)
    slots = (layers + ENDS) % stages == 0
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
    split = plain_layers(layers, stages)
    return sorted(split.tolist()) if deals == "late" else split.tolist()


def _heavy_end(architecture: Architecture) -> bool:
    moe = architecture.moe
    return bool(moe and (architecture.mtp_layers or moe.first_dense_layers))


def even_parameters(architecture: Architecture, stages: int) -> list[int]:
    """Cuts at the layers nearest to equal shares of the parameters, where the LM head counts V*d."""
    layers = architecture.layers
    each = sum(layer_parameters(architecture, kind).total for kind in architecture.pattern()) / layers
    share = (layers + architecture.vocab * architecture.hidden / each) / stages
    cuts = [min(round(share * stage), layers) for stage in range(1, stages)] + [layers]
    return [end - start for start, end in zip([0, *cuts], cuts, strict=False)]


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
    split = [stage.count("t") for stage in expanded_layout(text, layers + 1).split("|")]
    if len(split) != stages or sum(split) != layers:
        raise Refused(
            f"{text!r} lays {sum(split)} layers on {len(split)} virtual stages",
            f"a layout of {layers} layers on {stages} virtual stages (pp*vpp), like Et*4|(t*4|)*14tmL",
            where=("pp_layout",),
        )
    return split


def expanded_layout(text: str, most: int = LONGEST) -> str:
    """The layout with `(tt|)*29` and `t*4` written out, no letter more than `most` times."""
    expanded = text.strip().rstrip(";").replace(",", "")
    while (match := GROUP.search(expanded)) and len(match.group(1)) * int(match.group(2)) < LONGEST:
        expanded = expanded[: match.start()] + match.group(1) * int(match.group(2)) + expanded[match.end() :]
    return REPEAT.sub(lambda match: match.group(1) * min(int(match.group(2)), most), expanded)
