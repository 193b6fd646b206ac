"""What is fitted and what is expected of it before any run is looked at (`validation/priors.yaml`).

A constant has a prior of its own, or belongs to a kind: what several software stacks have in common, each a little
differently. Of a kind the mean is expected at `prior` within `sd`, and stacks spread around that mean by `spread` (standard
deviations of logarithms). So a stack that few runs or none determine takes after the others of its kind, and the mean of a
kind is what a stack gets that nobody has measured: log x_i ~ N(mu, spread^2), mu ~ N(log prior, sd^2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray
from published import FOLDER

from costmodel.stack import DIRECTORY, load_stack
from hardware.catalogue import load_accelerator

Values = NDArray[np.float64]
PRIORS = FOLDER / "priors.yaml"


@dataclass(frozen=True, slots=True)
class Kind:
    """What the constants of several stacks have in common."""

    name: str
    prior: float
    sd: float
    """How sure the mean is."""
    spread: float
    """How far stacks lie from the mean."""
    without: str | None = None
    """The wider kind that holds for all of it when what tells the kinds apart is not known."""


@dataclass(frozen=True, slots=True)
class Constant:
    """One number that is fitted."""

    where: str
    """A profile's name, or `gpu:NAME,NAME`."""
    path: str
    """A field, or several with commas that keep their ratio; the first has the value."""
    prior: float
    sd: float
    kind: Kind | None = None

    @property
    def name(self) -> str:
        return f"{self.where}/{self.path}"

    @property
    def gpus(self) -> tuple[str, ...]:
        return tuple(self.where.removeprefix("gpu:").split(",")) if self.where.startswith("gpu:") else ()

    @property
    def paths(self) -> list[str]:
        return self.path.split(",")

    def now(self) -> float:
        """Its value in the YAML files."""
        part: Any = load_accelerator(self.gpus[0]).sustained if self.gpus else load_stack(self.where)
        return value_at(part, self.paths[0])


def value_at(part: Any, path: str) -> float:
    """The number at a dotted path of models and mappings."""
    for name in path.split("."):
        part = part[name] if isinstance(part, dict) else getattr(part, name)
    return float(part)


@cache
def lineage(profile: str) -> tuple[str, ...]:
    """The profile and what it extends, nearest first."""
    tree = yaml.safe_load((DIRECTORY / f"{profile}.yaml").read_text())
    parent = tree.get("extends")
    return (profile, *(lineage(parent) if parent else ()))


@cache
def owner(profile: str, path: str) -> str:
    """The profile of the lineage that sets a field."""
    for name in lineage(profile):
        part: Any = yaml.safe_load((DIRECTORY / f"{name}.yaml").read_text())
        for key in path.split("."):
            part = part.get(key) if isinstance(part, dict) else None
        if part is not None:
            return name
    return lineage(profile)[-1]


def read_constants() -> list[Constant]:
    """What is fitted, in the order of the file."""
    data = yaml.safe_load(PRIORS.read_text())
    kinds = read_kinds(data["kinds"])
    return [_constant(each, kinds) for each in data["constants"]]


def read_kinds(listed: Mapping[str, Mapping[str, Any]]) -> dict[str, Kind]:
    """The kinds by name."""
    return {
        name: Kind(name, float(k["prior"]), float(k["sd"]), float(k["spread"]), k.get("without"))
        for name, k in listed.items()
    }


def _constant(each: Mapping[str, Any], kinds: Mapping[str, Kind]) -> Constant:
    if "kind" not in each:
        return Constant(each["where"], each["path"], float(each["prior"]), float(each["sd"]))
    kind = kinds[each["kind"]]
    return Constant(each["where"], each["path"], kind.prior, float(np.hypot(kind.sd, kind.spread)), kind)


def without_knowledge(constants: Sequence[Constant]) -> list[Constant]:
    """The constants with kinds merged into the wider ones that need no knowledge of what tells them apart."""
    wider = read_kinds(yaml.safe_load(PRIORS.read_text())["kinds"])

    def merged(constant: Constant) -> Constant:
        if constant.kind is None or constant.kind.without is None:
            return constant
        kind = wider[constant.kind.without]
        return replace(constant, prior=kind.prior, sd=float(np.hypot(kind.sd, kind.spread)), kind=kind)

    return [merged(constant) for constant in constants]


def covariance(constants: Sequence[Constant]) -> Values:
    """Covariance of the logarithms that the priors mean: sd^2 alone, or spread^2 + sd^2 shared within a kind."""
    out = np.diag([constant.sd**2 for constant in constants])
    for i, one in enumerate(constants):
        for j, other in enumerate(constants):
            if i != j and one.kind is not None and other.kind is not None and one.kind == other.kind:
                out[i, j] = one.kind.sd**2
    return out


def kind_means(constants: Sequence[Constant], values: Values) -> dict[str, float]:
    """Posterior mean of each kind, given the constants: what a stack gets that nobody has measured."""
    found: dict[str, float] = {}
    for kind in {c.kind.name: c.kind for c in constants if c.kind is not None}.values():
        of = np.array([np.log(v) for c, v in zip(constants, values, strict=True) if c.kind == kind])
        weights = np.array([kind.sd**-2, *([kind.spread**-2] * len(of))])
        found[kind.name] = float(np.exp(np.average([np.log(kind.prior), *of], weights=weights)))
    return found
