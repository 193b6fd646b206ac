"""The choice of a place for a run in phases as a CP-SAT model: an index a phase, all at the same place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.units import DAY
from planner.choose import integers
from planner.instance import Term
from planner.solver import element, load_cp_model, one_worker

Array = NDArray[Any]
TERMS: tuple[Term, ...] = ("time", "cost", "energy", "carbon")
FINE = 2.0**34
"""Parts of the largest total that the choice tells apart: well below what any figure is good for."""
RESOLUTION = 10**7
"""Steps in which the smaller of two weights is told against the larger one."""


def choose_place(
    phases: Sequence[Mapping[Term, Array]],
    windows: Array,
    most: Mapping[Term, float],
    objective: Sequence[tuple[Term, float]],
    lexicographic: bool,
) -> int:
    """The place whose run is best within the limits.

    `phases` are columns over places of what each phase takes; `windows` what is paid in any case. At
    least one place is within the limits.
    """
    cp_model = load_cp_model()
    model, number = cp_model.CpModel(), len(windows)
    units = units_of(phases, windows)
    place = model.new_int_var(0, number - 1, "place")
    spent: dict[Term, Any] = dict.fromkeys(phases[0], 0)
    for name, columns in enumerate(phases):
        index = model.new_int_var(0, number - 1, f"plan of phase {name}")
        model.add_element(index, list(range(number)), place)
        for term, values in columns.items():
            spent[term] += element(model, index, integers(values, units[term]), f"{term} of phase {name}")
    if windows.any():
        # Rent for as long as the run lasts, or for the committed window if that is longer.
        paid = model.new_int_var(0, int(FINE) + len(phases) + 1, "paid")
        window = element(model, place, integers(windows, units["cost"]), "window")
        model.add_max_equality(paid, [spent["cost"], window])
        spent["cost"] = paid
    for term, limit in most.items():
        if term in spent and np.isfinite(limit):
            # Rounding up each phase must not exclude what meets the limit exactly.
            model.add(spent[term] <= int(min(np.ceil(limit / units[term]), FINE)) + len(phases))
    goals = [spent[term] for term, _ in objective] if lexicographic else [weighted(objective, spent, units)]
    return _solved(cp_model, model, place, [*goals, spent["time"]])


def units_of(phases: Sequence[Mapping[Term, Array]], windows: Array) -> dict[Term, float]:
    """What the choice tells apart of each term."""
    found: dict[Term, float] = {}
    for term in phases[0]:
        most = float(np.sum([columns[term] for columns in phases], axis=0).max())
        found[term] = max(most, float(windows.max()) if term == "cost" else 0.0, 1e-300) / FINE
    return found


def weighted(
    objective: Sequence[tuple[Term, float]], spent: Mapping[Term, Any], units: Mapping[Term, float]
) -> Any:
    """The weighted sum in dollars, in whole units of its own."""
    weight: dict[Term, float] = {"cost": 1.0, "time": 1 / DAY}
    worth: dict[Term, float] = {term: factor * weight[term] * units[term] for term, factor in objective}
    unit = max(worth.values()) / RESOLUTION
    return sum(round(value / unit) * spent[term] for term, value in worth.items())


def _solved(cp_model: Any, model: Any, place: Any, goals: Sequence[Any]) -> int:
    """The place that is best by each goal in turn."""
    solver = one_worker()
    for goal in goals:
        model.minimize(goal)
        status = solver.solve(model)
        if status != cp_model.OPTIMAL:
            raise RuntimeError(f"the choice of a place ended {solver.status_name(status)}")
        model.add(goal <= solver.value(goal))
    return int(solver.value(place))
