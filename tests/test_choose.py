"""The choice among candidates by CP-SAT, and the limits it names when there is none."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.choose import LARGEST, AtMost, choose, conflict, integers

NAMES = ("seconds", "dollars", "gpus")


def columns(random: Random, rows: int) -> dict[str, np.ndarray]:
    return {name: np.array([random.randint(1, 60) for _ in range(rows)]) for name in (*NAMES, "tp")}


def limits(random: Random, highest: int) -> list[AtMost]:
    """Up to one limit a column, and now and then two on the same one."""
    posted = [
        AtMost(f"{name} limit", name, random.randint(0, highest)) for name in NAMES if random.random() < 0.8
    ]
    if posted and random.random() < 0.2:
        posted.append(AtMost("another limit", posted[0].column, random.randint(0, highest)))
    return posted


def within(table: dict[str, np.ndarray], posted: list[AtMost]) -> np.ndarray:
    ok = np.ones(len(table["tp"]), dtype=bool)
    for limit in posted:
        ok &= table[limit.column] <= limit.value
    return ok


@pytest.mark.parametrize("seed", range(60))
def test_the_choice_is_the_first_row_within_all_limits(seed: int) -> None:
    random = Random(seed)
    table, posted = columns(random, random.randint(1, 40)), limits(random, 40)
    ok = within(table, posted)
    choice = choose(table, posted)
    assert choice.index == (int(np.argmax(ok)) if ok.any() else None)
    assert bool(choice.conflict) == (not ok.any())


@pytest.mark.parametrize("seed", range(20))
def test_rows_in_order_of_a_column_make_the_choice_its_argmin(seed: int) -> None:
    random = Random(seed)
    table, posted = columns(random, 30), limits(random, 50)
    order = np.argsort(table["dollars"], kind="stable")
    table = {name: values[order] for name, values in table.items()}
    ok = within(table, posted)
    choice = choose(table, posted)
    if choice.index is None:
        assert not ok.any()
    else:
        assert table["dollars"][choice.index] == np.where(ok, table["dollars"], LARGEST).min()


@pytest.mark.parametrize("seed", range(60))
def test_a_conflict_is_a_minimal_core(seed: int) -> None:
    random = Random(1000 + seed)
    table, posted = columns(random, random.randint(1, 40)), limits(random, 12)
    if not posted:
        return
    core = conflict(table, posted)
    if within(table, posted).any():
        assert core == ()
        return
    by_name = {limit.name: limit for limit in posted}
    assert len(set(core)) == len(core)
    assert core
    assert not within(table, [by_name[name] for name in core]).any()
    for name in core:
        rest = [by_name[other] for other in core if other != name]
        assert within(table, rest).any(), f"{name} is superfluous in {core}"


def test_a_choice_without_limits_is_the_first_row() -> None:
    assert choose({"seconds": np.array([5, 3])}, []).index == 0


def test_nothing_is_chosen_among_nothing() -> None:
    assert choose({"seconds": np.empty(0, dtype=np.int64)}, [AtMost("deadline", "seconds", 1)]).index is None


@settings(deadline=None)
@given(st.lists(st.floats(0, 1e12), min_size=1, max_size=20), st.sampled_from((0.5, 1.0, 60.0)))
def test_whole_units_never_understate_a_figure(values: list[float], unit: float) -> None:
    whole = integers(np.array(values), unit)
    assert (whole * unit >= np.array(values)).all()
    assert (whole * unit < np.array(values) + unit * (1 + 1e-9)).all()


def test_what_is_not_finite_is_larger_than_any_limit() -> None:
    assert integers(np.array([np.inf, np.nan]), 1.0).tolist() == [LARGEST, LARGEST]
