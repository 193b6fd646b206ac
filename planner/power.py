"""The section `power:`: what nodes draw, what the data centre adds, what the grid costs and emits."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from costmodel.energy import NodeWatts, node_watts
from hardware.accelerator import Accelerator
from hardware.site import site_power
from planner.errors import Refused, nearest, shown
from planner.quantities import Fraction, Number, Quantity, Strict
from planner.site_units import Electricity, Watts, carbon

WORLD = "WORLD"


def _intensity(value: Any) -> float:
    """A carbon intensity, or the country whose grid it is."""
    if isinstance(value, str) and value[:1].isalpha():
        grids = site_power().grids
        if value.upper() not in grids:
            accepted = f"400 gCO2/kWh, or a country: {', '.join(grids)}"
            raise Refused(f"found {shown(value)}", accepted, nearest(value, grids))
        return grids[value.upper()]
    return carbon(value)


Grid = Annotated[float, Quantity(_intensity, lambda x: f"{x!r} gCO2/kWh", ("400 gCO2/kWh", "FRA"))]


class Power(Strict):
    """Electricity of a run."""

    pue: Number = Field(default_factory=lambda: site_power().pue.typical)
    """Power of the data centre over that of its computers."""
    electricity: Electricity = Field(default_factory=lambda: site_power().electricity)
    """Price of a kWh."""
    carbon: Grid = Field(default_factory=lambda: site_power().grids[WORLD])
    """Grams of CO2 a kWh, or the country whose grid it is (FRA, USA, CHN, ...); the world's unless given."""
    utilisation: Fraction | None = None
    """How far GPUs in training stand between idle and their TDP; 85 % of it is drawn unless given."""
    node: Watts | None = None
    """What a node draws in training, where it was measured."""

    @model_validator(mode="after")
    def _at_least_its_computers(self) -> Power:
        if self.pue < 1:
            found = f"found {self.pue:g}"
            raise Refused(found, "1 or more: a data centre draws what its computers draw", "", ("pue",))
        return self

    def watts(self, gpu: Accelerator) -> NodeWatts:
        """What a node of such GPUs draws at work and at rest."""
        return node_watts(gpu, self.utilisation, self.node)
