"""Kinds of constants: stacks that no run determines take after the others of their kind."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from fit_profiles import solve
from priors import (
    Constant,
    Kind,
    covariance,
    kind_means,
    owner,
    read_constants,
    value_at,
    without_knowledge,
)

from costmodel.stack import load_stack

KIND = Kind("traffic", prior=2.0, sd=0.3, spread=0.1)
SEEN, UNSEEN = (Constant(name, "elementwise.factor", 2.0, float(np.hypot(0.3, 0.1)), KIND) for name in "ab")
ALONE = Constant("c", "head.loss_bytes", 25.0, 0.5)
CONSTANTS = read_constants()


@dataclass
class Measured:
    """What `solve` needs of a fit: constants, their prior, and the weights of the runs."""

    constants: list[Constant]
    runs: int

    @property
    def precision(self) -> Any:
        return np.linalg.inv(covariance(self.constants))

    @property
    def weight(self) -> Any:
        return np.ones(self.runs)


def test_only_constants_of_one_kind_vary_together():
    matrix = covariance([SEEN, UNSEEN, ALONE])
    assert matrix[0, 1] == pytest.approx(0.3**2)
    assert np.diag(matrix) == pytest.approx([0.3**2 + 0.1**2, 0.3**2 + 0.1**2, 0.5**2])
    assert matrix[0, 2] == matrix[1, 2] == 0


def test_a_stack_that_nobody_measured_follows_the_measured_one_of_its_kind():
    # Two hundred runs of one stack, each 5 % too quick, all of it elementwise traffic.
    fit = Measured([SEEN, UNSEEN], 200)
    slopes = np.tile([1.0, 0.0], (200, 1))
    at, every = np.array([2.0, 2.0]), np.ones(200, dtype=bool)
    shift, sd = solve(fit, slopes, np.full(200, -0.05), at, every)  # type: ignore[arg-type]
    assert shift[0] == pytest.approx(0.05, rel=0.01)
    assert shift[1] == pytest.approx(shift[0] * 0.3**2 / (0.3**2 + 0.1**2), rel=1e-6)
    assert sd[0] < 0.01 < sd[1] < SEEN.sd


def test_without_runs_everything_stays_at_its_prior():
    fit = Measured([SEEN, UNSEEN, ALONE], 1)
    none = np.zeros(1, dtype=bool)
    at = np.array([2.5, 1.5, 20.0])
    shift, _ = solve(fit, np.ones((1, 3)), np.array([0.2]), at, none)  # type: ignore[arg-type]
    assert at * np.exp(shift) == pytest.approx([2.0, 2.0, 25.0])


def test_the_mean_of_a_kind_lies_between_its_prior_and_its_stacks():
    assert 2.0 < kind_means([SEEN, UNSEEN], np.array([3.0, 3.2]))["traffic"] < 3.1


@pytest.mark.parametrize("constant", CONSTANTS, ids=lambda constant: constant.name)
def test_a_constant_is_a_positive_number_of_the_profile_that_is_named(constant: Constant):
    assert constant.now() > 0
    if not constant.gpus:
        assert owner(constant.where, constant.paths[0]) == constant.where
        assert all(value_at(load_stack(constant.where), path) > 0 for path in constant.paths)


def test_shares_of_traffic_are_at_most_all_of_it():
    shares = [constant for constant in CONSTANTS if constant.path.endswith(("_floor", ".exposed"))]
    assert len(shares) > 8
    assert all(constant.now() <= 1 for constant in shares)


def test_not_told_apart_all_attention_kernels_of_a_gpu_are_one_kind():
    kinds = {c.kind.name for c in without_knowledge(CONSTANTS) if c.kind and "attention.forward" in c.path}
    assert kinds == {"attention_ampere", "attention_hopper"}
