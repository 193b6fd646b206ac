"""Plans that were tampered with: what a validator has to see."""

from __future__ import annotations

from typing import Any

from planner.solution import Plan


def tampered(plan: Plan, changes: dict[str, Any]) -> Plan:
    """The plan with decisions or figures changed by dotted name, to a value or by a function of the old one."""
    data = plan.model_dump(mode="json")
    for name, value in changes.items():
        *parents, last = name.split(".")
        at: Any = data
        for parent in parents:
            at = at[int(parent) if isinstance(at, list) else parent]
        at[last] = value(at[last]) if callable(value) else value
    return Plan.model_validate(data)
