"""Units of sites: power, energy, carbon, money a year, lifetimes. Parsers and types that use them."""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from typing import Annotated

from costmodel.units import HOUR
from planner.errors import Refused, nearest, shown
from planner.numerals import within
from planner.quantities import Quantity, written_duration
from planner.units import dollars_with_rest, duration, with_unit

WATTS = {"W": 1, "kW": 10**3, "MW": 10**6}
PER_KWH = {"kWh": Decimal(1), "MWh": Decimal("0.001")}
GRAMS = {"g": Decimal(1), "kg": Decimal(1000), "t": Decimal(10**6)}
GRAMS_PER_KWH = {f"{mass}/{by}": GRAMS[mass] * PER_KWH[by] for mass in GRAMS for by in PER_KWH}
SUFFIXES = ("CO2eq", "CO2e", "CO2")
ENERGIES = {"kWh": Decimal(1), "MWh": Decimal(10**3), "GWh": Decimal(10**6)}
TONNES = {"kg": Decimal("0.001"), "t": Decimal(1), "kt": Decimal(1000)}
YEARS = ("year", "years", "yr", "yrs", "y")
MOST_WATTS = 1e10
MOST_A_KWH = 100.0
MOST_GRAMS = 5000.0
MOST_YEARS = 50.0
MOST_KWH = 1e13
MOST_TONNES = 1e11
MOST_A_YEAR = 1e12


def watts(value: object) -> float:
    """Watts: 8.4 kW."""
    return with_unit(value, "a power such as 8.4 kW or 700 W", WATTS, MOST_WATTS)


def electricity(value: object) -> float:
    """USD per kWh: 0.10 USD/kWh, $60/MWh."""
    accepted = "a price of electricity such as 0.10 USD/kWh or 60 USD/MWh"
    number, rest = dollars_with_rest(value, accepted)
    unit = rest.lstrip("/ ")
    if not rest.startswith("/") or unit not in PER_KWH:
        raise Refused(f"found {shown(value)}", accepted, nearest(unit, PER_KWH) if unit else "")
    return float(within(number * PER_KWH[unit], value, accepted, MOST_A_KWH, zero=True))


def carbon(value: object) -> float:
    """Grams of CO2-equivalent a kWh: 400 gCO2/kWh, 0.4 kgCO2/kWh, 0.4 t/MWh."""
    accepted = "a carbon intensity such as 400 gCO2/kWh or 0.4 kgCO2/kWh"
    return with_unit(value, accepted, GRAMS_PER_KWH, MOST_GRAMS, bare=bare_mass, zero=True)


def bare_mass(unit: str) -> str:
    """A mass of CO2 without saying so, also one by something else: tCO2eq is t, gCO2/kWh g/kWh."""
    mass, slash, by = unit.replace(" ", "").partition("/")
    for suffix in SUFFIXES:
        mass = mass.removesuffix(suffix)
    return mass + slash + by


def energy(value: object) -> float:
    """kWh: 900 MWh, 2.5 GWh."""
    return with_unit(value, "an energy such as 900 MWh or 2.5 GWh", ENERGIES, MOST_KWH)


def tonnes(value: object) -> float:
    """Tonnes of CO2-equivalent: 300 t, 300 tCO2, 2 kt."""
    return with_unit(value, "a mass of CO2 such as 300 t or 2 kt", TONNES, MOST_TONNES, bare=bare_mass)


def yearly(value: object) -> float:
    """USD a year: 200k USD/year."""
    accepted = "an amount a year such as 200k USD/year"
    number, rest = dollars_with_rest(value, accepted)
    if not rest.startswith("/") or rest[1:].strip().lower() not in YEARS:
        raise Refused(f"found {shown(value)}", accepted, "say per year" if not rest else "")
    return float(within(number, value, accepted, MOST_A_YEAR, zero=True))


def lifetime(value: object) -> float:
    """Years until a purchase is written off: 4 years."""
    years: dict[str, int] = dict.fromkeys(YEARS, 1)
    return with_unit(value, "a number of years such as 4 years", years, MOST_YEARS, bare=str.lower)


Watts = Annotated[float, Quantity(watts, lambda x: f"{x!r} W", ("8.4 kW", "700 W"))]
Electricity = Annotated[float, Quantity(electricity, lambda x: f"{x!r} USD/kWh", ("0.10 USD/kWh",))]
Carbon = Annotated[float, Quantity(carbon, lambda x: f"{x!r} gCO2/kWh", ("400 gCO2/kWh",))]
Energy = Annotated[float, Quantity(energy, lambda x: f"{x!r} kWh", ("900 MWh", "2.5 GWh"))]
Tonnes = Annotated[float, Quantity(tonnes, lambda x: f"{x!r} t", ("300 t", "2 kt"))]
Yearly = Annotated[float, Quantity(yearly, lambda x: f"{x!r} USD/year", ("200k USD/year",))]
Lifetime = Annotated[float, Quantity(lifetime, lambda x: f"{x!r} years", ("4 years",))]
Pause = Annotated[float, Quantity(partial(duration, zero=True), written_duration, ("3 min", "0 s"))]
"""A duration that may be nothing."""
Hours = Annotated[float, Quantity(duration, lambda x: f"{x / HOUR!r} h", ("50000 h",))]
"""A duration that everybody quotes in hours: time between failures."""
