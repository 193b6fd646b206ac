"""A training handbook's worked examples, computed by the project's own functions.

The data file says which function with which arguments stands for each example. Left out are those
that only divide or multiply two given numbers, where no function of ours would be tested.
"""

from __future__ import annotations

from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from costmodel.architecture import Architecture
from costmodel.cards import load_card

DATA = yaml.safe_load((Path(__file__).parent / "data" / "handbook.yaml").read_text(encoding="utf-8"))
SHAPES = {name: Architecture(name=name, **shape) for name, shape in DATA["architectures"].items()}


COVERED = {
    "params": (103, 126),
    "flops": (50, 65),
    "memory": (71, 82),
    "zero": (27, 27),
    "activation": (20, 30),
    "kv": (58, 64),
    "bubble": (6, 7),
    "comm_dp": (78, 96),
    "comm_tp": (20, 21),
    "comm_pp": (14, 15),
    "comm_ep": (16, 22),
    "comm_sp": (9, 10),
    "time": (44, 49),
    "gpu_count": (33, 34),
    "cost": (25, 25),
    "storage": (65, 66),
    "checkpoint": (68, 68),
    "goodput": (18, 18),
    "mfu": (17, 23),
    "batch": (11, 12),
    "e2e": (44, 48),
    "lora": (8, 9),
}
"""Examples tested, of those the handbook has, by topic."""


def evaluate(term: Any) -> Any:
    """A number is itself; a call is looked up in `costmodel` and its arguments evaluated first."""
    if not isinstance(term, dict):
        return term
    module, _, function = term["call"].rpartition(".")
    arguments = {name: argument(name, value) for name, value in term["args"].items()}
    value = getattr(import_module(f"costmodel.{module}"), function)(**arguments)
    value = getattr(value, term["take"]) if "take" in term else value
    value = value + sum(map(evaluate, term.get("plus", ()))) - sum(map(evaluate, term.get("minus", ())))
    return value * evaluate(term.get("times", 1))


def argument(name: str, value: Any) -> Any:
    if name == "architecture":
        return SHAPES[value] if value in SHAPES else load_card(value)
    return evaluate(value)


@pytest.mark.parametrize("case", DATA["cases"], ids=lambda case: case["id"])
def test_worked_example(case: dict[str, Any]) -> None:
    value = evaluate(case) / case.get("scale", 1)
    assert value == pytest.approx(case["expect"], rel=case.get("tolerance", 1e-9)), case["what"]


@pytest.mark.parametrize("topic", ["cost", "storage", "checkpoint", "goodput"])
def test_of_storage_and_money_all_examples_are_tested_or_said_to_be_no_formula(topic: str) -> None:
    tested, there = COVERED[topic]
    left_out = [each for each in DATA["left_out"] if each["topic"] == topic]
    assert tested + len(left_out) == there
    assert all(each["why"] for each in left_out)
    assert not {each["id"] for each in left_out} & {case["id"] for case in DATA["cases"]}


def test_the_table_above_says_how_many_examples_are_tested() -> None:
    assert Counter(case["topic"] for case in DATA["cases"]) == {topic: n for topic, (n, _) in COVERED.items()}
