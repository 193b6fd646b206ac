"""The data behind docs/accuracy.md, and how a score is compared with the committed one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

from score import worse  # noqa: E402

from planner.runs import DescribedRun, describe  # noqa: E402

DATA = [ROOT / "validation" / name for name in ("published.jsonl", "vtrain_a100.jsonl")]


@pytest.fixture(scope="module")
def data() -> list[dict[str, Any]]:
    return [json.loads(line) for path in DATA for line in path.read_text(encoding="utf-8").splitlines()]


def test_at_most_one_row_in_a_hundred_is_refused(data: list[dict[str, Any]]) -> None:
    refused = [row["id"] for row in data if not isinstance(describe(row), DescribedRun)]
    assert len(refused) <= len(data) / 100, refused


def test_every_row_has_a_source_and_something_measured(data: list[dict[str, Any]]) -> None:
    assert len({row["id"] for row in data}) == len(data)
    assert all(row["source"] and row["measured"] for row in data)


def test_no_prediction_hangs_on_a_row_id_or_its_source(data: list[dict[str, Any]]) -> None:
    for row in data[::7]:
        plain = {
            key: value
            for key, value in row.items()
            if key not in ("id", "source", "family", "config_group", "tier")
        }
        named, anonymous = describe(row), describe(plain)
        if isinstance(named, DescribedRun):
            assert isinstance(anonymous, DescribedRun)
            assert (anonymous.run, anonymous.layers, anonymous.recomputed) == (
                named.run,
                named.layers,
                named.recomputed,
            )


@pytest.mark.parametrize(
    ("name", "now", "before", "bad"),
    [
        ("step time, MoE: median error %", 4.93, 4.9, False),
        ("step time, MoE: median error %", 5.5, 4.9, True),
        ("step time, largest group bias %", -4.0, 3.0, True),
        ("step time, largest group bias %", -2.0, 3.0, False),
        ("vTrain single-node: pair order %", 91.0, 92.5, True),
        ("memory: out-of-memory rows flagged %", 80.0, 66.0, False),
        ("layouts: Kendall tau over all pairs", 0.7, 0.83, True),
        ("interval_80, coverage, source left out of the fit %", 84.0, 80.0, False),
        ("interval_80, coverage, source left out of the fit %", 70.0, 80.0, True),
    ],
)
def test_a_score_gets_worse_in_the_direction_of_its_figure(
    name: str, now: float, before: float, bad: bool
) -> None:
    assert worse(name, now, before) is bad
