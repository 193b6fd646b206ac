"""The optimum under a framework is that of brute force over what it can launch, counted one by one."""

from __future__ import annotations

from collections import Counter as Tally
from random import Random

import numpy as np
import pytest
from oracle import small_problem
from random_problems import launched
from searched import blank, num_modes, rows_of, values_of
from test_oracle import BLOCK, compare

from costmodel.architecture import Architecture
from planner.frameworks import models
from planner.space.counting import Counter


@pytest.fixture(autouse=True)
def _torchtitan_has_every_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every random model were registered: with latent attention as DeepSeek's, others as Qwen's."""

    def module(of: Architecture) -> frozenset[str]:
        return frozenset({"torchtitan-deepseek_v3" if of.mla else "torchtitan-qwen3"})

    monkeypatch.setattr(models, "torchtitan_modules", module)


@pytest.mark.parametrize("block", range(6))
def test_the_optimum_of_a_framework_is_that_of_brute_force(block: int) -> None:
    seeds = range(30_000 + block * 10, 30_000 + block * 10 + 10)
    wrong = [line for seed in seeds for line in compare(seed, make=launched)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_the_optimum_of_a_framework_is_that_of_brute_force_on_many_more(block: int) -> None:
    seeds = range(31_000 + block * BLOCK, 31_000 + (block + 1) * BLOCK)
    wrong = [line for seed in seeds for line in compare(seed, most=2000, make=launched)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("seed", range(25))
def test_what_a_framework_can_launch_is_counted_as_brute_force_counts_it(seed: int) -> None:
    oracle = small_problem(Random(seed), 700, launched)
    table = blank(oracle.instance)
    table.list_pipelines(np.arange(len(table.book.keys)))
    counter = Counter(oracle.instance, table.layouts)
    names = ("pool", "executed", "tp", "cp", "ep", "etp", "micro_batch", "pp", "zero", "filled")
    theirs: Tally[tuple[int, ...]] = Tally()
    for layout in oracle.needed:
        theirs[values_of(oracle.instance, layout, names)] += num_modes(oracle.instance, layout)
    rows, mine = table.pipelines.rows, Tally[tuple[int, ...]]()
    number = counter.pipelines(rows, np.zeros(len(rows), dtype=np.int64))
    for key, each in zip(rows_of(rows, names), number.tolist(), strict=True):
        mine[key] += each
    assert +mine == theirs
    keys = counter.keys(table.book.keys, np.zeros(len(table.book.keys), dtype=np.int64))[0]
    assert keys.sum() == theirs.total()
