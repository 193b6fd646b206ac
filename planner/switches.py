"""Switches that hide tensor-, data- and pipeline-parallel traffic behind compute.

The fourth one, of the experts' traffic, is a decision of the search (`planner.space.recompute`): it changes
which layouts there are. These three are never slower on than off, so that only a problem that says so has
them off (`search.tp_overlap: false`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from costmodel.architecture import Architecture
from costmodel.overlap import without_overlap
from costmodel.stack import Stack, load_stack
from costmodel.tensor_parallel import overlap_covers
from planner.errors import Refused, shown
from planner.frameworks.table import Framework, framework_of

SWITCHES = ("tp_overlap", "dp_overlap", "pp_overlap")
TRAFFIC = {
    "tp_overlap": "tensor-parallel traffic",
    "dp_overlap": "data-parallel traffic",
    "pp_overlap": "transfers of interleaved stages",
    "ep_overlap": "the experts' traffic",
}
"""What each hides; all four."""
ON = {"off": False, "on": True}
WORDS = ON | {"false": False, "true": True}
SHARDED_GRADIENTS = 2
"""The ZeRO stage from which gradients are reduced in every micro-batch."""


def word(on: bool) -> str:
    """A switch as people say it."""
    return "on" if on else "off"


def spoken(value: Any) -> Any:
    """A value of a decision as people say it: switches as words, all else as it is."""
    return word(value) if isinstance(value, bool) else value


def switch(value: Any) -> Any:
    """Reads true or false, on or off. Raises Refused."""
    if value is None or isinstance(value, bool):
        return value
    if not isinstance(value, str) or value.lower() not in WORDS:
        raise Refused(f"found {shown(value)}", "true or false, one value")
    return WORDS[value.lower()]


def software(profile: str, chosen: Mapping[str, bool]) -> Stack:
    """A profile with the switches that were chosen to be off."""
    off = {name.removesuffix("_overlap"): chosen.get(name) is False for name in SWITCHES}
    return without_overlap(load_stack(profile), **off)


def hides(stack: Stack, name: str, zero: int = 0) -> bool:
    """Whether a profile hides traffic of a kind; gradients by the ZeRO stage."""
    if name == "tp_overlap":
        return stack.tensor_parallel.exposed < 1
    if name == "pp_overlap":
        return stack.pipeline.exposed_interleaved < 1
    data = stack.data_parallel
    return (data.reduce_window if zero < SHARDED_GRADIENTS else data.sharded_window) > 0


def overlaps_of(
    architecture: Architecture, stack: Stack, framework: str, sizes: Mapping[str, int]
) -> dict[str, bool]:
    """The switches of a plan, by its sizes: tp, cp, pp, vpp, dp, ep, etp and zero.

    On where there is traffic and it is hidden.
    """
    rules = framework_of(framework)
    sharded = sizes["tp"] > 1 and stack.tensor_parallel.sequence_parallel
    found = {
        "tp_overlap": sharded and overlap_covers(architecture, stack) and hides(stack, "tp_overlap"),
        "dp_overlap": shares_gradients(architecture, sizes) and hides_gradients(rules, stack, sizes),
        "pp_overlap": sizes["pp"] > 1 and sizes["vpp"] > 1 and hides(stack, "pp_overlap"),
    }
    return {name: on and (rules is None or has(rules, name)) for name, on in found.items()}


def has(rules: Framework, name: str) -> bool:
    """Whether a framework can hide traffic of a kind."""
    return name in rules.switches or name in rules.always


def shares_gradients(architecture: Architecture, sizes: Mapping[str, int]) -> bool:
    """Whether several ranks hold the same weights, dense ones or those of an expert."""
    ranks = sizes["dp"] * sizes["cp"]
    experts = ranks * sizes["tp"] // (sizes["ep"] * sizes["etp"]) if architecture.moe else 1
    return ranks > 1 or experts > 1


def hides_gradients(rules: Framework | None, stack: Stack, sizes: Mapping[str, int]) -> bool:
    """Whether gradients are reduced behind compute: as the profile has it, or as the framework can."""
    facts = {"pipeline": sizes["pp"] > 1}
    if rules is not None and not rules.overlaps(sizes["zero"], **facts):
        return False
    if rules is not None and not rules.exposes(sizes["zero"], **facts):
        return True
    return hides(stack, "dp_overlap", sizes["zero"])
