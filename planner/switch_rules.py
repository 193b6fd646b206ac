"""Switches that a problem asks for and that its framework, its profile or its model does not have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from costmodel.architecture import Architecture
from costmodel.stack import Stack, stack_names
from costmodel.tensor_parallel import overlap_covers
from planner.errors import Refused
from planner.frameworks.table import MOST_MTP, framework_of, table
from planner.switches import TRAFFIC, has, hides, software

if TYPE_CHECKING:
    from planner.narrowing import Search


def refuse_switches(search: Search) -> None:
    """Raises Refused where framework, profile or other decisions do not have what is asked of a switch."""
    for name, on in search.chosen.items():
        _asked_on(search, name) if on else _asked_off(search, name)
    if search.ep_overlap:
        _experts(search)


def lacking(framework: str, stack: Stack, name: str, *, on: bool) -> str:
    """Why software cannot have a switch on, or off, as a clause; empty where it can."""
    rules, of = framework_of(framework), TRAFFIC[name]
    if rules is not None and on and not has(rules, name):
        return f"{framework} cannot hide {of}"
    if rules is not None and not on and name in rules.always:
        return f"{framework} overlaps {of} without a switch"
    return f"the profile {stack.name} hides no {of}" if on and not hides(stack, name) else ""


def always_overlaps(framework: str, stages: Sequence[int]) -> bool:
    """Whether a framework hides the gradients' traffic of each of some ZeRO stages, switched off or not."""
    rules = framework_of(framework)
    return rules is not None and bool(stages) and not any(rules.exposes(zero) for zero in stages)


def uncovered(model: Architecture, stack: Stack, name: str) -> str:
    """Why a model has nothing that a switch could hide, as a clause; empty where it has."""
    if name == "tp_overlap" and not overlap_covers(model, stack):
        return "Megatron's user buffers do not know the linears of latent attention"
    if name == "ep_overlap" and model.moe is None:
        return f"{model.name} has no experts"
    if name == "ep_overlap" and model.mtp_layers > MOST_MTP:
        return f"{model.name} has {model.mtp_layers} layers of multi-token prediction, more than {MOST_MTP}"
    return ""


def _asked_on(search: Search, name: str) -> None:
    if why := lacking(search.framework, search.software, name, on=True):
        stacks = ", ".join(each for each in stack_names() if hides(software(each, {}), name))
        names = ", ".join(framework for framework, each in table().items() if has(each, name))
        accepted = f"false, or a framework ({names}) with a stack ({stacks}) that hides it"
        raise Refused(f"found true, and {why}", accepted, "", (name,))


def _asked_off(search: Search, name: str) -> None:
    if why := lacking(search.framework, search.software, name, on=False):
        raise Refused(f"found false, and {why}", "true, or `framework: any`", "", (name,))
    if name == "dp_overlap" and search.zero and always_overlaps(search.framework, search.zero):
        stages = ", ".join(map(str, search.zero))
        found = f"found false with `zero: [{stages}]`, which {search.framework} overlaps in any case"
        raise Refused(found, "true, or other ZeRO stages", "", ("dp_overlap",))


def _experts(search: Search) -> None:
    """Where no plan could hide the experts' traffic."""
    rules, where = framework_of(search.framework), ("ep_overlap",)
    if rules is not None and not rules.expert_overlap:
        able = ", ".join(name for name, each in table().items() if each.expert_overlap)
        found = f"found true, and {search.framework} cannot hide {TRAFFIC['ep_overlap']}"
        raise Refused(found, f"false, or a `framework` that can: {able}", "", where)
    if search.ep == (1,):
        raise Refused("found true with `ep: 1`, which has no such traffic", "ep of 2 or more", "", where)
    if search.recompute == ("full",):
        found = "found true with `recompute: full`, which excludes it"
        raise Refused(found, "recompute none or selective", "", where)


def refuse_for_model(search: Search, model: Architecture) -> None:
    """Raises Refused where the model has nothing that could be hidden as is asked."""
    for name in ("tp_overlap", "ep_overlap"):
        if getattr(search, name) and (why := uncovered(model, search.software, name)):
            raise Refused(f"found true, and {why}", "false", "", (name,))
