"""Prices that decide and other hardware where plans may use two pools: against brute force, and solved anew."""

from __future__ import annotations

import io
import json
from functools import cache
from typing import Any

import numpy as np
import pytest
from mixed_oracle import Keep
from rich.console import Console
from test_mixed_explain import EXAMPLE, best_keys, run, small

from planner.break_even import break_evens
from planner.cli.explanation_table import explanation_table
from planner.explanation import BreakEven, Explanation
from planner.instance import Instance
from planner.mixed import MixedPlan
from planner.mixed.either import OnEither
from planner.mixed.known import Searches
from planner.problem import load_problem
from planner.resolve import instance_of
from planner.variants import with_pool


def uses_mixed(instance: Instance, entry: int, used: bool) -> Keep:
    """Lets through plans on two pools that use one, or that do not."""

    def keep(of: Any, layers: Any, again: Any) -> Any:
        return np.full(len(layers), (entry in {instance.pools[index].entry for index in of.pools}) == used)

    return keep


def uses_single(instance: Instance, entry: int, used: bool) -> Keep:
    """The same of plans on one pool."""

    def keep(of: Any, layers: Any, again: Any) -> Any:
        return np.full(len(layers), (instance.pools[of.pool].entry == entry) == used)

    return keep


def prices_hold(seed: int) -> tuple[int, int]:
    """Asks for the price of each pool, and brute force just below and above: how many, and of how many pairs."""
    found = small(seed)
    if found is None:
        return 0, 0
    instance, oracle, alone = found
    choose = OnEither(instance, {})
    plan = choose.best(instance)
    if plan is None:
        return 0, 0

    def wins(index: int, price: float) -> bool | None:
        """Whether a plan that uses a pool is the best one; None where plans with and without it tie."""
        there, entry = with_pool(instance, index, price=price), instance.pools[index].entry
        using, without = (
            best_keys(there, oracle, alone, uses_mixed(there, entry, used), uses_single(there, entry, used))
            for used in (True, False)
        )
        if using is None or without is None:
            return using is not None
        different = [
            pair for pair in zip(using, without, strict=True) if pair[0] != pytest.approx(pair[1], 1e-9)
        ]
        return different[0][0] < different[0][1] if different else None

    asked = 0
    for of in break_evens(instance, plan, choose):
        (index,) = (each for each in instance.described if instance.pools[each].entry == of.pool)
        where = seed, of.text
        if of.break_even is None:
            best = wins(index, of.price * (1e-4 if of.wins == "never" else 1e4))
            assert best in (None, of.wins == "always"), where
        else:
            assert wins(index, of.break_even * (1 - 1e-4)) is not False, where
            assert wins(index, of.break_even * (1 + 1e-4)) is not True, where
        asked += 1
    return asked, asked * isinstance(plan, MixedPlan)


def test_prices_that_decide_equal_brute_force() -> None:
    asked = [prices_hold(seed) for seed in (9, 11, 24, 25, 30, 34, 36, 37)]
    assert sum(number for number, _ in asked) == 20
    assert sum(of_pairs for _, of_pairs in asked) == 17


@pytest.mark.slow
@pytest.mark.parametrize("block", range(4))
def test_prices_that_decide_equal_brute_force_on_many_more(block: int) -> None:
    asked = [prices_hold(seed) for seed in range(4000 + 30 * block, 4000 + 30 * (block + 1))]
    assert sum(number for number, _ in asked) > 50
    assert sum(of_pairs for _, of_pairs in asked) > 0


# ---------------------------------------------------------------------------------------------------
# The example

THREE = (
    "hardware",
    [
        {"gpu": gpu, "nodes": {"max": nodes}, "price": f"{price} USD/gpu-hour"}
        for gpu, nodes, price in (("H800", 16, 2.0), ("H20", 32, 0.8), ("A100-80", 32, 1.2))
    ],
)
SETTINGS: dict[str, tuple[tuple[str, Any], ...]] = {
    "no single pool": (),
    "a single rival": (("hardware.1.nodes", {"max": 110}),),
    "three pools": (THREE,),
    "time": (THREE, ("objective", "time")),
    "energy": (THREE, ("objective", ["energy", "cost"])),
    "a value of time": (
        THREE,
        ("objective", {"cost": 1, "time": "5k USD/day"}),
        ("limits.budget", "750k USD"),
    ),
}


def example(*changes: tuple[str, Any]) -> Instance:
    return instance_of(load_problem(EXAMPLE, changes))


def prices_of(instance: Instance) -> tuple[OnEither, list[BreakEven]]:
    choose = OnEither(instance, {})
    plan = choose.best(instance)
    assert isinstance(plan, MixedPlan)
    return choose, list(break_evens(instance, plan, choose))


