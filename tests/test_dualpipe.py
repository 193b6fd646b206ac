"""DualPipe and DualPipeV: time against a simulation of the published schedule, memory, and what cannot run."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from test_runs import MOE, PLAIN
from time_runs import some_run

from costmodel.cards import load_card
from costmodel.pipeline import flights_of_ranks, plain_layers, split_of, stage_split
from costmodel.rates import stage_rates
from costmodel.run import Run
from costmodel.schedules import bubble_left
from costmodel.stage import stage_memory, stage_time
from costmodel.step import bubble_time, step_time, unpaired
from planner.estimates import reported
from planner.runs import describe
from planner.runs.software import changed

Operation = tuple[str, tuple[int, ...]]
"""F forward, I backward without weights, B all of it, FB a pair, W weights; and the phases it is about."""


def operations(pp: int, m: int, rank: int) -> list[Operation]:
    """What a rank of DualPipe runs, in order (the eight steps of DeepSeek-AI's code, in our words)."""
    half, from_end = pp // 2, min(rank, pp - 1 - rank)
    inner, at = half - from_end - 1, from_end + 1
    found: list[Operation] = [("F", (0,))] * (2 * inner) + [("F", (0,)), ("F", (1,))] * at
    found += [("I", (1,)), ("W", ()), ("F", (1,))] * inner
    for turn in range(m // 2 - pp + at):
        alone = turn == 0 and not inner
        found += [("F", (0,)), ("B", (1,))] if alone else [("FB", (0, 1))]
        found += [("FB", (1, 0))]
    found += [("B", (1,)), ("FB", (1, 0))] * inner
    # The second half of the backward passes that are left puts weights off.
    later = [turn > at // 2 or (turn == at // 2 and from_end % 2 == 1) for turn in range(at)]
    for turn, late in enumerate(later):
        found.append(("I" if late else "B", (1,)))
        found.append(("I" if late or turn == at // 2 else "B", (0,)))
    return found + [("W", ()), ("I", (0,))] * inner + [("W", ())] * at


def simulated(pp: int, m: int, seconds: dict[str, float]) -> tuple[float, list[int]]:
    """Seconds of a step, and the most micro-batches that each rank keeps: ranks run as soon as they can."""
    left = [deque(operations(pp, m, rank)) for rank in range(pp)]
    free, done, count = [0.0] * pp, {}, Counter[tuple[int, str, int]]()
    kept, most = [0] * pp, [0] * pp

    def ready(rank: int, kind: str, way: int) -> float | None:
        """When a pass of a direction may start: after its neighbour's, or a backward pass of the last stage."""
        before = rank + (1 if (kind == "B") == (way == 0) else -1)
        number = count[rank, kind, way]
        if 0 <= before < pp:
            return done.get((before, kind, way, number))
        return 0.0 if kind == "F" else done.get((rank, "F", way, number))

    while any(left):
        for rank in range(pp):
            while left[rank]:
                name, phases = left[rank][0]
                kinds = (
                    ("F", "B") if name == "FB" else ("B",) if name in "IB" else ("F",) if name == "F" else ()
                )
                passes = [(k, phase ^ (rank >= pp // 2)) for k, phase in zip(kinds, phases, strict=True)]
                starts = [ready(rank, *of) for of in passes]
                if None in starts:
                    break
                free[rank] = max([free[rank], *(s for s in starts if s is not None)]) + seconds[name]
                left[rank].popleft()
                for kind, way in passes:
                    done[rank, kind, way, count[rank, kind, way]] = free[rank]
                    count[rank, kind, way] += 1
                kept[rank] += "F" in kinds
                most[rank] = max(most[rank], kept[rank])
                kept[rank] -= "B" in kinds
    return max(free), most


@pytest.mark.parametrize(("pp", "m"), [(2, 4), (4, 8), (4, 20), (6, 14), (8, 16), (8, 40), (16, 120)])
@pytest.mark.parametrize("alltoall", [0.0, 0.25, 0.5])
def test_the_step_is_that_of_the_simulated_schedule(pp: int, m: int, alltoall: float) -> None:
    """Forward, inputs' and weights' gradients take a second each; all-to-alls hide in pairs, else they show."""
    alone = {"F": 1 + alltoall, "I": 1 + alltoall, "W": 1.0, "B": 2 + alltoall, "FB": 3.0}
    total, kept = simulated(pp, m, alone)
    run = dense_run(pp, m, "both")
    split = split_of(run, [1] * pp)
    rates = replace(stage_rates(run), hidden=np.array([2 * alltoall]))
    assert kept == [pp + 1] * pp
    pair, model = 2 * 3.0, 3.0 * pp * 2
    bubble = bubble_time(pair, model, 2, bubble_left("dualpipe", pp))
    extra = unpaired(rates, split, pp).max()
    assert m / 2 * pair + bubble + extra == pytest.approx(total)


def dense_run(pp: int, m: int, placing: str, **own: Any) -> Run:
    """A dense model with a layer a stage."""
    vpp = 2 if placing == "v" else 1
    card = load_card("llama-2-70b").model_copy(update={"layers": pp * vpp})
    run = some_run(pp=pp, vpp=vpp, num_microbatches=m, tp=4, dp=4)
    stack = changed(run.stack, {"pipeline.placing": placing} | own)
    return replace(run, architecture=card, stack=stack)


@pytest.mark.parametrize("pp", [4, 8, 16, 32])
def test_bubbles_come_in_the_order_of_the_published_table(pp: int) -> None:
    left = {name: bubble_left(name, pp) * (pp - 1) for name in ("1f1b", "zb-1p", "dualpipe")}
    assert left["dualpipe"] < left["zb-1p"] < left["1f1b"]
    # Table 2 with F = W = 1, B = 2, F&B = 3, in times of F + B.
    table = {"1f1b": (pp - 1) * 3, "zb-1p": (pp - 1) * (3 - 2), "dualpipe": (pp / 2 - 1) * (3 + 2 - 3)}
    assert {name: 3 * value for name, value in left.items()} == pytest.approx(table)
    # DualPipeV on half of the ranks: stages of the same length, two on each.
    halves = bubble_time(2 * 3, pp * 3, 2, bubble_left("dualpipev", pp // 2))
    assert halves == pytest.approx(table["dualpipe"])


def test_ranks_hold_both_directions_and_keep_one_micro_batch_more_than_1f1b() -> None:
    card = load_card("deepseek-v3")
    layers = plain_layers(card.layers, 16)
    once, both = (stage_split(card, 16, 1, 120, layers, placing=p) for p in ("loop", "both"))
    assert (both.layers == once.layers + once.layers[::-1]).all()
    assert (both.total_layers == 2 * once.total_layers).all()
    assert both.first.tolist() == both.last.tolist() == [1, *[0] * 14, 1]
    assert flights_of_ranks(16, 1, 120, "both").sum(axis=0).tolist() == [17] * 16
    assert flights_of_ranks(8, 2, 120, "v").sum(axis=0).tolist() == [17] * 8


def test_two_copies_double_weights_and_gradients_but_not_sharded_states() -> None:
    # Stages of two layers; the ends carry tables as well, so a middle rank tells.
    before, after = dense_run(8, 32, "loop"), dense_run(8, 32, "both")
    held = [stage_memory(stage_rates(run), split_of(run, [1] * 8))[3] for run in (before, after)]
    assert held[0] < held[1] < 2 * held[0]
    assert after.weight_ranks == 2 * before.weight_ranks
    once, twice = (describe(MANY | {"schedule": name}) for name in ("1f1b", "dualpipe"))
    memory = [reported([one])[0]["memory_gib"] for one in (once, twice)]
    assert memory[1]["weights"] > 1.4 * memory[0]["weights"]
    assert memory[1]["optimizer"] < 1.3 * memory[0]["optimizer"]


MANY = PLAIN | {"pp": 4, "vpp": None, "global_batch": 512, "num_gpus": 128, "micro_batch": 1}


def test_a_rank_takes_as_long_as_both_of_its_stages() -> None:
    """T = m/2*max pair + (p/2 - 1)(F&B + B - 3W), F : B : W = 1 : 2 : 1, from the times of single stages."""
    run = dense_run(8, 32, "both", **{"pipeline.bubble": bubble_left("dualpipe", 8)})
    rates = replace(stage_rates(run), hidden=0.0)
    one_way = stage_time(rates, split_of(dense_run(8, 32, "loop"), [1] * 8))
    pairs = one_way + one_way[::-1]
    step = step_time(rates, split_of(run, [1] * 8), 32, 8, 1)
    assert float(step.compute) == pytest.approx(16 * pairs.max())
    others = one_way.sum() - pairs.max() / 2
    assert float(step.bubble) == pytest.approx((8 / 2 - 1) * (1 + 2 / 3 - 3 / 3) * others / 7)


def seconds(**changes: Any) -> dict[str, Any]:
    return reported([describe(MANY | changes)])[0]


def test_schedules_that_leave_less_of_the_bubble_take_less_of_it() -> None:
    bubble = {name: seconds(schedule=name)["breakdown_s"]["bubble"] for name in ("1f1b", "zb-1p", "dualpipe")}
    assert bubble["dualpipe"] < bubble["zb-1p"] < bubble["1f1b"]


def test_experts_of_dualpipe_travel_behind_another_micro_batch_unless_told_otherwise() -> None:
    fleet = MOE | {"pp": 4, "vpp": None, "micro_batch": 1, "ep_overlap": None}
    hidden, shown = (
        reported([describe(fleet | {"schedule": "dualpipe"} | told)])[0]
        for told in ({}, {"ep_overlap": False})
    )
    assert "error" not in hidden, hidden
    assert hidden["breakdown_s"]["ep"] < shown["breakdown_s"]["ep"]
    assert hidden["step_time_s"] == pytest.approx(sum(hidden["breakdown_s"].values()))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pp": 1}, "pp: pp 1 with schedule dualpipe; accepted: an even number"),
        ({"pp": 4, "vpp": 2}, "vpp: vpp 2 with schedule dualpipe; accepted: 1"),
        ({"pp": 4, "vpp": 1, "schedule": "dualpipev"}, "vpp: vpp 1 with schedule dualpipev; accepted: 2"),
        ({"global_batch": 28}, "global_batch: 7 micro-batches on 4 pipeline ranks"),
        ({"num_gpus": 120, "pp": 3, "tp": 8}, "pp: pp 3 with schedule dualpipe; accepted: an even number"),
    ],
)
def test_what_dualpipe_cannot_run_is_said_with_its_key(changes: dict[str, Any], message: str) -> None:
    assert message in reported([describe(MANY | {"schedule": "dualpipe"} | changes)])[0]["error"]


def test_dualpipev_holds_two_stages_a_rank_without_being_told() -> None:
    found = describe(MANY | {"schedule": "dualpipev"})
    assert (found.run.vpp, len(found.layers)) == (2, 8)  # type: ignore[union-attr]
    assert "vpp: not given; 2" in found.warnings  # type: ignore[union-attr]
