"""The choice among candidates as a CP-SAT model: one index, one element constraint a column.

Decisions and predictions are integer variables of the model, tied to the index, so any limit can be
posted on any of them, each behind its own assumption literal: an infeasible choice names the limits
that conflict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.solver import element, load_cp_model, one_worker

Array = NDArray[Any]
LARGEST = 1 << 50


@dataclass(frozen=True, slots=True)
class AtMost:
    """A limit: `column` <= `value`, known to the user as `name`."""

    name: str
    column: str
    value: int


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen, or why nothing can be."""

    index: int | None
    conflict: tuple[str, ...] = ()
    """If nothing can be chosen: limits that no candidate meets together."""


def integers(values: Array, unit: float) -> Array:
    """A float column in whole units, rounded up: what is within a limit in integers is within it."""
    whole = np.ceil(np.where(np.isfinite(values), values, LARGEST) / unit)
    return np.minimum(np.maximum(whole, values > 0), LARGEST).astype(np.int64)


def choose(columns: Mapping[str, Array], limits: Sequence[AtMost]) -> Choice:
    """The first candidate within all limits, proven by CP-SAT. Rows come in order of preference.

    The order makes the index itself the objective, and limits are posted as they are: with literals
    before them the same model takes a hundred times as long, so these come in only to explain why
    nothing fits.
    """
    cp_model = load_cp_model()

    rows = len(next(iter(columns.values())))
    if not rows:
        return Choice(None)
    model = cp_model.CpModel()
    index = model.new_int_var(0, rows - 1, "candidate")
    variables = {name: element(model, index, values, name) for name, values in columns.items()}
    for limit in limits:
        model.add(variables[limit.column] <= limit.value)
    model.minimize(index)
    solver = one_worker()
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return Choice(None, conflict(columns, limits))
    if status != cp_model.OPTIMAL:
        raise RuntimeError(f"choice among {rows} candidates ended {solver.status_name(status)}")
    return Choice(int(solver.value(index)))


def conflict(columns: Mapping[str, Array], limits: Sequence[AtMost]) -> tuple[str, ...]:
    """Limits that no candidate meets together, none of them superfluous."""
    cp_model = load_cp_model()

    model = cp_model.CpModel()
    names = sorted({limit.column for limit in limits})
    index = model.new_int_var(0, len(columns[names[0]]) - 1, "candidate")
    variables = {name: element(model, index, columns[name], name) for name in names}
    literals: dict[int, str] = {}
    for limit in limits:
        literal = model.new_bool_var(limit.name)
        model.add(variables[limit.column] <= limit.value).only_enforce_if(literal)
        model.add_assumption(literal)
        literals[literal.index] = limit.name
    solver = cp_model.CpSolver()
    # An infeasible core is only given by a single worker.
    solver.parameters.num_workers = 1
    if solver.solve(model) != cp_model.INFEASIBLE:
        return ()
    core = [literals[i] for i in solver.sufficient_assumptions_for_infeasibility()]
    return _minimal(columns, limits, core)


def _minimal(columns: Mapping[str, Array], limits: Sequence[AtMost], core: list[str]) -> tuple[str, ...]:
    """Drops limits from a core while the rest still excludes every candidate."""
    by_name = {limit.name: limit for limit in limits}
    names = core or list(by_name)

    def excludes(kept: list[str]) -> bool:
        within = np.ones(len(next(iter(columns.values()))), dtype=bool)
        for name in kept:
            within &= columns[by_name[name].column] <= by_name[name].value
        return not within.any()

    for name in list(names):
        rest = [other for other in names if other != name]
        if excludes(rest):
            names = rest
    return tuple(names)
