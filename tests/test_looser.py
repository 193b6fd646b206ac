"""The nearest value of a requirement that would do: there is a plan with it, and none with a tighter one."""

from __future__ import annotations

from math import nextafter
from random import Random

import pytest
from small_job import job

from planner.instance import Instance, Limits
from planner.looser import PROBES, looser, number_at, place, value_of_single
from planner.relaxed import fastest
from planner.requirements import requirement
from planner.resolve import instance_of
from planner.search import Plan
from planner.variants import best_plan


def required(*texts: str) -> Instance:
    """The small job with requirements."""
    return instance_of(job(("limits.require", list(texts))))


def said(*texts: str) -> str:
    """What would do instead of the first requirement."""
    moves = looser(required(*texts), fastest, value_of_single)
    (move,) = [move for move in moves if move.limit == requirement(texts[0]).text]
    return str(move.to)


def tighter(text: str) -> str:
    """The requirement with the next number of four digits."""
    of = requirement(text)
    step = -1 if of.operator == "<=" else 1
    return f"{of.name} {of.operator} {number_at(place(of.value, up=True) + step):.12g}"


@pytest.mark.parametrize(
    "texts",
    [
        ("tokens_per_s_per_gpu >= 9000",),
        ("memory_gib <= 1", "gpu == H800"),
        ("step_time_s <= 1", "tp == 2"),
        ("mfu >= 0.6", "gpu == H800"),
        ("goodput >= 0.9999",),
        ("hfu >= 0.7", "gpu == H800"),
    ],
)
def test_of_a_prediction_is_exact_to_the_digits_that_are_said(texts: tuple[str, ...]) -> None:
    near = said(*texts)
    assert best_plan(required(near, *texts[1:])) is not None
    assert best_plan(required(tighter(near), *texts[1:])) is None


@pytest.mark.parametrize("name", ["tokens_per_s_per_gpu", "memory_gib", "step_time_s", "mfu"])
def test_does_not_depend_on_how_far_off_the_requirement_is(name: str) -> None:
    sign, near, far = {
        "tokens_per_s_per_gpu": (">=", "20000", "3e9"), "memory_gib": ("<=", "3", "1e-5"),
        "step_time_s": ("<=", "0.5", "1e-6"), "mfu": (">=", "0.93", "0.999"),
    }[name]  # fmt: skip
    first = said(f"{name} {sign} {far}")
    assert said(f"{name} {sign} {near}") == first
    assert said(tighter(first)) == first


def test_of_a_strict_comparison_may_be_the_number_itself() -> None:
    """Where `gpus < n` leaves nothing and `gpus <= n` does not."""
    near = said("gpus <= 8")
    least = int(near.split()[-1])
    assert said(f"gpus < {least}") == near
    assert said(f"gpus < {least - 1}") == near


def test_numbers_of_four_digits_are_counted_in_their_order() -> None:
    random = Random(0)
    for value in (random.uniform(1, 10) * 10.0 ** random.randint(-8, 12) for _ in range(2000)):
        below, above = number_at(place(value, up=False)), number_at(place(value, up=True))
        assert below <= value <= above
        assert above <= below * 1.001 * (1 + 1e-9)
        assert number_at(place(value, up=True) + 1) > above


@pytest.mark.parametrize("value", [1e-7, 0.001, 0.5111, 0.9999, 1.0, 1.923, 9.999, 10.0, 1180.0, 12340000.0])
def test_a_number_of_four_digits_is_its_own_neighbour(value: float) -> None:
    for near in (value, nextafter(value, 0), nextafter(value, 2 * value)):
        assert number_at(place(near, up=True)) == value
        assert number_at(place(near, up=False)) == value


def test_the_bracket_is_closed_before_the_cap_on_searches() -> None:
    asked: list[Instance] = []

    def find(instance: Instance, limits: Limits) -> Plan | None:
        asked.append(instance)
        return fastest(instance, limits)

    (move,) = looser(required("tokens_per_s_per_gpu >= 1e12"), find, value_of_single)
    assert len(asked) < PROBES
    assert best_plan(required(tighter(str(move.to)))) is None
