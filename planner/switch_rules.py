"""Switches that a problem asks for and that its framework, its profile or its model does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costmodel.architecture import Architecture
from costmodel.stack import stack_names
from costmodel.tensor_parallel import overlap_covers
from planner.errors import Refused
from planner.frameworks.table import Framework, framework_of, table
from planner.switches import TRAFFIC, has, hides, software

if TYPE_CHECKING:
    from planner.narrowing import Search

MOST_MTP = 1
"""Multi-token-prediction layers with which the experts' traffic can be hidden (TransformerConfig)."""


def refuse_switches(search: Search) -> None:
    """Raises Refused where framework, profile or other decisions do not have what is asked of a switch."""
    for name, on in search.chosen.items():
        _asked_on(search, name) if on else _asked_off(search, name)
    if search.ep_overlap:
        _experts(search)


def _asked_on(search: Search, name: str) -> None:
    rules, of = framework_of(search.framework), TRAFFIC[name]
    if rules is not None and not has(rules, name):
        able = ", ".join(framework for framework, each in table().items() if has(each, name))
        found = f"found true, and {search.framework} cannot hide {of}"
        raise Refused(found, f"false, or a `framework` that can: {able}", "", (name,))
    if not hides(search.software, name):
        able = ", ".join(each for each in stack_names() if hides(software(each, {}), name))
        found = f"found true, and the profile {search.profile} hides no {of}"
        raise Refused(found, f"false, or a `stack` that does: {able}", "", (name,))


def _asked_off(search: Search, name: str) -> None:
    rules = framework_of(search.framework)
    if rules is None:
        return
    if name in rules.always:
        found = f"found false, and {search.framework} overlaps {TRAFFIC[name]} without a switch"
        raise Refused(found, "true, or `framework: any`", "", (name,))
    if name == "dp_overlap":
        _sharded(search, rules)


def _sharded(search: Search, rules: Framework) -> None:
    if search.zero and not any(rules.exposes(zero) for zero in search.zero):
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
    if search.ep_overlap and model.moe is None:
        raise Refused(f"found true, and {model.name} has no experts", "false", "", ("ep_overlap",))
    if search.ep_overlap and model.mtp_layers > MOST_MTP:
        found = f"found true, and {model.name} has {model.mtp_layers} multi-token-prediction layers"
        raise Refused(found, f"false; true with at most {MOST_MTP}", "", ("ep_overlap",))
    if search.tp_overlap and not overlap_covers(model, search.software):
        found = "found true, and Megatron's user buffers do not know the linears of latent attention"
        raise Refused(found, "false", "", ("tp_overlap",))