@pytest.mark.parametrize(
    "setting",
    [
        pytest.param(name, marks=pytest.mark.slow) if name in ("a value of time", "energy") else name
        for name in SETTINGS
    ],
)
def test_the_choice_flips_at_the_price_that_is_said(setting: str) -> None:
    instance = example(*SETTINGS[setting])
    choose, found = prices_of(instance)
    assert [of.pool for of in found if of.wins != "above"] == ([1] if len(instance.pools) == 3 else [])
    for of in found:
        if of.wins == "never":
            there = with_pool(instance, of.pool, price=of.price * 1e-3)
            best = choose.best(there)
            assert best is not None
            assert of.pool not in choose.pools(best)
            continue
        assert of.break_even is not None
        assert f"${of.break_even:.4g} a GPU-hour (today ${of.price:.4g}" in of.text
        below, above = (
            choose.best(with_pool(instance, of.pool, price=of.break_even * factor))
            for factor in (0.9999, 1.0001)
        )
        assert below is not None
        assert of.pool in choose.pools(below)
        # Above, the plan that is named wins; or there is none, where the budget is not enough.
        assert (above is None) == ("budget is not enough" in of.text)
        if above is not None:
            assert of.pool not in choose.pools(above)
            assert of.wins == "below" or f"{choose.called(instance, above)} wins" in of.text


def test_a_larger_budget_lets_prices_rise_by_what_it_pays_for() -> None:
    prices = []
    for budget in ("700k USD", "1M USD"):
        _, found = prices_of(example(("limits.budget", budget)))
        assert [of.gpu for of in found] == ["H20", "H800"]
        prices.append([of.break_even for of in found])
    instance = example()
    plan = OnEither(instance, {}).best(instance)
    assert isinstance(plan, MixedPlan)
    # The plan stays the same one, which has so many GPUs of each pool for so many hours.
    for index, (low, high) in enumerate(zip(*prices, strict=True)):
        more = (high - low) * plan.num_gpus[index] * plan.seconds / 3600
        assert more == pytest.approx(3e5, rel=1e-6)


def with_memory_of(instance: Instance, index: int, name: str) -> Instance:
    """A quarter more of a fact of a GPU's memory."""
    gpu = instance.pools[index].gpu
    names = ("driver", "nominal") if name == "memory" else ("bandwidth",)
    more = {each: getattr(gpu.memory, each) * 1.25 for each in names}
    memory = gpu.memory.model_copy(update=more)
    return with_pool(instance, index, gpu=gpu.model_copy(update={"memory": memory}))


KEYS = {
    "H800 NVLink": ("hardware.0.nvlink", "450 GB/s"),
    "H800 network": ("hardware.0.network", "800 Gbit/s"),
    "H20 NVLink": ("hardware.1.nvlink", "900 GB/s"),
    "H20 network": ("hardware.1.network", "800 Gbit/s"),
    "link between the pools": ("mixing.network", "50 GB/s"),
    "precision": ("training.precision", "fp8"),
}
OVERLAID = {
    f"{gpu} {name}": (index, name)
    for index, gpu in enumerate(("H800", "H20"))
    for name in ("memory", "HBM bandwidth")
}


@cache
def explanation() -> dict[str, Any]:
    done = run("--part", "prices", "--part", "paying", "--part", "hardware", "--format", "json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_changes_of_hardware_name_the_pool_and_are_all_there() -> None:
    found = [of["change"] for of in explanation()["what_ifs"]]
    assert sorted(found) == sorted([*KEYS, *OVERLAID])
    link = next(of for of in explanation()["what_ifs"] if of["change"] == "link between the pools")
    assert link["text"].startswith("link between the pools 50 GB/s instead of 25 GB/s: ")
    faster = next(of for of in explanation()["what_ifs"] if of["change"] == "H800 NVLink")
    assert faster["text"].startswith("H800 NVLink 900 GB/s instead of 400 GB/s: saves ")
    assert faster["text"].endswith(f"{faster['days_on_same_gpus']:.1f} days instead of 69.3.")


@pytest.mark.parametrize("change", [*KEYS, *OVERLAID])
def test_a_change_of_hardware_is_the_problem_solved_anew_with_it(change: str) -> None:
    (of,) = (each for each in explanation()["what_ifs"] if each["change"] == change)
    there = example(KEYS[change]) if change in KEYS else with_memory_of(example(), *OVERLAID[change])
    again, mine = Searches.of(there).told(there), explanation()["plan"]["estimate"]
    assert again is not None
    assert of["effect"]["dollars"] == pytest.approx(again.estimate.dollars - mine["dollars"], abs=1e-2)
    assert of["effect"]["days"] == pytest.approx(again.estimate.days - mine["days"], abs=1e-6)
    assert of["saves"] == pytest.approx(1 - again.estimate.dollars / mine["dollars"], abs=1e-9)
    assert of["saves"] > -1e-9
    assert of["days_on_same_gpus"] <= mine["days"] + 1e-9


def test_what_is_left_out_is_said_and_nothing_else() -> None:
    found = explanation()
    assert [of["wins"] for of in found["break_evens"]] == ["above", "above"]
    assert found["paying"] is None
    (note,) = (note for note in found["notes"] if "one pool only" in note)
    assert note.startswith("Ways to pay: worked out for plans on one pool only")
    asked = json.loads(run("--part", "prices", "--format", "json").stdout)
    assert not any("one pool only" in note for note in asked["notes"])


@pytest.mark.parametrize("columns", [80, 120])
def test_prices_and_hardware_fit_the_table(columns: int) -> None:
    console = Console(width=columns, file=io.StringIO())
    console.print(explanation_table(Explanation.model_validate(explanation())))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, text.splitlines())) <= columns
    joined = " ".join(text.split())
    for of in (*explanation()["break_evens"], *explanation()["what_ifs"]):
        assert of["text"] in joined
