"""The choice among rows by CP-SAT: their decisions and predictions are columns, and every limit is posted."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.choose import AtMost, choose, integers
from planner.economics import Economy
from planner.instance import Limits
from planner.space.columns import Candidates

Array = NDArray[Any]
UNITS = {"energy": 1.0, "carbon": 1e-3}
"""kWh and tonnes that it tells apart."""
CHOICE = 256
"""Rows that it sees at once, best bounds first; the others have bounds no better."""


def chosen(rows: Candidates, economy: Economy, step: Array, limits: Limits) -> int:
    """The row that CP-SAT chooses, of rows within the limits in the order in which they are preferred."""
    choice = choose(columns_of(rows, economy, step), limits_on_columns(limits))
    assert choice.index is not None, "rows within the limits, and CP-SAT chooses none"
    return choice.index


def columns_of(rows: Candidates, economy: Economy, step: Array) -> dict[str, Array]:
    """Decisions and predictions of rows as integer columns for the choice."""
    # Limits on time and money allow for what they have to; those on energy are as predicted.
    seconds, allowed_for = economy.seconds(step), economy.surely
    columns = {
        f.name: getattr(rows, f.name)
        for f in fields(Candidates)
        if f.name not in ("m_low", "key", "pipeline")
    }
    metered = {"energy": economy.draw, "carbon": economy.emission}
    return columns | {
        "num_gpus": rows.num_gpus,
        "seconds": integers(allowed_for.seconds(step), 1.0),
        "dollars": integers(allowed_for.dollars(step), 1.0),
        **{name: integers(each * seconds, UNITS[name]) for name, each in metered.items() if each is not None},
    }


def limits_on_columns(limits: Limits) -> list[AtMost]:
    """What limits the run as limits on the columns of a choice."""
    posted = []
    if limits.deadline is not None:
        posted.append(AtMost("deadline", "seconds", int(np.ceil(limits.deadline))))
    if limits.budget is not None:
        posted.append(AtMost("budget", "dollars", int(np.ceil(limits.budget))))
    for name, limit in (("energy", limits.energy), ("carbon", limits.carbon)):
        if limit is not None:
            posted.append(AtMost(name, name, int(np.ceil(limit / UNITS[name]))))
    return posted
