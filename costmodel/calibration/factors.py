"""What measured steps say about a cluster's factors once its curves are known: fitted, and shrunk.

A step's error y = log(predicted/measured) is explained by the logarithms x of a few factors on rates, of
which it is known beforehand how far they can be from 1 (`factors.yaml`). The most probable x is

    argmin sum_i huber((y_i + J_i x)/noise) + sum_j (x_j/sd_j)^2 / 2,   J = d log(predicted) / d x,

so a step that a factor hardly concerns hardly moves it, and one step moves it only part of the way.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from costmodel.calibration.descent import Values
from hardware import yaml_text

ROUNDS = 8


@dataclass(frozen=True, slots=True)
class Priors:
    """Names of the factors and what is known of them."""

    names: tuple[str, ...]
    sd: Values
    noise: float
    huber: float


@cache
def priors() -> Priors:
    """The numbers of `factors.yaml`."""
    data = yaml_text.load((Path(__file__).parent / "factors.yaml").read_text(encoding="utf-8"))
    factors: dict[str, float] = data["factors"]
    return Priors(tuple(factors), np.array(list(factors.values())), data["noise"], data["huber"])


def fit_factors(errors: Values, slopes: Values, known: Priors) -> Values:
    """Logarithms of the factors, (factors,), from errors (steps,) and slopes (steps, factors)."""
    x: Values = np.zeros(len(known.sd))
    for _ in range(ROUNDS):
        left = np.abs(errors + slopes @ x)
        weight = np.minimum(1.0, known.huber * known.noise / np.maximum(left, known.noise / 1e3))
        curvature = slopes.T @ (weight[:, None] * slopes) / known.noise**2 + np.diag(1 / known.sd**2)
        pull = slopes.T @ (weight * errors) / known.noise**2
        x = np.asarray(-np.linalg.solve(curvature, pull), dtype=np.float64)
    return x


def left_out(errors: Values, slopes: Values, known: Priors) -> Values:
    """The error of each step with factors fitted on the others (leave-one-out); two steps at least."""
    out = np.empty(len(errors))
    for index in range(len(errors)):
        kept = np.arange(len(errors)) != index
        out[index] = errors[index] + slopes[index] @ fit_factors(errors[kept], slopes[kept], known)
    return out
