"""Why overlap of tensor-, data- and pipeline-parallel traffic is as it is, and what it would be otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from planner.account import Account
from planner.difference import Difference
from planner.frameworks.table import framework_of
from planner.instance import Instance
from planner.reason_words import change_words, label
from planner.requirements import Requirement
from planner.search import Plan
from planner.solution import Reason
from planner.switch_rules import lacking, uncovered
from planner.switches import SWITCHES, TRAFFIC
from planner.variants import best_plan, objective_value, overlap_words, repriced, with_switches


def switch_reasons(instance: Instance, mine: Account) -> list[Reason]:
    """The same plan with each overlap of its software switched off, of those that the problem leaves open.

    Nothing has to be solved again: off is never quicker and needs as much memory, whatever the layout.
    """
    if instance.assume_mfu is not None:
        return []  # times are agreed, whatever the software does
    return [switched_off(instance, mine, name) for name in open_switches(instance, mine.plan)]


def switched_off(instance: Instance, mine: Account, name: str) -> Reason:
    """What the plan's own layout takes with an overlap switched off."""
    there = with_switches(instance, {name: False})
    theirs = Account.within(there, repriced(there, mine.plan))
    of = Difference.of(instance, mine, theirs)
    words = f"{label(name)} on -> off, same layout: {change_words(of.effect)}; off is never quicker."
    return Reason(
        decision=name, chosen="on", alternative="off", effect=of.effect, because=of.because, text=words
    )


def open_switches(instance: Instance, plan: Plan) -> list[str]:
    """Overlap of a plan that is on, and that the same layout could have off."""
    rules, on = framework_of(instance.framework), overlap_words(instance, plan)
    fixed_by = {name for name, value in on.items() if value == "off"} | set(instance.switches)
    if rules is not None:
        fixed_by |= set(rules.always)
        fixed_by |= set() if rules.exposes(plan.of("zero"), pipeline=plan.of("pp") > 1) else {"dp_overlap"}
        fixed_by |= {"pp_overlap"} if plan.of("pp") < rules.exposed_chunks else set()
    return [name for name in SWITCHES if name not in fixed_by]


def unswitchable(narrow: Instance, question: Mapping[str, Any]) -> str:
    """Why the software or the model does not have overlap as it is asked for; empty where they do."""
    for name in (name for name in question if name in TRAFFIC):
        on = question[name] == "on"
        why = lacking(narrow.framework, narrow.stack, name, on=on) if name in SWITCHES else ""
        why = why or (uncovered(narrow.architecture, narrow.stack, name) if on else "")
        if why:
            return why
    return ""


def best_asked(narrow: Instance, question: Mapping[str, Any], until: float | None = None) -> Plan | None:
    """The best plan of an instance in which what is asked is fixed.

    Gradients to be overlapped need replicas, or ranks of context parallelism: either may be best.
    """
    found = best_plan(narrow, until=until)
    if found is None or question.get("dp_overlap") in (None, overlap_words(narrow, found)["dp_overlap"]):
        return found
    ways = [best_plan(with_more(narrow, name), until=until) for name in ("dp", "cp")]
    return min((way for way in ways if way), key=lambda way: objective_value(narrow, way), default=None)


def with_more(instance: Instance, name: str) -> Instance:
    """The instance with a size above 1."""
    narrowing = instance.narrowing
    required = (*narrowing.required, Requirement(name, ">", (1,)))
    return replace(instance, narrowing=replace(narrowing, required=required))
